"""Intervals that hold at every look at once, so that a gate may be asked again after each request.

An estimate whose error sums up to S_n, with independent parts of variance v, behaves for large n like a Brownian motion
at time n*v. Mixing exp(x*S - x^2*n/2) over x ~ N(0, 1/rho) gives a martingale whose closed form, by Ville's inequality,
yields: with chance at least 1 - alpha, for all n at once, |S_n| / sqrt(n*v) <= `boundary`(n, alpha), which is
sqrt((1 + rho/n) * log((n + rho) / (rho * alpha^2))) (Robbins 1970; Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", 2021, eq. 14; with an estimated variance it holds asymptotically:
Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences",
2024). rho makes it tightest near the n at which gates begin to look; a look at one fixed n would need 1.96 instead of
about 3. What it really covers is in tests/rollout/test_interval.py.

Does not know: what is estimated.
"""

from __future__ import annotations

import math
from typing import Any

from draftproof.planner.interval import Interval


def boundary(num: float, alpha: float, tuned: float) -> float:
    """Standard errors to either side that cover for all num > 0 at once; `tuned` is where they are fewest."""
    doubt = -2 * math.log(alpha)
    rho = tuned / (doubt + math.log(1 + doubt))
    return math.sqrt((1 + rho / num) * (math.log((num + rho) / rho) + doubt))


def share_interval(count: int, num: int, alpha: float, tuned: float) -> Interval | None:
    """Of a share count / num of independent events: Wilson's interval at the boundary; None for num 0."""
    if num == 0:
        return None
    z2 = boundary(num, alpha, tuned) ** 2
    mean = count / num
    centre = (mean + z2 / (2 * num)) / (1 + z2 / num)
    half = math.sqrt(z2 * (mean * (1 - mean) + z2 / (4 * num)) / num) / (1 + z2 / num)
    return Interval(mean, max(0.0, centre - half), min(1.0, centre + half))


def as_json(interval: Interval | None) -> dict[str, float | None] | None:
    """{"mean", "low", "high"}, or None."""
    return None if interval is None else {"mean": interval.mean, "low": interval.low, "high": interval.high}


def rounded(evidence: dict[str, Any]) -> dict[str, Any]:
    """The same with numbers to six digits: more are noise that makes logs long."""
    return {name: _rounded(value) for name, value in evidence.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return rounded(value)
    return [_rounded(item) for item in value] if isinstance(value, list) else value
