"""One bucket under one load: every drafter's curve, the fastest candidate, the decision, what it brings.

Invariant: plain decoding is a candidate; nothing is enabled whose interval reaches down to a loss, or that has none.

Does not know: which buckets and loads there are, files, printing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.planner.acceptance import GammaEstimate
from draftproof.planner.interval import Interval, exactly
from draftproof.planner.plan import Band, BreakEven, Curve, Gain, Point, Sensitivity
from draftproof.planner.price import alpha_of, price_per_million
from draftproof.planner.rates import Drafting, Load, RoundCost, round_cost, speedup_intervals

_LOWER, _HIGHER = 0.9, 1.1  # acceptances of the sensitivity


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One drafter's figures in one bucket."""

    drafting: Drafting
    expected: Sequence[GammaEstimate]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What speed is worth: mean output tokens of a request, and the price of an hour."""

    completion_tokens: float
    price_per_hour: float | None


def make_band(candidates: Sequence[Candidate], load: Load, traffic: Traffic) -> Band:
    """The band of one load."""
    plain = load.step(1).ms
    made = [_curve(candidate, load) for candidate in candidates]
    curves = [curve for curve, _ in made]
    winner = max(range(len(curves)), key=lambda i: (curves[i].best.speedup.mean, -curves[i].best_gamma, -i))
    drafter, point = curves[winner].drafter, curves[winner].best
    longest = candidates[0].drafting.gamma_max
    enable, reason = _decide(drafter, point, curves)
    sensitivity = None
    if point.gamma:
        cost = made[winner][1][point.gamma]
        sensitivity = _sensitivity(candidates[winner].drafting, point.gamma, cost, plain)
    return Band(
        concurrency=load.sequences,
        plain_itl_ms=plain,
        verify_slope=(load.step(1 + longest).ms / plain - 1) / longest if longest else 0.0,
        curves=tuple(curves),
        drafter=drafter if point.gamma else None,
        point=point,
        enable=enable,
        reason=reason,
        sensitivity=sensitivity,
        gain=_gain(point, 1000 * load.sequences / plain, traffic),
    )


def break_even(candidates: Sequence[Candidate], curve_loads: Sequence[int], at: Load) -> BreakEven:
    """Up to which load some drafter with gamma >= 1 is not slower than plain, between the measured loads."""

    def gain(sequences: int) -> float:
        load = Load(at.curve, sequences, at.context)
        plain = load.step(1).ms
        return max(
            (
                plain * float(candidate.drafting.tokens[gamma]) / round_cost(candidate.drafting, load, gamma).ms
                for candidate in candidates
                for gamma in range(1, candidate.drafting.gamma_max + 1)
            ),
            default=0.0,
        )

    if not curve_loads:
        return BreakEven("unknown", None)
    winning = [load for load in curve_loads if gain(load) >= 1]
    if not winning:
        return BreakEven("never", None)
    low = winning[-1]
    if low == curve_loads[-1]:
        return BreakEven("beyond", low)
    high = curve_loads[list(curve_loads).index(low) + 1]
    while high - low > 1:  # gains at `low`, loses at `high`
        middle = (low + high) // 2
        low, high = (middle, high) if gain(middle) >= 1 else (low, middle)
    return BreakEven("at", low)


def _curve(candidate: Candidate, load: Load) -> tuple[Curve, list[RoundCost]]:
    drafting, longest = candidate.drafting, candidate.drafting.gamma_max
    costs = [round_cost(drafting, load, gamma) for gamma in range(longest + 1)]
    gains = speedup_intervals(drafting, load, costs)
    points = tuple(
        _point(estimate, cost, gain, load.sequences)
        for estimate, cost, gain in zip(candidate.expected, costs, gains, strict=True)
    )
    order = sorted(range(longest + 1), key=lambda gamma: (-points[gamma].speedup.mean, gamma))
    drafting_first = next((gamma for gamma in order if gamma), None)
    alpha = None
    if drafting_first is not None:
        alpha = alpha_of(points[drafting_first].tokens_per_round.mean, drafting_first)
    t_draft = load.draft(drafting.label, longest).ms / longest if longest else 0.0
    return Curve(drafting.label, points, order[0], t_draft, alpha), costs


def _point(estimate: GammaEstimate, cost: RoundCost, gain: Interval, sequences: int) -> Point:
    itl = cost.ms / estimate.tokens_per_round.mean
    return Point(
        gamma=estimate.gamma,
        tokens_per_round=estimate.tokens_per_round,
        acceptance=estimate.acceptance,
        drafted=estimate.drafted,
        draft_ms=cost.draft.ms,
        verify_ms=cost.verify.ms,
        itl_ms=itl,
        speedup=gain if estimate.gamma else exactly(1.0),
        tokens_per_second=1000 * sequences / itl,
        extrapolated=cost.extrapolated,
    )


def _decide(drafter: str, point: Point, curves: Sequence[Curve]) -> tuple[bool, str]:
    """Whether to enable the fastest candidate, and why."""
    gain = point.speedup
    if point.gamma == 0:
        tried = [(p.speedup.mean, curve.drafter, p.gamma) for curve in curves for p in curve.points if p.gamma]
        if not tried:
            return False, "no draft length above 0 was measured"
        best, name, gamma = max(tried, key=lambda one: one[0])
        return False, f"nothing is faster than plain decoding: {name} at gamma {gamma} comes nearest with {best:.2f}x"
    if gain.low is None or gain.high is None:
        return False, f"{gain.mean:.2f}x, but one prompt gives no interval: measure more prompts"
    span = f"{gain.low:.3f} to {gain.high:.3f}"
    if gain.low <= 1:
        return False, f"{gain.mean:.2f}x, but the interval {span} includes a loss: measure more prompts"
    beyond = "; its cost lies beyond what was measured" if point.extrapolated else ""
    return True, f"{drafter} at gamma {point.gamma} is faster in the whole interval, {span}{beyond}"


def _sensitivity(drafting: Drafting, gamma: int, cost: RoundCost, plain: float) -> Sensitivity:
    tokens = float(drafting.tokens[gamma])
    return Sensitivity(
        acceptance_down=plain * drafting.tokens_if(gamma, _LOWER) / cost.ms,
        acceptance_up=plain * drafting.tokens_if(gamma, _HIGHER) / cost.ms,
        draft_cost_half=plain * tokens / (cost.verify.ms + cost.draft.ms / 2),
        draft_cost_double=plain * tokens / (cost.verify.ms + cost.draft.ms * 2),
    )


def _gain(point: Point, plain_rate: float, traffic: Traffic) -> Gain:
    rate, price = point.tokens_per_second, traffic.price_per_hour
    requests = [speed / traffic.completion_tokens for speed in (plain_rate, rate)]
    return Gain(
        tokens_per_second_plain=plain_rate,
        tokens_per_second=rate,
        requests_per_second_plain=requests[0],
        requests_per_second=requests[1],
        requests_per_second_gained=requests[1] - requests[0],
        price_per_million_plain=None if price is None else price_per_million(price, plain_rate),
        price_per_million=None if price is None else price_per_million(price, rate),
        saved_per_hour=None if price is None else price * (1 - plain_rate / rate),
    )
