"""Counted and expected, on toy models: equal at temperature 0, of equal mean above it; in a batch as alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from draftproof.drafters.suffix import SuffixDrafter
from draftproof.errors import EngineError
from draftproof.measure.bench import Runner, measure_group, seed_of
from draftproof.measure.encode import Prompt
from draftproof.measure.rounds import ACCEPTED, CORRECTION
from draftproof.measure.walk import walk
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.types import SamplingParams

GREEDY = SamplingParams(max_new_tokens=40, seed=1)
SAMPLED = SamplingParams(max_new_tokens=24, seed=1, temperature=0.7)


def silent(count):
    pass


def measured(bench, prompts):
    return measure_group(bench, prompts, silent, silent)


def same(ours, theirs):
    """Everything that is stored of two records is equal."""
    assert ours.label == theirs.label
    for name in ("tokens", "round", "depth", "outcome", "drafted", "finish"):
        assert getattr(ours.rounds, name) == getattr(theirs.rounds, name), name
    for name in ("offered", "length", "keep", "accept"):
        assert np.array_equal(getattr(ours.lists, name), getattr(theirs.lists, name)), name


@pytest.mark.parametrize("stop", [(), (3,)])
@pytest.mark.parametrize("params", [GREEDY, replace(GREEDY, repetition_penalty=1.3, min_new_tokens=5)])
def test_greedy_keeps_walk_into_the_very_rounds_that_were_run(bench_of, prompts_of, params, stop) -> None:
    bench = bench_of(params, stop=stop)
    records = measured(bench, prompts_of(30))
    assert {record.rounds.finish for record in records} == ({"length", "stop"} if stop else {"length"})
    assert any(record.rounds.outcome.count(ACCEPTED) > 5 for record in records)
    for record in records:
        assert set(np.unique(record.lists.keep)) <= {0, 1}
        assert np.array_equal(record.lists.keep, record.lists.accept)
        walked = walk(record.rounds.tokens, record.lists, lambda position: 0.0)
        for name in ("round", "depth", "outcome"):
            assert getattr(walked, name) == getattr(record.rounds, name), (record.label, name)
        if record.label != "model" or not stop:  # else a draft may hold a stop id behind its first refusal
            assert walked.drafted == record.rounds.drafted


def test_a_text_may_end_with_an_accepted_draft(bench_of, prompts_of) -> None:
    """Nobody foresees a stop id: it is drafted, kept, and closes the text without a bonus."""
    records = measured(bench_of(GREEDY, stop=(3,)), prompts_of(30))
    closed = [r for r in records if r.rounds.finish == "stop" and r.rounds.outcome[-1] == ACCEPTED]
    assert closed
    for record in closed:
        start = record.rounds.tokens.index(3) - record.rounds.depth[-1]
        left = len(record.rounds.tokens) - start
        assert record.lists.length[start] == left
        assert record.lists.keep[start, left - 1] == 1


def expected_counts(record):
    """(rounds, accepted, tested) of a record, by a recursion over its starts."""
    lists, total = record.lists, len(record.rounds.tokens)
    begins = np.zeros(total + lists.keep.shape[1] + 2)
    begins[1] = 1
    accepted = tested = 0.0
    for start in range(1, total):
        reach = begins[start]
        offered = min(int(lists.offered[start]), total - start)
        for k in range(offered):
            tested += reach
            accepted += reach * lists.accept[start, k]
            begins[start + k + 1] += reach * (1 - lists.keep[start, k])
            reach *= lists.keep[start, k]
        begins[start + offered + 1] += reach
    return begins[1:total].sum(), accepted, tested


def real_counts(record):
    outcome = record.rounds.outcome
    accepted = outcome.count(ACCEPTED)
    return record.rounds.num_rounds - 1, accepted, accepted + outcome.count(CORRECTION)


@pytest.mark.parametrize(
    ("params", "stop"),
    [
        (replace(SAMPLED, rule="coupled"), ()),
        (replace(SAMPLED, rule="coupled"), (3,)),
        (replace(SAMPLED, rule="follow"), (3,)),
        (replace(SAMPLED, rule="reject", top_k=6, top_p=0.95, repetition_penalty=1.2), ()),
        (replace(SAMPLED, rule="reject"), (3,)),
        (replace(SAMPLED, rule="coupled", top_k=6, min_p=0.02, presence_penalty=0.3), (3,)),
    ],
    ids=["coupled", "coupled-stop", "follow-stop", "reject-cut", "reject-stop", "coupled-cut-stop"],
)
def test_counted_and_expected_have_the_same_mean(bench_of, prompts_of, params, stop) -> None:
    bench = bench_of(params, stop=stop)
    prompts = prompts_of(150)
    gaps = defaultdict(list)
    for begin in range(0, len(prompts), 25):
        for record in measured(bench, prompts[begin : begin + 30]):
            assert record.excluded == 0
            gaps[record.label].append(np.subtract(real_counts(record), expected_counts(record)))
    for label, values in gaps.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0) / np.sqrt(len(values))
        assert (np.abs(mean) <= 4 * error + 1e-4).all(), (
            label,
            mean,
            error,
        )  # 54 comparisons: by chance once in 290 seeds
        if label == "model" and params.resolved_rule != "follow":
            assert (error[:2] > 0).all()  # coins, not certainties


def test_the_expected_estimate_has_far_less_noise(bench_of, prompts_of) -> None:
    """Over seeds, of one prompt's acceptance under the ratio rule."""
    counted, expected = [], []
    prompt = prompts_of(1)
    for seed in range(60):
        bench = bench_of(replace(SAMPLED, seed=seed, rule="reject", max_new_tokens=60), ("model",))
        (record,) = measured(bench, prompt)
        _, accepted, tested = real_counts(record)
        counted.append(accepted / tested)
        _, accepted, tested = expected_counts(record)
        expected.append(accepted / tested)
    assert np.var(expected) < 0.5 * np.var(counted)


@pytest.mark.parametrize("rule", ["coupled", "reject"])
def test_results_do_not_depend_on_the_batch(bench_of, prompts_of, rule) -> None:
    params = replace(SAMPLED, rule=rule)
    prompts = prompts_of(9)
    together = measured(bench_of(params, stop=(3,)), prompts)
    alone = [record for prompt in prompts for record in measured(bench_of(params, stop=(3,)), [prompt])]
    assert len(together) == len(alone) == 27
    for ours, theirs in zip(together, alone, strict=True):
        same(ours, theirs)


def test_a_consistent_drafter_replayed_token_by_token_equals_the_whole_replay(bench_of, prompts_of) -> None:
    """The shortcut beside the truth: `model` asked for one token at each place, and for whole drafts."""
    for params in (GREEDY, replace(SAMPLED, rule="follow"), replace(GREEDY, frequency_penalty=0.4)):
        fast, slow = bench_of(params, ("model",)), bench_of(params, ("model",))
        slow = replace(slow, runners=(replace(slow.runners[0], consistent=False),))
        for ours, theirs in zip(measured(fast, prompts_of(12)), measured(slow, prompts_of(12)), strict=True):
            same(ours, theirs)


def test_a_drafter_s_context_limit_ends_its_drafts(bench_of, prompts_of) -> None:
    bench = bench_of(GREEDY, ("model",), draft_max_len=20)
    for record in measured(bench, prompts_of(8)):
        room = np.maximum(0, 20 - len(record.prompt.tokens) - np.arange(40))
        assert (record.lists.offered[1:] <= room[1:]).all()
        assert record.lists.offered.max() == 4
        walked = walk(record.rounds.tokens, record.lists, lambda position: 0.0)
        assert walked.drafted == record.rounds.drafted


def test_a_drawing_drafter_that_is_not_consistent_is_refused(bench_of, prompts_of) -> None:
    bench = bench_of(replace(SAMPLED, rule="reject"), ("model",))
    bench = replace(bench, runners=(replace(bench.runners[0], consistent=False),))
    with pytest.raises(ValueError, match="not drawn"):
        measured(bench, prompts_of(2))


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [GREEDY, replace(SAMPLED, rule="coupled"), replace(SAMPLED, rule="follow")])
@pytest.mark.parametrize("stop", [(), (3,)])
def test_a_text_scored_as_a_log_has_the_lists_it_had_when_it_was_written(bench_of, prompts_of, params, stop) -> None:
    written = measured(bench_of(params, stop=stop), prompts_of(12))
    for record in written:
        prompt = replace(record.prompt, completion=np.array(record.rounds.tokens, np.int32))
        log = bench_of(params, (record.label,), stop=stop, log=True)
        (scored,) = measured(log, [prompt])
        assert scored.excluded == 0
        assert scored.rounds.tokens == record.rounds.tokens
        if record.rounds.finish == "length":
            same(replace(scored, rounds=record.rounds), record)
            continue
        for name in ("length", "keep", "accept"):  # a log does not say where its text would have been cut
            assert np.array_equal(getattr(scored.lists, name), getattr(record.lists, name))


def test_rounds_over_a_log_follow_their_coins(bench_of, prompts_of) -> None:
    params = replace(SAMPLED, rule="reject")
    rng = np.random.default_rng(2)
    prompts = [replace(p, completion=rng.integers(0, 12, 30).astype(np.int32)) for p in prompts_of(150)]
    bench = bench_of(params, ("model",), log=True)
    gaps = []
    for record in measured(bench, prompts):
        assert record.rounds.tokens == record.prompt.completion.tolist()
        rounds, accepted, tested = real_counts(record)
        keeps = expected_counts(replace(record, lists=replace(record.lists, accept=record.lists.keep)))
        gaps.append(np.subtract((rounds, accepted, tested), keeps))
    mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / np.sqrt(len(gaps))
    assert (error > 0).all()
    assert (np.abs(mean) < 4 * error).all()


def test_tokens_that_the_law_excludes_are_counted(bench_of, prompts_of) -> None:
    (record,) = measured(bench_of(GREEDY, ("ngram",)), prompts_of(1))
    tokens = np.array(record.rounds.tokens, np.int32)
    tokens[20] = (tokens[20] + 1) % 12
    prompt = replace(record.prompt, completion=tokens)
    (scored,) = measured(bench_of(GREEDY, ("ngram",), log=True), [prompt])
    assert scored.excluded >= 1
    assert scored.excluded < 40


def test_a_completion_of_one_token_has_no_start(bench_of, prompts_of) -> None:
    (prompt,) = prompts_of(1)
    prompt = replace(prompt, completion=np.array([5], np.int32))
    for record in measured(bench_of(SAMPLED, log=True), [prompt]):
        assert record.lists.offered.tolist() == [0]
        assert record.lists.length.tolist() == [0]
        assert record.rounds.num_rounds == 1


def test_every_line_has_a_seed_of_its_own() -> None:
    seeds = {seed_of(seed, line) for seed in range(20) for line in range(200)}
    assert len(seeds) == 4000
    assert all(0 <= seed < 2**64 for seed in seeds)


# -- broken rows -------------------------------------------------------------------------------------------------------


class BreakingTarget(HashTarget):
    """A model that gives NaN from the given position on, in texts that begin with token 11."""

    breaks_at = 9

    def _logits(self, context):
        logits = super()._logits(context)
        if context.tokens[0] == 11:
            logits[context.positions[context.own] >= self.breaks_at] = np.nan
        return logits


def breaking(bench, engine_of):
    target = BreakingTarget(12, seed=3, window=2, options=ToyOptions(num_pages=2048, min_rows=2))
    engine = engine_of(target, SuffixDrafter(), gamma=4, max_step_rows=2000)
    return replace(bench, target=target, ledger=engine.ledger, runners=(Runner("suffix", engine, False),))


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_text_that_breaks_off_keeps_what_came_before_and_harms_nobody(bench_of, engine_of, params) -> None:
    tokens = [[1, 2], [11, 2, 3], [11] * 10, [4, 5]]
    prompts = [Prompt(i, i + 1, "b", np.array(ids, np.int32)) for i, ids in enumerate(tokens)]
    whole = measured(bench_of(params, ("suffix",)), prompts)
    broken = measured(breaking(bench_of(params, ("suffix",)), engine_of), prompts)
    assert [record.rounds.finish for record in broken] == ["length", "error", "error", "length"]
    for index in (0, 3):
        same(broken[index], whole[index])
    assert broken[1].rounds.tokens == whole[1].rounds.tokens[:7]
    assert len(broken[1].lists.offered) == 7
    assert broken[2].rounds.tokens == []
    assert broken[2].lists.keep.shape == (0, 4)


def test_a_log_that_meets_a_broken_row_names_its_line(bench_of, engine_of) -> None:
    prompt = Prompt(0, 17, "b", np.array([11], np.int32), np.arange(11, dtype=np.int32))
    with pytest.raises(EngineError, match="line 17 of the data, token 9 of its completion"):
        measured(breaking(bench_of(SAMPLED, ("suffix",), log=True), engine_of), [prompt])
