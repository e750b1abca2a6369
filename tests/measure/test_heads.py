"""Draft heads on toy models: what is measured is what the engine counts, and each chance is that of a head run by hand.

The toy head reads everything back from its pages, the toy states hold the whole text before them: a state or a row that
is not the engine's changes every draft after it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from draftproof.drafters.cascade import Cascade
from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.eagle import EagleDrafter
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.drafters.told import told, unlimited
from draftproof.errors import EngineError
from draftproof.kv.ledger import PageLedger
from draftproof.measure.bench import Bench, Runner, measure_group
from draftproof.measure.rounds import ACCEPTED, CORRECTION
from draftproof.measure.walk import walk
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.models.toy_head import HashHead, cell
from draftproof.models.toy_medusa import HashHeads
from draftproof.noise import PhiloxNoise
from draftproof.rules.host import HostLogits
from draftproof.rules.warp import History, processed, warp
from draftproof.types import EMPTY_IDS, Commit, SamplingParams, Slots, StepItem

VOCAB, GAMMA, STOP = 12, 4, 3
MAPPING = np.array([0, 1, 2, 3, 5, 6, 7, 9, 10, 11], np.int32)  # two tokens a head never drafts
GREEDY = SamplingParams(max_new_tokens=40, seed=1)
SAMPLED = SamplingParams(max_new_tokens=24, seed=1, temperature=0.8)
NOISE = PhiloxNoise()


def state(tokens: Sequence[int]) -> np.ndarray:
    """float32[3]: the target's hidden states after these tokens."""
    digest = hashlib.blake2b(np.array(tokens, np.int64).tobytes(), digest_size=6).digest()
    return np.frombuffer(digest, np.uint16).astype(np.float32) / 65536


class Stated(HashTarget):
    """A toy target whose states hold all that its pages hold of a sequence."""

    def verify(self, batch):
        output, states = super().verify(batch), []
        for index, table in enumerate(batch.tables):
            past, rows = int(batch.past_lens[index]), int(np.diff(batch.offsets[index : index + 2])[0])
            tokens, _ = self.read(table, past + rows)
            states += [state(tokens[: past + row + 1].tolist()) for row in range(rows)]
        return replace(output, features=np.array(states, np.float32))


def target_of() -> Stated:
    return Stated(VOCAB, seed=3, window=2, options=ToyOptions(num_pages=2048, min_rows=2))


class Apt(HashHead):
    """A toy head that leans to what the target says after its last two tokens."""

    def __init__(self, lean: float = 1.2) -> None:
        super().__init__(len(MAPPING), num_pages=2048)
        self._lean, self._target, self._said = lean, target_of(), {}
        self._ids = np.zeros(self._pages.shape, np.int64)

    def draft(self, batch, features, own):
        logits, output = super().draft(batch, features, own)
        for index, table in enumerate(batch.tables):
            for row in range(*batch.offsets[index : index + 2].tolist()):
                page, slot = divmod(int(batch.positions[row]), self.page_size)
                self._ids[table[page], slot] = batch.input_ids[row]
        found = []
        for number, row in enumerate(batch.logit_rows.tolist()):
            index = int(np.searchsorted(batch.offsets, row, side="right")) - 1
            place = int(batch.positions[row])
            ids = self._ids[batch.tables[index]].ravel()[max(0, place - 1) : place + 1].tolist()
            found.append(self.leaning(logits.row(number), ids))
        return HostLogits(np.array(found).reshape(-1, self.vocab_size)), output

    def leaning(self, logits: np.ndarray, last: list[int]) -> np.ndarray:
        key = tuple(last)
        if key not in self._said:
            rows = Rows(np.array(last, np.int32), len(last), Slots(np.arange(2, dtype=np.int32), 0, len(last)))
            self._said[key] = self._target.verify(flat_batch([rows], 2)).logits.row(0)[MAPPING].copy()
        return 0.1 * logits + self._lean * self._said[key]


def eagle(min_path: float = 0.05) -> EagleDrafter:
    head = Apt()
    ledger = PageLedger(head.num_pages, head.page_size)
    return EagleDrafter(head, ledger, VOCAB, mapping=MAPPING, min_path=min_path, chunk=5)


def drafter_of(name: str) -> Any:
    if name == "medusa":
        return MedusaDrafter(HashHeads(len(MAPPING), 3), VOCAB, mapping=MAPPING, min_path=0.02)
    return Cascade([SuffixDrafter(), eagle()]) if name == "cascade" else eagle(0.0 if name == "long" else 0.05)


NAMES = ("eagle", "long", "medusa", "cascade")


@pytest.fixture
def bench_of(engine_of: Any) -> Callable[..., Bench]:
    """bench_of(params, names, stop=..., log=...) -> Bench over one target with states."""

    def make(
        params: SamplingParams, names: Sequence[str] = NAMES, *, stop: Sequence[int] = (), log: bool = False
    ) -> Bench:
        target, runners = target_of(), []
        for name in names:
            engine = engine_of(target, drafter_of(name), gamma=GAMMA, max_step_rows=2000, chunk_rows=3)
            runners.append(Runner(name, engine, False))
        ledger = runners[0].engine.ledger
        return Bench(target, ledger, NOISE, tuple(runners), params, frozenset(stop), GAMMA, target.max_len, log)

    return make


def measured(bench: Bench, prompts: Any) -> list[Any]:
    records = measure_group(bench, prompts, lambda count: None, lambda count: None)
    for runner in bench.runners:  # nothing stays behind
        parts = runner.engine.drafter.parts if runner.label == "cascade" else (runner.engine.drafter,)
        for part in parts:
            assert not getattr(part, "_seen", {})
            assert not getattr(part, "_states", {})
            if isinstance(part, EagleDrafter):
                ledger = part._cache._ledger
                assert ledger.free_pages == ledger.num_pages
    return records


def counts(record: Any) -> np.ndarray:
    """[2, GAMMA]: drafts tested and accepted by position, of rounds as they were run or walked."""
    found = np.zeros((2, GAMMA), int)
    for depth, outcome in zip(record.depth, record.outcome, strict=True):
        if outcome == ACCEPTED:
            found[:, depth] += 1
        elif outcome == CORRECTION:
            found[0, depth] += 1
    return found


@pytest.mark.parametrize(
    ("params", "stop"),
    [
        (GREEDY, ()),
        (replace(GREEDY, repetition_penalty=1.3, min_new_tokens=5), (STOP,)),
        (replace(SAMPLED, rule="follow"), (STOP,)),
    ],
    ids=["greedy", "penalised-stop", "follow-stop"],
)
def test_acceptance_by_position_is_the_engine_s_own_count(bench_of, prompts_of, params, stop) -> None:
    """Drafts that are not drawn: the rounds walked over what was measured are those that were run, draft by draft."""
    total = defaultdict(lambda: np.zeros((2, GAMMA), int))
    for record in measured(bench_of(params, stop=stop), prompts_of(12)):
        assert set(np.unique(record.lists.keep)) <= {0, 1}
        walked = walk(record.rounds.tokens, record.lists, lambda position: 0.0)
        for name in ("round", "depth", "outcome", "drafted"):
            assert getattr(walked, name) == getattr(record.rounds, name), (record.label, name)
        total[record.label] += counts(record.rounds)
    assert all(found[0, 0] > found[1, 0] > 0 for found in total.values()), dict(total)
    if not params.temperature:
        assert total["long"][1, 3] > 0, total["long"]  # the deepest drafts, too, some of them kept
        assert total["long"][0, 3] > total["eagle"][0, 3]  # the other one ended some chains


def by_hand(record: Any, start: int, params: SamplingParams) -> tuple[list[float], list[float]]:
    """(accept, keep) of the EAGLE drafts of a round that begins at `start`, by theorem 2, without caches or replays."""
    tokens = [*record.prompt.tokens.tolist(), *record.rounds.tokens]
    first = len(record.prompt.tokens) + start
    ids = np.array(tokens[:first], np.int32)
    budget = min(GAMMA, 24 - start - 1)
    item = StepItem(0, ids, len(record.prompt.tokens), 1, 1, budget, params, start, frozenset())
    head, accept, keep = Apt(), [], []
    held = [cell(tokens[t + 1], state(tokens[: t + 1]), False) for t in range(first - 1)]
    choice = Choice(item, NOISE, DraftVocab(len(MAPPING), VOCAB, MAPPING), budget, min_path=0.05)
    while budget and not choice.ended and first + len(choice.tokens) < len(tokens):
        place = first + len(choice.tokens)
        logits, own = head.answer(held)
        choice.extend(head.leaning(logits, tokens[max(0, place - 2) : place]))
        if len(choice.tokens) == len(accept):
            break  # too unsure
        q, token = choice.draft().laws[-1], tokens[place]
        choice.tokens[-1] = token
        before = History(np.array(tokens[:place], np.int32), len(record.prompt.tokens))
        row = Rows(np.array(tokens[:place], np.int32), place, Slots(np.arange(60, dtype=np.int32), 0, place))
        logits = target_of().verify(flat_batch([row], 2)).logits.row(0)
        p = warp(processed(logits, params, before, frozenset()), params).law(VOCAB)
        accept.append(float(np.minimum(p, q).sum()))
        keep.append(float(min(1.0, q[token] / p[token])))
        if keep[-1] == 0:
            break
        held.append(cell(token, own, True))
    return accept, keep


@pytest.mark.parametrize("params", [replace(SAMPLED, rule="reject"), replace(SAMPLED, rule="reject", top_k=5)])
def test_each_chance_is_that_of_a_head_run_by_hand_along_the_text(bench_of, prompts_of, params) -> None:
    """accept = sum(min(p, q)), where q is the head's law after its own outputs along the text's tokens."""
    deepest = 0
    for record in measured(bench_of(params, ("eagle",)), prompts_of(4)):
        own = replace(params, seed=None)
        for start in range(1, len(record.rounds.tokens)):
            accept, keep = by_hand(record, start, replace(own, seed=1))
            length = int(record.lists.length[start])
            assert length == len(accept), start
            assert np.allclose(record.lists.accept[start, :length], accept, atol=1e-6)
            assert np.allclose(record.lists.keep[start, :length], keep, atol=1e-6)
            deepest = max(deepest, length)
    assert deepest == GAMMA


def expected_by_position(record: Any) -> np.ndarray:
    """[2, GAMMA] tested and accepted, by the recursion over starts; their rounds' drafts do not enter."""
    lists, total = record.lists, len(record.rounds.tokens)
    begins, found = np.zeros(total + GAMMA + 2), np.zeros((2, GAMMA))
    begins[1] = 1
    for start in range(1, total):
        reach = begins[start]
        offered = min(int(lists.offered[start]), total - start)
        for k in range(offered):
            found[:, k] += reach, reach * lists.accept[start, k]
            begins[start + k + 1] += reach * (1 - lists.keep[start, k])
            reach *= lists.keep[start, k]
        begins[start + offered + 1] += reach
    return found


@pytest.mark.parametrize(
    "params",
    [
        replace(SAMPLED, rule="reject"),
        replace(SAMPLED, rule="coupled"),
        replace(SAMPLED, rule="reject", top_p=0.9, repetition_penalty=1.2),
    ],
    ids=["reject", "coupled", "reject-cut"],
)
def test_counted_and_expected_have_the_same_mean_at_every_position(bench_of, prompts_of, params) -> None:
    bench, prompts = bench_of(params, ("eagle", "medusa", "cascade"), stop=(STOP,)), prompts_of(40)
    gaps = defaultdict(list)
    for begin in range(0, len(prompts), 20):
        for record in measured(bench, prompts[begin : begin + 20]):
            assert record.excluded == 0
            real = counts(record.rounds)
            gaps[record.label].append((real - expected_by_position(record)).ravel())
    for label, values in gaps.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0) / np.sqrt(len(values))
        assert (np.abs(mean) <= 4 * error + 1e-4).all(), (label, mean / np.maximum(error, 1e-9))
        assert (error[:3] > 0).all()


@pytest.mark.parametrize("rule", ["coupled", "reject"])
def test_results_do_not_depend_on_the_batch(bench_of, prompts_of, rule) -> None:
    params, prompts = replace(SAMPLED, rule=rule), prompts_of(6)
    together = measured(bench_of(params, stop=(STOP,)), prompts)
    alone = [record for prompt in prompts for record in measured(bench_of(params, stop=(STOP,)), [prompt])]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.label == theirs.label
        assert ours.rounds.tokens == theirs.rounds.tokens
        for name in ("offered", "length", "keep", "accept"):
            assert np.array_equal(getattr(ours.lists, name), getattr(theirs.lists, name)), name


@pytest.mark.parametrize("params", [GREEDY, replace(SAMPLED, rule="coupled"), replace(SAMPLED, rule="follow")])
def test_a_text_scored_as_a_log_has_the_lists_it_had_when_it_was_written(bench_of, prompts_of, params) -> None:
    for record in measured(bench_of(params), prompts_of(3)):
        prompt = replace(record.prompt, completion=np.array(record.rounds.tokens, np.int32))
        (scored,) = measured(bench_of(params, (record.label,), log=True), [prompt])
        assert scored.excluded == 0
        for name in ("offered", "length", "keep"):
            assert np.array_equal(getattr(scored.lists, name), getattr(record.lists, name)), name
        if params.temperature:  # a greedy log is scored with laws, which know the chance of a refused draft, too
            assert np.array_equal(scored.lists.accept, record.lists.accept)


def test_heads_and_lookups_are_measured_in_one_pass(bench_of, prompts_of, engine_of) -> None:
    """A lookup beside heads has the lists it has alone."""
    for params in (GREEDY, replace(SAMPLED, rule="reject"), replace(SAMPLED, rule="coupled")):
        bench = bench_of(params, ("eagle",))
        lookup = Runner("suffix", engine_of(bench.target, SuffixDrafter(), gamma=GAMMA, max_step_rows=2000), False)
        alone = replace(bench, runners=(lookup,), ledger=lookup.engine.ledger)
        both = replace(bench, runners=(*bench.runners, lookup))
        ours = [record for record in measured(both, prompts_of(5)) if record.label == "suffix"]
        for one, other in zip(ours, measured(alone, prompts_of(5)), strict=True):
            for name in ("offered", "length", "keep", "accept"):
                assert np.array_equal(getattr(one.lists, name), getattr(other.lists, name)), name


def test_completions_of_one_token_leave_no_states_behind(bench_of, prompts_of) -> None:
    prompts = [replace(prompt, completion=np.array([5], np.int32)) for prompt in prompts_of(2)]
    for record in measured(bench_of(SAMPLED, log=True), prompts):
        assert record.lists.offered.tolist() == [0]


def test_a_target_without_states_is_an_error(bench_of, prompts_of) -> None:
    bench = bench_of(GREEDY, ("eagle",))
    plain = HashTarget(VOCAB, seed=3, window=2, options=ToyOptions(num_pages=2048, min_rows=2))
    with pytest.raises(EngineError, match="the target gives none"):
        measured(replace(bench, target=plain), prompts_of(1))


@pytest.mark.parametrize("name", ["eagle", "medusa", "cascade"])
def test_an_unlimited_head_drafts_as_far_as_it_may(name) -> None:
    """What a length costs is asked of drafts that have this length."""
    drafter, tokens = drafter_of(name), [4, 5, 6, 7, 8, 9]
    for part in getattr(drafter, "parts", (drafter,)):
        part._min_path = 0.9
    states = np.array([state(tokens[: end + 1]) for end in range(5)], np.float32)
    drafter.observe([Commit(0, EMPTY_IDS, range(5), features=states)])
    item = StepItem(0, np.array(tokens, np.int32), 5, 1, 1, GAMMA, GREEDY, 1, frozenset())
    most = 3 if name == "medusa" else GAMMA  # three heads
    assert len(drafter.propose([item], NOISE)[0]) < most
    with unlimited(drafter):
        assert len(drafter.propose([item], NOISE)[0]) == most
    assert len(drafter.propose([item], NOISE)[0]) < most


def test_only_who_draws_can_be_told() -> None:
    with pytest.raises(TypeError, match="chooses no tokens"), told(SuffixDrafter(), lambda item: item.tokens):
        pass
    drafter = eagle()
    manager = told(drafter, lambda item: item.tokens)
    manager.__enter__()
    assert drafter.choosing is not Choice
    assert not manager.__exit__(KeyError, KeyError("what breaks inside"), None)
    assert drafter.choosing is Choice
