"""How many tokens each sequence may guess in its next round: who is asked, and a fixed answer.

Invariant: a budget depends on outcomes already committed and on nothing else (contract D2). No randomness, no clock.

Does not know: drafters, tokens, pages, room; the scheduler says how many drafts could be used at all. What pays is
chosen in `adaptive`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from draftproof.errors import InvalidParams
from draftproof.types import Commit, SamplingParams

# Milliseconds of one forward over so many rows of one sequence, 200 rows of context, 2-core CPU, int8 weights.
NEARLY_FLAT = ((1, 10.9), (2, 12.3), (3, 13.2), (4, 14.0), (5, 14.2), (8, 16.3), (16, 21.5), (32, 30.9))


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence about to decide a token. most: drafts that could still reach its text, >= 0."""

    seq: int
    params: SamplingParams
    most: int
    bucket: str = "default"

    @property
    def alone(self) -> bool:
        """True where a draft length could change the text: nothing of other sequences may decide it."""
        return self.params.draws_drafts


@dataclass(frozen=True, slots=True)
class Offer:
    """A chain that is there, of which fewer tokens may go to the target without changing any text. length: >= 1."""

    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class StepRows:
    """What a step holds without its offers. like: rows that a step of so many costs as much as, all prepared."""

    num_sequences: int
    rows: int
    like: Callable[[int], float] = float


class DraftPolicy(Protocol):
    """Chooses draft lengths from the past."""

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """For each sequence that decides in this step the most draft tokens, in 0..most. Asking changes no answer."""
        ...

    def worth(self, offers: Sequence[Offer], step: StepRows) -> list[int]:
        """How many tokens of each offer go to the target, in 0..length, now that all drafts of the step are there."""
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

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """gamma, or what is left of it."""
        return [min(self.gamma, ask.most) for ask in asks]

    def worth(self, offers: Sequence[Offer], step: StepRows) -> list[int]:
        """All of them."""
        return [offer.length for offer in offers]

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
