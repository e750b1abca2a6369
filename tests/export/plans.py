"""Plans made of textbook numbers, for the tests of `export` and of the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from draftproof.planner import price
from draftproof.planner.acceptance import GammaEstimate
from draftproof.planner.interval import Interval
from draftproof.planner.memory import MemoryRow
from draftproof.planner.plan import (
    FORMAT,
    Band,
    BreakEven,
    Bucket,
    Curve,
    DrafterInfo,
    Estimates,
    Gain,
    Plan,
    Point,
    Sensitivity,
)

LOADS = (1, 8, 64)
SLOPES = {1: 0.02, 8: 0.1, 64: 0.6}  # of the target's step for each draft row, by load
T_TARGET = 100.0


@dataclass(frozen=True)
class Drafter:
    """A candidate with constant acceptance; alphas by bucket, and how surely they are known."""

    name: str
    kind: str
    t_draft: float
    alphas: dict[str, float]
    model: str | None = None
    doubt: float = 0.05  # half the relative width of the speed-up's interval
    share: float = 1.0  # of the drafts asked for that are made, and paid for


SUFFIX = Drafter("suffix", "suffix", 0.5, {"all": 0.5, "edit": 0.9, "chat": 0.02})
NGRAM = Drafter("ngram", "ngram", 0.2, {"all": 0.4, "edit": 0.8, "chat": 0.01})
MODEL = Drafter("small", "model", 8.0, {"all": 0.7, "edit": 0.75, "chat": 0.65}, "org/small-model")
EAGLE = Drafter("head", "eagle", 3.0, {"all": 0.7, "edit": 0.75, "chat": 0.65}, "my heads/eagle")
MEDUSA = replace(EAGLE, kind="medusa", model="/h/medusa")
CASCADE = replace(EAGLE, kind="cascade", name="both")
EARLY = Drafter("early", "early_exit", 8.0, {"all": 0.9, "edit": 0.9, "chat": 0.9})


def make_plan(*drafters: Drafter, loads: tuple[int, ...] = LOADS, gamma_max: int = 8, **changes: Any) -> Plan:
    """The plan of these candidates over buckets all, edit and chat."""
    buckets = list(drafters[0].alphas)
    plan = Plan(
        format=FORMAT,
        target=_model("org/target-model"),
        drafters=tuple(DrafterInfo(d.name, d.kind, _model(d.model) if d.model else None) for d in drafters),
        sampling={"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "rule": "coupled", "seed": 7},
        gamma_max=gamma_max,
        concurrency=loads,
        cost_kind="measured",
        price_per_hour=2.5,
        memory_limit=80 << 30,
        overall=buckets[0],
        buckets=tuple(_bucket(name, drafters, loads, gamma_max) for name in buckets),
        memory=tuple(
            _memory(name, weights, load) for name in (None, "small") for weights in ("fp16", "int4") for load in loads
        ),
        notes=("2 of 40 lines were skipped",),
    )
    return replace(plan, **changes)


def renamed(plan: Plan, names: dict[str, str]) -> Plan:
    """The same plan with buckets and drafters of other names."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(inner) for inner in value]
        return names.get(value, value) if isinstance(value, str) else value

    return Plan.from_json(walk(plan.to_json()))


def _model(name: str | None) -> dict[str, Any]:
    numbers = {"parameters": 134_515_008, "num_layers": 30, "path": name}
    return {"name": name, "weights": "int8", "backend": "openvino", "numerics": "invariant", **numbers}


def _bucket(name: str, drafters: tuple[Drafter, ...], loads: tuple[int, ...], gamma_max: int) -> Bucket:
    return Bucket(
        name=name,
        prompts=12,
        tokens=1536,
        context=200.0,
        completion_tokens=128.0,
        estimates=tuple(_estimates(drafter, name, gamma_max) for drafter in drafters),
        bands=tuple(_band(name, drafters, load, gamma_max) for load in loads),
        break_even=BreakEven("at", 21),
    )


def _around(mean: float, doubt: float) -> Interval:
    return Interval(mean, mean * (1 - doubt), mean * (1 + doubt))


def _curve(drafter: Drafter, bucket: str, load: int, gamma_max: int) -> Curve:
    alpha, slope = drafter.alphas[bucket], SLOPES[load]
    costs = price.round_costs(T_TARGET, drafter.t_draft * drafter.share, slope * drafter.share, gamma_max)
    points = []
    for gamma, gain in enumerate(price.speedups(alpha, costs)):
        tokens = price.tokens_per_round(alpha, gamma)
        points.append(
            Point(
                gamma=gamma,
                tokens_per_round=_around(tokens, drafter.doubt if gamma else 0.0),
                acceptance=Interval(alpha, alpha * 0.9, min(1.0, alpha * 1.1)) if gamma else None,
                drafted=gamma * drafter.share,
                draft_ms=gamma * drafter.share * drafter.t_draft,
                verify_ms=price.verify_ms(T_TARGET, gamma, slope * drafter.share),
                itl_ms=costs[gamma] / tokens,
                speedup=_around(gain, drafter.doubt) if gamma else Interval(1.0, 1.0, 1.0),
                tokens_per_second=1000 * load * tokens / costs[gamma],
                extrapolated=False,
            )
        )
    return Curve(drafter.name, tuple(points), price.best_gamma(alpha, costs), drafter.t_draft, alpha)


def _band(bucket: str, drafters: tuple[Drafter, ...], load: int, gamma_max: int) -> Band:
    curves = tuple(_curve(drafter, bucket, load, gamma_max) for drafter in drafters)
    best = max(curves, key=lambda curve: curve.best.speedup.mean)
    low = best.best.speedup.low
    is_plain = best.best_gamma == 0
    enable = not is_plain and low is not None and low > 1
    plain = 1000 * load / T_TARGET
    return Band(
        concurrency=load,
        plain_itl_ms=T_TARGET,
        verify_slope=SLOPES[load],
        curves=curves,
        drafter=None if is_plain else best.drafter,
        point=best.best,
        enable=enable,
        reason="the interval lies above 1" if enable else "the interval includes a loss",
        sensitivity=None if is_plain else Sensitivity(0.9, 1.1, 1.2, 0.8),
        gain=Gain(plain, best.best.tokens_per_second, 0.1, 0.2, 0.1, 69.4, 40.1, 1.05),
    )


def _estimates(drafter: Drafter, bucket: str, gamma_max: int) -> Estimates:
    alpha = drafter.alphas[bucket]
    rows = tuple(
        GammaEstimate(
            gamma=gamma,
            tokens_per_round=_around(price.tokens_per_round(alpha, gamma), drafter.doubt if gamma else 0.0),
            acceptance=Interval(alpha, alpha * 0.9, min(1.0, alpha * 1.1)) if gamma else None,
            by_position=tuple(Interval(alpha, alpha * 0.9, min(1.0, alpha * 1.1)) for _ in range(gamma)),
            rounds=100.0,
            tokens=1524,
            prompts=12,
            drafted=float(gamma),
            drafted_histogram=(*[0.0] * gamma, 1.0),
        )
        for gamma in range(gamma_max + 1)
    )
    return Estimates(drafter.name, rows, ())


def _memory(drafter: str | None, weights: str, load: int) -> MemoryRow:
    target = (14 << 30) if weights == "fp16" else (4 << 30)
    own = 0 if drafter is None else target // 10
    cache = load << 27
    total = target + own + 2 * cache
    return MemoryRow(
        drafter, weights, load, 2048, target, cache, own, cache if drafter else 0, total, total <= 80 << 30
    )
