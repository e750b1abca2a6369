"""What each drafter's drafts are worth on given texts: replays the drafters, passes the target over the texts once, and
puts the laws of both together.

At temperature 0 a text that the target itself has written needs no laws: they are one-hot at the text's own tokens. A
drafter that reads the target's hidden states gets them from the same pass, and is asked as it goes on (`along`).

Invariant: laws are those really sampled from, under the history of each position; a result depends on its own text
only, whatever is beside it and however many threads compute.
Does not know: how texts came about, files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import EngineError, RowError
from draftproof.measure.along import Along
from draftproof.measure.forced import ForcedPass
from draftproof.measure.lists import Lists, Steps, agreeing, shifted, stops, whole
from draftproof.measure.replay import Replay, all_drafts
from draftproof.measure.texts import Text
from draftproof.protocols import Drafter, KVCache, Noise, Target
from draftproof.rules import expected
from draftproof.rules.warp import History, processed, warp
from draftproof.types import Draft, FloatArray, Ids

_MOST_THREADS = 8  # each holds a few rows of a vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The target as a judge of texts: its forward, its pages, and whether its laws are needed (see above)."""

    target: Target
    ledger: KVCache
    noise: Noise
    gamma: int
    needs_laws: bool


class _Drafts(Protocol):
    """The drafts of one drafter on all texts."""

    def advance(self, position: int) -> None:
        """Asks for the drafts at this position, where that was not done at once."""

    def judge(self, index: int, position: int, law: FloatArray) -> None:
        """The target's law float[V] at a position of text `index`."""

    def lists(self, index: int) -> Lists:
        """What came of text `index`."""


class _Fixed:
    """Drafts that need no law of their own, all known before the pass: int32[T, G], of a consistent drafter [T, 1]."""

    def __init__(self, drafts: Sequence[Ids], texts: Sequence[Text], gamma: int, consistent: bool) -> None:
        self._drafts, self._texts, self._gamma, self._consistent = drafts, texts, gamma, consistent
        pairs = [agreeing(text, tokens) for text, tokens in zip(texts, drafts, strict=True)]
        self._accept = [same.astype(np.float64) for same, _ in pairs]
        self._asked = [_Places(tokens, listed) for tokens, (_, listed) in zip(drafts, pairs, strict=True)]

    def advance(self, position: int) -> None:
        pass

    def judge(self, index: int, position: int, law: FloatArray) -> None:
        asked = self._asked[index]
        places = asked.at(position)
        self._accept[index][asked.starts[places], asked.depths[places]] = law[asked.tokens[places]]

    def lists(self, index: int) -> Lists:
        text, drafts = self._texts[index], self._drafts[index]
        if not self._consistent:
            return whole(text, drafts, self._accept[index])
        same, _ = agreeing(text, drafts)
        keep, accept = same[:, 0].astype(np.float64), self._accept[index][:, 0]
        ends = stops(drafts[:, 0], text.stop_ids)
        return shifted(text, self._gamma, Steps(drafts[:, 0] >= 0, ends, keep, accept))


class _Places:
    """Which drafts of one text are judged, sorted by the position at which they are."""

    def __init__(self, drafts: Ids, listed: NDArray[np.bool_]) -> None:
        starts, depths = np.nonzero(listed)
        order = np.argsort(starts + depths, kind="stable")
        self.starts, self.depths = starts[order], depths[order]
        self.tokens = drafts[self.starts, self.depths]
        self._begins = np.searchsorted((starts + depths)[order], np.arange(len(drafts) + 1))

    def at(self, position: int) -> slice:
        return slice(int(self._begins[position]), int(self._begins[position + 1]))


class _Drawn:
    """Drafts of a consistent drafter that brings its laws."""

    def __init__(self, replay: Replay, texts: Sequence[Text], gamma: int, rule: str) -> None:
        self._replay, self._texts, self._gamma = replay, texts, gamma
        self._chance = expected.coupled if rule == "coupled" else expected.reject
        self._keep = [np.zeros(text.length) for text in texts]
        self._accept = [np.zeros(text.length) for text in texts]
        self._has_draft = [np.zeros(text.length, np.bool_) for text in texts]
        self._drafts: dict[tuple[int, int], Draft] = {}  # of the chunk at hand

    def advance(self, position: int) -> None:
        for index, draft in self._replay.at(position, 1):
            if len(draft):
                self._drafts[index, position] = draft
                self._has_draft[index][position] = True

    def judge(self, index: int, position: int, law: FloatArray) -> None:
        draft = self._drafts.pop((index, position), None)
        if draft is None:
            return
        token = int(self._texts[index].completion[position])
        if draft.laws is None:
            chance = expected.fixed(law, int(draft.tokens[0]), token)
        else:
            chance = self._chance(law, draft.laws[0], token)
        self._accept[index][position], self._keep[index][position] = chance

    def lists(self, index: int) -> Lists:
        text = self._texts[index]
        never = np.zeros(text.length, np.bool_)  # which token will be drawn is not known before
        steps = Steps(self._has_draft[index], never, self._keep[index], self._accept[index])
        return shifted(text, self._gamma, steps)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A drafter to be judged. consistent: its draft at each depth depends on the text before it only."""

    drafter: Drafter
    consistent: bool


def judge_drafters(judge: Judge, texts: Sequence[Text], asked: Sequence[Asked]) -> tuple[list[list[Lists]], list[int]]:
    """For each drafter the lists of each text; and for each text how many of its tokens its law excludes.

    The texts have the same sampling parameters, but for the seed.
    """
    drafts = [_drafts(judge, texts, one) for one in asked]
    excluded = [np.zeros(text.length, np.bool_) for text in texts]
    reading = [each for each in drafts if isinstance(each, Along)]
    if texts and (judge.needs_laws or reading):
        heard = partial(_tell, reading) if reading else None
        with ForcedPass(judge.target, judge.ledger, texts, heard) as forced, _Pool() as pool:
            for logits, places in forced.chunks():
                whole = range(places[0][1].start, max(span.stop for _, span, _ in places))
                # Whole drafts with their laws are held until the text is past them: so they are asked for one by one.
                for part in [range(at, at + 1) for at in whole] if reading else [whole]:
                    for position in part:
                        for each in drafts:
                            each.advance(position)
                    rows = [(i, at, first + at - span.start) for i, span, first in places for at in part if at in span]
                    if judge.needs_laws:
                        tasks = [(drafts, texts[i], i, at, logits.row(row), excluded[i]) for i, at, row in rows]
                        pool.run(_judge_one, tasks)
                        continue
                    for index, position, _ in rows:
                        for one in reading:
                            one.judge(index, position, None)
    return [[each.lists(index) for index in range(len(texts))] for each in drafts], [int(e.sum()) for e in excluded]


def _tell(reading: Sequence[Along], index: int, start: int, states: FloatArray) -> None:
    for one in reading:
        one.hear(index, start, states)


def _drafts(judge: Judge, texts: Sequence[Text], asked: Asked) -> _Drafts:
    params = texts[0].params
    reads = "features" in asked.drafter.wants
    draws = (reads or asked.consistent) and params.temperature > 0 and params.resolved_rule in ("reject", "coupled")
    replay = Replay(asked.drafter, texts, judge.noise, laws=draws)
    if reads:
        return Along(replay, texts, judge.gamma, params.resolved_rule if draws else None)
    if draws:
        return _Drawn(replay, texts, judge.gamma, params.resolved_rule)
    tokens = all_drafts(replay, texts, 1 if asked.consistent else judge.gamma)
    return _Fixed(tokens, texts, judge.gamma, asked.consistent)


def _judge_one(
    drafts: Sequence[_Drafts], text: Text, index: int, position: int, row: FloatArray, excluded: NDArray[np.bool_]
) -> None:
    """All drafters at one position of one text. row float[V]: the target's logits there."""
    params = text.params
    before = History(text.tokens[: text.prompt_len + position], text.prompt_len)
    try:
        law = warp(processed(row, params, before, text.stop_ids), params).law(len(row))
    except RowError as error:
        raise EngineError(
            f"line {text.prompt.line} of the data, token {position} of its completion: {error}"
        ) from error
    excluded[position] = not law[text.completion[position]] > 0
    for each in drafts:
        each.judge(index, position, law)


class _Pool:
    """Threads for work on whole vocabularies, which NumPy does without the interpreter's lock."""

    def __enter__(self) -> _Pool:
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, work: Any, tasks: Sequence[tuple[Any, ...]]) -> None:
        """Calls work(*task) for all tasks; raises what the first of them raised."""
        if self._pool is None:
            for task in tasks:
                work(*task)
            return
        for _ in self._pool.map(lambda task: work(*task), tasks):
            pass
