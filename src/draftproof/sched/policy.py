"""How many tokens each sequence may guess in its next round: a fixed number, or the one that has paid so far.

The textbook price of a round with gamma drafts is time(gamma) / tokens(gamma), with
    tokens(gamma) = 1 + a1 + a1*a2 + ... + a1*...*a_gamma     (a_k: chance that draft k is accepted once it is tested)
    time(gamma)   = cost(rows) + gamma * draft_cost           (rows = max(1 + gamma, min_rows))
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, §3, with measured acceptance by
position and a measured cost curve instead of constants.) gamma 0, plain decoding, is always a candidate.

Invariant: a budget depends on outcomes already committed and on nothing else (contract D2), and on the sequence's own
ones only, so that batch mates change nothing. No randomness, no clock.

Does not know: drafters, tokens, pages, room; the scheduler cuts a budget to what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from draftproof.errors import InvalidParams
from draftproof.types import Commit, SamplingParams

# Milliseconds of one forward over so many rows of one sequence, 200 rows of context, 2-core CPU, int8 weights.
NEARLY_FLAT = ((1, 10.9), (2, 12.3), (3, 13.2), (4, 14.0), (5, 14.2), (8, 16.3), (16, 21.5), (32, 30.9))

_PRIOR = 0.8  # acceptance of a sequence nothing is known of: optimistic, so that guessing is tried
_PRIOR_WEIGHT = 4.0  # tested tokens that the prior counts for
_KEEP = 0.95  # weight of an outcome after each newer round with drafts
_FIRST_WAIT, _LONGEST_WAIT = 8, 256  # rounds without drafts before the next try


class DraftPolicy(Protocol):
    """Chooses draft lengths from the past."""

    def budget(self, seq: int, params: SamplingParams) -> int:
        """Most draft tokens of this sequence's next round, >= 0. Asking changes nothing."""
        ...

    def observe(self, commits: Sequence[Commit]) -> None:
        """What became of the last step."""
        ...

    def forget(self, seq: int) -> None:
        """The sequence is gone."""
        ...


class FixedGamma:
    """The same draft length for every sequence and round."""

    def __init__(self, gamma: int) -> None:
        if gamma < 0:
            raise InvalidParams(f"gamma must be an integer >= 0, got {gamma!r}")
        self.gamma = gamma

    def budget(self, seq: int, params: SamplingParams) -> int:
        """Always gamma."""
        return self.gamma

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to forget."""


def cost_table(points: Sequence[tuple[int, float]]) -> Callable[[int], float]:
    """A cost curve through measured (rows, time) points: straight lines between, the last slope beyond."""
    rows = np.array([point[0] for point in points], np.float64)
    times = np.array([point[1] for point in points], np.float64)
    if not len(rows) or (np.diff(rows) <= 0).any() or (times <= 0).any():
        raise InvalidParams("a cost table needs (rows, time) points with rising rows and times above 0")
    slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2]) if len(rows) > 1 else 0.0

    def cost(num_rows: int) -> float:
        beyond = max(0.0, num_rows - rows[-1])
        return float(np.interp(num_rows, rows, times) + beyond * slope)

    return cost


class _Record:
    """What one sequence's rounds have shown, older outcomes weighing less."""

    __slots__ = ("accepted", "gamma", "quiet", "tested", "wait")

    def __init__(self, gamma_max: int, gamma: int) -> None:
        self.accepted = [0.0] * gamma_max  # by position in the draft
        self.tested = [0.0] * gamma_max
        self.gamma = gamma  # the budget of the next round
        self.quiet = 0  # rounds since the last draft
        self.wait = _FIRST_WAIT

    def add(self, num_accepted: int, num_tested: int) -> None:
        """One more round. What it did not reach fades too: old luck in deep places must not outlive its text."""
        for place in range(len(self.tested)):
            self.tested[place] = _KEEP * self.tested[place] + (place < num_tested)
            self.accepted[place] = _KEEP * self.accepted[place] + (place < num_accepted)

    def rates(self) -> list[float]:
        """Acceptance by position, drawn towards the mean of all positions, which is drawn towards the prior."""
        mean = (_PRIOR * _PRIOR_WEIGHT + sum(self.accepted)) / (_PRIOR_WEIGHT + sum(self.tested))
        return [
            (mean * _PRIOR_WEIGHT + accepted) / (_PRIOR_WEIGHT + tested)
            for accepted, tested in zip(self.accepted, self.tested, strict=True)
        ]


class AdaptiveGamma:
    """For each sequence the draft length, 0..gamma_max, that would have given most tokens per unit of time.

    cost: time of a forward over so many rows of one sequence, in any unit; None is `NEARLY_FLAT` (milliseconds).
    draft_cost: time of one draft token in the same unit. min_rows: rows a plain step has anyway (the target's).
    Where nothing pays it guesses nothing, and tries one token again after 8, 16, 32, ... up to 256 rounds.
    """

    def __init__(
        self, gamma_max: int, cost: Callable[[int], float] | None = None, draft_cost: float = 0.0, min_rows: int = 1
    ) -> None:
        if gamma_max < 0 or draft_cost < 0 or min_rows < 1:
            raise InvalidParams("gamma_max and draft_cost must be >= 0, min_rows >= 1")
        curve = cost or cost_table(NEARLY_FLAT)
        self.gamma_max = gamma_max
        self._times = [curve(max(1 + gamma, min_rows)) + gamma * draft_cost for gamma in range(gamma_max + 1)]
        if min(self._times) <= 0:
            raise InvalidParams("the cost of a step must be above 0")
        self._records: dict[int, _Record] = {}
        self._start = self.best([_PRIOR] * gamma_max)

    def best(self, rates: Sequence[float]) -> int:
        """The gamma with most expected tokens per time under these acceptances by position; the smaller on a tie."""
        reach, tokens = 1.0, 1.0
        best, best_speed = 0, 1.0 / self._times[0]
        for gamma, rate in enumerate(rates, start=1):
            reach *= rate
            tokens += reach
            speed = tokens / self._times[gamma]
            if speed > best_speed:
                best, best_speed = gamma, speed
        return best

    def budget(self, seq: int, params: SamplingParams) -> int:
        """The choice made from this sequence's committed rounds."""
        record = self._records.get(seq)
        return self._start if record is None else record.gamma

    def observe(self, commits: Sequence[Commit]) -> None:
        """Learns from rounds that drafted; counts the others while guessing is off."""
        for commit in commits:
            if commit.verdict is None:
                continue
            record = self._records.get(commit.seq)
            if record is None:
                record = self._records[commit.seq] = _Record(self.gamma_max, self._start)
            if commit.num_drafted:
                self._learn(record, commit)
            elif record.gamma == 0 and self.gamma_max:
                self._sit_out(record)

    def forget(self, seq: int) -> None:
        """Drops what was learned of a sequence."""
        self._records.pop(seq, None)

    def _learn(self, record: _Record, commit: Commit) -> None:
        record.add(commit.num_accepted, commit.num_tested)
        record.gamma = self.best(record.rates())
        record.quiet = 0
        if record.gamma:
            record.wait = _FIRST_WAIT

    def _sit_out(self, record: _Record) -> None:
        record.quiet += 1
        if record.quiet >= record.wait:
            record.gamma = 1  # the try; its outcome decides anew
            record.wait = min(2 * record.wait, _LONGEST_WAIT)
