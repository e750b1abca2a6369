"""Tails of the chi-square law, central and not, and the power of a test on cells that follows from them.

Statement (`smallest_tv`). n independent draws with cell probabilities p are tested by Pearson's chi-square. Let the
true cell probabilities be r, with total variation d = sum |r - p| / 2. The non-centrality is n * sum (r - p)^2 / p, and
by Cauchy and Schwarz (sum |r - p|)^2 <= sum (r - p)^2 / p * sum p, so it is at least 4 n d^2, whatever the direction of
the error. The smallest d that is found with a given chance is therefore at most sqrt(L / (4 n)), L being the
non-centrality at which the test has that power. Two samples of n each: 2 n d^2, by the same step with p + r in the
place of p.

Tails are those of the limiting laws: right to a few per cent of themselves where every cell expects ten or more.

Does not know: what the cells are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TERMS = 10_000
_CLOSE = 1e-14


def chi2_tail(value: float, freedom: int) -> float:
    """P(X >= value) of a chi-square variable. Source: Press et al., Numerical Recipes, section 6.2."""
    if value <= 0:
        return 1.0
    if math.isinf(value):
        return 0.0
    a, x = freedom / 2, value / 2
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - _series(a, x) * scale if x < a + 1 else _fraction(a, x) * scale


def _series(a: float, x: float) -> float:
    """Lower incomplete gamma without its scale."""
    term = total = 1 / a
    for index in range(1, _TERMS):
        term *= x / (a + index)
        total += term
        if term < total * _CLOSE:
            break
    return total


def _fraction(a: float, x: float) -> float:
    """Upper incomplete gamma without its scale: Lentz's continued fraction."""
    b = x + 1 - a
    c, d = 1e300, 1 / b
    result = d
    for index in range(1, _TERMS):
        factor = -index * (index - a)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        result *= d * c
        if abs(d * c - 1) < _CLOSE:
            break
    return result


def chi2_quantile(tail: float, freedom: int) -> float:
    """The value with P(X >= value) = tail, 0 < tail < 1."""
    return _root(lambda value: chi2_tail(value, freedom) < tail)


def noncentral_tail(value: float, freedom: int, noncentrality: float) -> float:
    """P(X >= value): a Poisson mixture of central laws, each with two more degrees of freedom than the one before."""
    mean, x = noncentrality / 2, value / 2
    if not mean:
        return chi2_tail(value, freedom)
    last = int(mean + 12 * math.sqrt(mean) + 24)
    tail, total = chi2_tail(value, freedom), 0.0
    for k in range(last):
        total += math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) * tail
        a = freedom / 2 + k
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    return min(1.0, total)


@lru_cache(maxsize=1024)
def needed_noncentrality(alpha: float, freedom: int, power: float = 0.99) -> float:
    """The non-centrality at which a test of false-alarm rate alpha has this power."""
    critical = chi2_quantile(alpha, freedom)
    return _root(lambda value: noncentral_tail(critical, freedom, value) > power)


def smallest_tv(count: int, alpha: float, freedom: int, *, samples: int = 1) -> float:
    """The smallest total variation between cell laws that is found with 99 %; samples: 1, or 2 of `count` each."""
    if count < 1 or freedom < 1:
        return 1.0
    return min(1.0, math.sqrt(needed_noncentrality(alpha, freedom) / (4 * count / samples)))


def _root(above: Callable[[float], bool]) -> float:
    """The smallest positive number at which the monotone predicate `above` holds."""
    low, high = 0.0, 1.0
    while not above(high):
        low, high = high, 2 * high
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high
