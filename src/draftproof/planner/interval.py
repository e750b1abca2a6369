"""95 % intervals for a ratio of sums over prompts, when tokens of one prompt hang together.

The unit is the prompt (cluster): x_c accepted of y_c tested tokens, say; estimate R = sum x / sum y. Residuals
e_c = (x_c - R*y_c) / sum y are linearised and too small, as R is fitted to them: with w_c = y_c / sum y and v_c the
variance that a prompt's residual is taken to have, up to a common factor, they have v_c (1 - 2 w_c) + w_c^2 sum v. Each
e_c^2 is divided by that and multiplied by v_c, and Student's t has Satterthwaite's degrees of freedom for just these
weights (Bell and McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage samples", 2002).
v_c = y_c^1.4 lies between y_c (tokens that know nothing of each other) and y_c^2 (one fate a prompt): a few long
prompts count as the few they are. The interval is symmetric in the log-odds between the bounds that the ratio has
anyway (0 and 1 for an acceptance, 1 and gamma + 1 for tokens per round), which it therefore never leaves.

What it covers is in tests/planner/test_interval_coverage.py: 93 to 97 % at 12, 30 and 100 prompts, with strongly
correlated prompts of unequal lengths, and at four prompts mostly (93 to 98 %). But where three prompts in ten are of
another kind, four prompts may all be of one kind (78 % covered; 12 prompts: 92 %): no formula mends that.

Edges: fewer than two prompts with y > 0 give no interval. Prompts that all agree exactly (every draft accepted, say)
show no variance, which is not certainty: with chance 2.5 % a kind of prompt with share 1 - 0.025^(1/C) of the traffic
stays unseen in C prompts, and such prompts could lie at either bound; the interval is widened by just that share.

Does not know: what x and y count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.planner.student import t_quantile

LEVEL = 0.95
_VARIANCE_POWER = 1.4  # of y_c in v_c
_NOTHING = 1e-6  # a prompt with less than this share of the largest one's y says nothing
_EQUAL = 1e-9  # a standard error below this share of the distance between the bounds is rounding

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval; low and high are None where the data can't give one (fewer than two prompts)."""

    mean: float
    low: float | None = None
    high: float | None = None

    def widened(self, relative_error: float) -> Interval:
        """Of the quantity times an independent factor around 1 with this relative standard error."""
        if self.low is None or self.high is None:
            return self
        extra = 1.959963984540054 * relative_error * self.mean
        low, high = math.hypot(self.mean - self.low, extra), math.hypot(self.high - self.mean, extra)
        return Interval(self.mean, max(0.0, self.mean - low), self.mean + high)


def ratio_interval(x: ArrayLike, y: ArrayLike, low: float = 0.0, high: float = 1.0) -> Interval | None:
    """The interval of sum(x) / sum(y), float[C] over prompts, for a ratio within [low, high]; None if sum(y) is 0."""
    x, y = (np.asarray(values, np.float64)[:, None] for values in (x, y))
    return ratio_intervals(x, y, np.array([low], np.float64), np.array([high], np.float64))[0]


def ratio_intervals(x: Floats, y: Floats, low: Floats, high: Floats) -> list[Interval | None]:
    """The same for many ratios over the same prompts: x, y float[C, M]; low, high float[M]."""
    total = y.sum(axis=0)  # [M]
    speaks = y > _NOTHING * y.max(axis=0, initial=0.0)  # [C, M]
    clusters = speaks.sum(axis=0)
    several = clusters >= 2
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.clip(x.sum(axis=0) / total, low, high)
    half = np.zeros(len(total))
    if several.any():
        weights = np.where(speaks, y, 0.0)[:, several]
        residual = np.where(speaks[:, several], (x - mean * y)[:, several], 0.0) / total[several]
        half[several] = _half_width(residual, weights)
    lows, highs = _ends(mean, half, low, high, clusters)
    return [
        None if not total[i] > 0 else Interval(m, lo, hi) if several[i] else Interval(m)
        for i, (m, lo, hi) in enumerate(zip(mean.tolist(), lows.tolist(), highs.tolist(), strict=True))
    ]


def _half_width(residual: Floats, y: Floats) -> Floats:
    """float[M]: t times the standard error, from residuals and weights float[C, M].

    The degrees of freedom are tr(A)^2 / tr(A^2), A = B B', B = diag(sqrt(q)) (I - w 1') diag(sqrt(v)), where q is what
    squares are multiplied by; the traces are written out, so that no C x C matrix is built.
    """
    w = y / y.sum(axis=0)
    v = (y / y.max(axis=0)) ** _VARIANCE_POWER
    v_sum = v.sum(axis=0)
    shrunk = v * (1 - 2 * w) + w**2 * v_sum  # what a residual's variance v has become
    alone = (v > 0) & (shrunk <= 0)  # one cluster outweighs all others by more than a float can say
    q = np.divide(v, shrunk, out=np.zeros_like(v), where=(v > 0) & ~alone)
    trace = v_sum  # of A: q * shrunk summed
    a, b, c = ((q * term).sum(axis=0) for term in (w**2, v**2, w * v))
    square = (q**2 * (v**2 + 2 * v * (shrunk - v))).sum(axis=0)
    square += v_sum**2 * a**2 + 2 * a * b - 4 * v_sum * a * c + 2 * c**2
    freedom = np.maximum(1.0, np.divide(trace**2, square, out=np.ones_like(square), where=square > 0))
    half: Floats = t_quantile(freedom, LEVEL) * np.sqrt((q * residual**2).sum(axis=0))
    return np.where(alone.any(axis=0), np.inf, half)  # then nothing is known of a second one: as wide as can be


def _ends(mean: Floats, half: Floats, low: Floats, high: Floats, clusters: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Lower and upper ends, float[M] each, within the bounds."""
    below, above = mean - low, high - mean
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds = below / above
        factor = np.exp(half * (high - low) / (below * above))
        lows = low + (high - low) / (1 + factor / odds)
        highs = low + (high - low) / (1 + 1 / (factor * odds))
        unseen = 1 - 0.025 ** (1 / clusters)
    agree = ~(half > _EQUAL * (high - low)) | (below <= 0) | (above <= 0)
    return (
        np.where(agree, mean - unseen * below, lows),
        np.where(agree, mean + unseen * above, highs),
    )


def exactly(value: float) -> Interval:
    """A quantity that is known by definition."""
    return Interval(value, value, value)
