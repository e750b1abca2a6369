"""One group of prompts, measured with every drafter: the rounds that were run, and the chances of every start.

A group runs in one batch. Where the drafters leave the text as it is (greedy and path-exact rules), all of them are
judged in one pass over it; under the ratio rule each has its own text and its own pass.

Invariant: a prompt's results do not depend on the group it is in (under invariant numerics); each prompt has a seed of
its own, made from the run's seed and its line in the data.
Does not know: files, models by name, progress bars.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftproof.engine.step import Engine
from draftproof.measure.chances import Asked, Judge, judge_drafters
from draftproof.measure.encode import Prompt
from draftproof.measure.lists import Lists
from draftproof.measure.rounds import Rounds, Tick, run_rounds
from draftproof.measure.texts import Text
from draftproof.measure.walk import walk
from draftproof.protocols import KVCache, Noise, Target
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Ids, Request, SamplingParams


@dataclass(frozen=True, slots=True, eq=False)
class Runner:
    """One drafter with the engine that runs it."""

    label: str
    engine: Engine
    consistent: bool


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What measures. params: resolved (bad words as ids), with the run's seed; stop_ids: of every prompt."""

    target: Target
    ledger: KVCache
    noise: Noise
    runners: tuple[Runner, ...]
    params: SamplingParams
    stop_ids: frozenset[int]
    gamma: int
    max_len: int  # most tokens of prompt and completion together
    log: bool  # completions are given, and scored as they are
    tokenizer: Tokenizer | None = None  # for stop strings


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One prompt under one drafter. excluded: tokens of the text that the target's law gives no chance."""

    prompt: Prompt
    label: str
    rounds: Rounds
    lists: Lists
    excluded: int


def seed_of(seed: int, line: int) -> int:
    """The seed of the prompt on a line: one of 2**64, as good as independent of every other line's."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{line}".encode(), digest_size=8).digest(), "little")


def measure_group(bench: Bench, prompts: Sequence[Prompt], tick: Tick, done: Callable[[int], None]) -> list[Record]:
    """Records by prompt, then drafter. tick(n): n more tokens are done; done(n): n more pairs of prompt and drafter."""
    found = _scored(bench, prompts, tick, done) if bench.log else _written(bench, prompts, tick, done)
    return [records[index] for index in range(len(prompts)) for records in found]


def _written(bench: Bench, prompts: Sequence[Prompt], tick: Tick, done: Callable[[int], None]) -> list[list[Record]]:
    """For each drafter a record of each prompt, from texts that the engine writes with it."""
    requests = [
        Request(prompt.number, prompt.tokens, _params(bench, prompt), bench.stop_ids, arrival=index)
        for index, prompt in enumerate(prompts)
    ]
    runs: list[list[Rounds]] = []
    texts: list[list[Text]] = []
    for runner in bench.runners:
        runs.append(run_rounds(runner.engine, requests, bench.tokenizer, tick))
        texts.append(
            [
                _text(bench, prompt, np.array(rounds.tokens, np.int32), _room(bench, prompt))
                for prompt, rounds in zip(prompts, runs[-1], strict=True)
            ]
        )
        done(len(prompts))
    return _records(bench, prompts, runs, _judged(bench, texts))


def _scored(bench: Bench, prompts: Sequence[Prompt], tick: Tick, done: Callable[[int], None]) -> list[list[Record]]:
    """For each drafter a record of each prompt, from completions that are there; rounds are walked with coins."""
    texts = []
    for prompt in prompts:
        assert prompt.completion is not None, "every prompt of a log has its completion"
        ended = int(prompt.completion[-1]) in bench.stop_ids  # nobody foresaw that end; any other was a cap
        end = bench.max_len if ended else len(prompt.tokens) + len(prompt.completion)
        texts.append(_text(bench, prompt, prompt.completion, end))
    judged = _judged(bench, [texts] * len(bench.runners))
    runs = [[_walked(bench, *one) for one in zip(texts, lists, strict=True)] for lists, _ in judged]
    tick(len(bench.runners) * sum(text.length for text in texts))
    done(len(bench.runners) * len(prompts))
    return _records(bench, prompts, runs, judged)


def _walked(bench: Bench, text: Text, lists: Lists) -> Rounds:
    seed = text.params.seed
    assert seed is not None
    rounds = walk(text.completion.tolist(), lists, lambda at: float(bench.noise.uniform(seed, "test", at, 1)[0]))
    rounds.finish = "stop" if int(text.completion[-1]) in text.stop_ids else "length"
    return rounds


def _params(bench: Bench, prompt: Prompt) -> SamplingParams:
    seed = bench.params.seed
    assert seed is not None, "the seed of a run is resolved"
    return replace(bench.params, seed=seed_of(seed, prompt.line))


def _text(bench: Bench, prompt: Prompt, completion: Ids, end: int) -> Text:
    tokens = np.concatenate([prompt.tokens, completion])
    return Text(prompt, tokens, _params(bench, prompt), bench.stop_ids, end)


def _room(bench: Bench, prompt: Prompt) -> int:
    """Most tokens of prompt and completion that the engine would write."""
    cap = bench.params.max_new_tokens
    return bench.max_len if cap is None else min(bench.max_len, len(prompt.tokens) + cap)


def _judged(bench: Bench, texts: Sequence[Sequence[Text]]) -> list[tuple[list[Lists], list[int]]]:
    """For each drafter the lists and excluded tokens of each of its texts; drafters with equal texts share a pass."""
    needs_laws = bench.log or bench.params.temperature > 0
    judge = Judge(bench.target, bench.ledger, bench.noise, bench.gamma, needs_laws)
    alike: dict[tuple[bytes, ...], list[int]] = {}
    for index, own in enumerate(texts):
        alike.setdefault(tuple(text.tokens.tobytes() for text in own), []).append(index)
    judged: dict[int, tuple[list[Lists], list[int]]] = {}
    for indices in alike.values():
        asked = [Asked(bench.runners[index].engine.drafter, bench.runners[index].consistent) for index in indices]
        lists, excluded = judge_drafters(judge, texts[indices[0]], asked)
        judged |= {index: (own, excluded) for index, own in zip(indices, lists, strict=True)}
    return [judged[index] for index in range(len(texts))]


def _records(
    bench: Bench,
    prompts: Sequence[Prompt],
    runs: Sequence[Sequence[Rounds]],
    judged: Sequence[tuple[list[Lists], list[int]]],
) -> list[list[Record]]:
    return [
        [
            Record(prompt, runner.label, run, own, num_excluded)
            for prompt, run, own, num_excluded in zip(prompts, rounds, lists, excluded, strict=True)
        ]
        for runner, rounds, (lists, excluded) in zip(bench.runners, runs, judged, strict=True)
    ]
