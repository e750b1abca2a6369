"""The randomised probability-integral transform: any token under any law becomes a uniform number, if the law is right.

Statement. Let p be a law, s any score of tokens, V uniform on [0, 1) and independent of the token x. Then
U = P(s(Y) > s(x)) + V * P(s(Y) = s(x)), Y of law p, is uniform on [0, 1) if x has law p.
Proof. Order the distinct scores downwards; U falls into the interval of s(x), whose length is the chance of that score,
and is uniform within it. [] (Brockwell 2007; Czado, Gneiting, Held 2009.)

Sequences. Let the law p_t, the score s_t and the choice to look at token t at all be functions of what came before
x_t, and let x_t have law p_t given all of that. Then the numbers looked at are independent and uniform: each is uniform
given the ones before it. Which score is taken is a matter of power alone: an error that moves mass from low scores to
high ones, everywhere, moves just as much mass of U; errors that change sides from place to place may cancel.

The test. The first n numbers (n fixed before) fall into equal cells; Pearson's chi-square. If fewer than n came, fresh
uniform numbers fill up: under the hypothesis nothing changes, so the rate holds whatever the reason they did not come.

Does not know: models, rounds, where laws come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftproof.certify.chances import chi2_tail
from draftproof.types import FloatArray

CELLS = 10
_BELOW_ONE = math.nextafter(1.0, 0.0)


def pit(law: FloatArray, score: FloatArray, token: int, uniform: float) -> float:
    """U in [0, 1). law, score float[V]; uniform in [0, 1). A token of probability 0 gives the mass above its score."""
    own = score[token]
    above = float(law[score > own].sum(dtype=np.float64))
    level = float(law[score == own].sum(dtype=np.float64))
    return min(above + uniform * level, _BELOW_ONE)


@dataclass(slots=True)
class Cells:
    """Counts of one test's numbers. quota: how many are taken, None while it is not fixed yet."""

    quota: int | None = None
    counts: list[int] = field(default_factory=lambda: [0] * CELLS)
    seen: int = 0  # offered so far, also beyond the quota

    @property
    def taken(self) -> int:
        """Numbers that count."""
        return sum(self.counts)

    def add(self, number: float) -> None:
        """One more, if there is room."""
        self.seen += 1
        if self.quota is not None and self.taken < self.quota:
            self.counts[min(int(number * CELLS), CELLS - 1)] += 1

    def filled(self, rng: np.random.Generator) -> list[int]:
        """The counts, filled up to the quota with fresh uniform numbers."""
        missing = (self.quota or 0) - self.taken
        extra = rng.multinomial(max(0, missing), [1 / CELLS] * CELLS).tolist()
        return [count + more for count, more in zip(self.counts, extra, strict=True)]


def equal_cells(counts: Sequence[int]) -> tuple[float, float]:
    """(chi-square, chance of one as large) of counts whose cells are equally likely."""
    total = sum(counts)
    if not total:
        return 0.0, 1.0
    expected = total / len(counts)
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return statistic, chi2_tail(statistic, len(counts) - 1)
