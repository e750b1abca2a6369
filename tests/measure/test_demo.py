"""The real demo model: greedy keeps walk into the rounds that were run; a log of its own text gives the same lists."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftproof.engine import prompts as prompting
from draftproof.engine.build import Built, build_each
from draftproof.engine.options import EngineOptions
from draftproof.measure.bench import Bench, Runner, measure_group
from draftproof.measure.chatlog import Completion, Sample
from draftproof.measure.encode import Encoder, Prompt
from draftproof.measure.rounds import ACCEPTED
from draftproof.measure.walk import walk
from draftproof.noise import PhiloxNoise
from draftproof.types import SamplingParams

pytestmark = pytest.mark.demo
PASSAGE = "The mill on the river was built in 1802, burned in 1866 and was built again of stone. Its wheel turns still."
PROMPTS = (
    f"{PASSAGE}\nRepeat the text above.",
    "Name the capital of France in one word.",
    "def add(a, b):\n    return a + b\n\nRepeat this function, then write one that subtracts.",
)
GAMMA, NEW = 4, 24


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    named = os.environ.get("DRAFTPROOF_CACHE_DIR")
    cache = Path(named) if named else tmp_path_factory.mktemp("demo-cache")
    shared = {"gamma": GAMMA, "kv_memory": 1 << 28, "cache_dir": cache, "max_sequences": 4}
    options = [EngineOptions(drafter=name, **shared) for name in ("suffix", "ngram")]
    return build_each([*options, EngineOptions(drafter="early_exit", exit_layer=4, **shared)], print, exact_drafts=True)


def bench_of(built: list[Built], params: SamplingParams, log: bool = False) -> Bench:
    first = built[0]
    target, tokenizer = first.engine.target, first.tokenizer
    resolved = prompting.resolve(replace(params, max_new_tokens=None if log else NEW), tokenizer, target.vocab_size)
    ends = prompting.stop_ids(resolved, tokenizer)
    runners = tuple(Runner(b.engine.drafter.name, b.engine, b.draft is not None) for b in built)
    return Bench(target, first.ledger, PhiloxNoise(), runners, resolved, ends, GAMMA, target.max_len, log, tokenizer)


def prompts_of(built: list[Built]) -> list[Prompt]:
    encoder = Encoder(
        built[0].tokenizer, built[0].engine.target.vocab_size, True, lambda prompt, completion: None, None
    )
    return [encoder.prompt(i, Sample(i + 1, text, None, "b"), False) for i, text in enumerate(PROMPTS)]


def silent(count: int) -> None:
    pass


def test_greedy_keeps_walk_into_the_rounds_that_were_run(built: list[Built]) -> None:
    records = measure_group(bench_of(built, SamplingParams(seed=0)), prompts_of(built), silent, silent)
    assert {record.rounds.finish for record in records} == {"length", "stop"}
    assert sum(record.rounds.outcome.count(ACCEPTED) for record in records) > 20
    for record in records:
        walked = walk(record.rounds.tokens, record.lists, lambda position: 0.0)
        for name in ("round", "depth", "outcome"):
            assert getattr(walked, name) == getattr(record.rounds, name), (record.label, name)
        assert set(np.unique(record.lists.keep)) <= {0, 1}


@pytest.mark.parametrize("params", [SamplingParams(seed=0), SamplingParams(seed=0, temperature=0.8, top_p=0.95)])
def test_a_text_scored_as_a_log_has_the_lists_it_had_when_it_was_written(
    built: list[Built], params: SamplingParams
) -> None:
    written = measure_group(bench_of(built, params), prompts_of(built), silent, silent)
    texts: dict[int, Any] = {record.prompt.number: record.rounds.tokens for record in written}
    logged = [replace(p, completion=np.array(texts[p.number], np.int32)) for p in prompts_of(built)]
    scored = measure_group(bench_of(built, params, log=True), logged, silent, silent)
    for ours, theirs in zip(scored, written, strict=True):
        assert ours.label == theirs.label
        assert ours.rounds.tokens == theirs.rounds.tokens  # path-exact: all drafters wrote the same text
        assert ours.excluded == theirs.excluded == 0
        for name in ("length", "keep", "accept"):
            assert np.array_equal(getattr(ours.lists, name), getattr(theirs.lists, name)), (ours.label, name)


def test_results_do_not_depend_on_the_batch(built: list[Built]) -> None:
    """Nor do the drafts: a second model that drafts for a measurement has the target's numerics."""
    bench = bench_of(built, SamplingParams(seed=0, temperature=0.8, rule="reject"))
    together = measure_group(bench, prompts_of(built), silent, silent)
    alone = [record for prompt in prompts_of(built) for record in measure_group(bench, [prompt], silent, silent)]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.label == theirs.label
        assert asdict(ours.rounds) == asdict(theirs.rounds)
        for name in ("offered", "length", "keep", "accept"):
            assert np.array_equal(getattr(ours.lists, name), getattr(theirs.lists, name)), (ours.label, name)


def test_a_logged_answer_has_the_tokens_that_were_decoded(built: list[Built]) -> None:
    """Text and back: behind its prompt, an answer is tokenised as the model wrote it, its end included."""
    tokenizer = built[0].tokenizer
    encoder = Encoder(tokenizer, built[0].engine.target.vocab_size, True, lambda prompt, completion: None, None)
    for text in ("Paris.", "It was built in 1802.", " two  spaces,\n\nand lines", "naïve ☃"):
        for ended in (True, False):
            made = encoder.prompt(0, Sample(1, PROMPTS[1], Completion(text, ended), "b"), True)
            assert made.completion is not None
            ids = made.completion.tolist()
            assert (ids[-1] in tokenizer.eos_ids) == ended
            assert tokenizer.decode(ids) == text
            assert set(ids[: len(ids) - ended]).isdisjoint(tokenizer.special_ids)
