"""Acceptance from sums over requests: requests are the clusters, and a long one counts for no more than its share.

A request with t tested and a accepted tokens enters with weight w = min(t, cap) and w * a / t accepted ones, so the
estimate is the sum of accepted over the sum of weights. Its variance comes from the residuals of requests, not of
tokens: tokens of one request hang together. Two imagined requests of average weight, one wholly accepted and one wholly
refused, keep the interval from vanishing where all requests agree (Agresti and Coull's trick, for clusters).

Invariant: sums only grow, and can be added; requests that tested nothing leave no trace.
Does not know: stages, time, floors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from draftproof.planner.interval import Interval
from draftproof.rollout.interval import as_json, boundary

FEWEST = 20  # requests below which no interval is given


@dataclass(slots=True)
class Sums:
    """Of some requests of one kind."""

    requests: int = 0  # that tested something
    accepted: int = 0
    tested: int = 0
    a: float = 0.0  # weighted accepted tokens
    w: float = 0.0  # weights
    aa: float = 0.0
    aw: float = 0.0
    ww: float = 0.0

    def add(self, accepted: int, tested: int, weight: float) -> None:
        """A request with tested > 0 and weight min(tested, cap)."""
        a = accepted / tested * weight
        self.requests += 1
        self.accepted += accepted
        self.tested += tested
        self.a += a
        self.w += weight
        self.aa += a * a
        self.aw += a * weight
        self.ww += weight * weight

    def plus(self, other: Sums) -> Sums:
        """Of both."""
        return Sums(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def mean(self) -> float | None:
        """Weighted acceptance."""
        return self.a / self.w if self.w else None

    def standard_error(self) -> tuple[float, float]:
        """(centre, its standard error), the two imagined requests included. At least one request is needed."""
        mean_weight = self.w / self.requests
        a, w = self.a + mean_weight, self.w + 2 * mean_weight
        square = mean_weight * mean_weight
        aa, aw, ww = self.aa + square, self.aw + square, self.ww + 2 * square
        num = self.requests + 2
        centre = a / w
        squares = max(0.0, aa - 2 * centre * aw + centre * centre * ww)
        return centre, math.sqrt(squares * num / (num - 1)) / w

    def interval(self, alpha: float, tuned: float) -> Interval | None:
        """Weighted acceptance with an interval for all looks at once; None without a request, bare below FEWEST."""
        mean = self.mean
        if mean is None or self.requests < FEWEST:
            return None if mean is None else Interval(mean)
        centre, error = self.standard_error()
        half = boundary(self.requests, alpha, tuned) * error
        return Interval(mean, max(0.0, centre - half), min(1.0, centre + half))

    def to_evidence(self, alpha: float, tuned: float) -> dict[str, Any]:
        """Counts, mean and interval for the log."""
        counts = {"requests": self.requests, "accepted": self.accepted, "tested": self.tested}
        return {**counts, "acceptance": as_json(self.interval(alpha, tuned))}
