"""A plan as one server's policy: which drafter, how many tokens at which load, and what each bucket would rather have.

A serving engine runs one drafter with one draft length for all requests, some with a length for each batch size. So
the policy holds, for every candidate, its lengths by load over all prompts together, and the best single length that
loses at no planned load. Nothing is enabled that the plan does not enable: a point counts only where the whole
interval of its speed-up lies above 1.

Does not know: engines, their names for things, files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import InputError
from draftproof.planner.plan import Band, Bucket, Curve, Plan, Point

HEADS = ("eagle", "medusa", "cascade")
_WITH_MODEL = ("model", *HEADS)
NGRAM_MAX, NGRAM_MIN = 3, 2  # the suffix lengths that draftproof's own ngram drafter was measured with


@dataclass(frozen=True, slots=True)
class Tier:
    """What a candidate does under one planned load."""

    concurrency: int  # sequences at once
    gamma: int  # 0: plain decoding
    speedup: float  # mean over plain decoding; 1 at gamma 0
    floor: float | None  # accepted / drafted at which the round costs as much as plain decoding; None at gamma 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One drafter for the whole server."""

    name: str
    kind: str
    model: str | None  # name or path of its own model or head
    by_load: tuple[Tier, ...]  # ascending loads
    fixed: tuple[Tier, ...] | None  # the same with one length at every load; None where each length loses somewhere
    is_shipped: bool = False  # a head that comes with draftproof


@dataclass(frozen=True, slots=True)
class Wish:
    """What the plan says for one bucket under one load; drafter None: do not enable."""

    concurrency: int
    drafter: str | None
    gamma: int


@dataclass(frozen=True, slots=True)
class BucketWishes:
    """The plan's decisions for one bucket, by ascending load."""

    name: str
    wishes: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """One plan, ready for an engine's module."""

    model: str
    rule: str | None
    temperature: float
    invariant: bool  # measured on a target whose logits do not depend on what else is in the step
    concurrency: tuple[int, ...]  # the planned loads, ascending
    one_load: bool  # asked for one load only: lengths then hold whatever the load
    candidates: tuple[Candidate, ...]
    buckets: tuple[BucketWishes, ...]  # the one of all prompts first

    def best(self, kinds: Collection[str], by_load: Collection[str]) -> Candidate | None:
        """The fastest candidate of these kinds (geometric mean over the loads); None where none is worth enabling.

        by_load: the kinds whose length the engine changes with the load.
        """
        gains = {}
        for candidate in self.candidates:
            tiers = tiers_of(candidate, by_load)
            if candidate.kind in kinds and any(tier.gamma for tier in tiers):
                gains[candidate] = math.fsum(math.log(tier.speedup) for tier in tiers)
        return max(gains, key=gains.__getitem__, default=None)


def tiers_of(candidate: Candidate, by_load: Collection[str]) -> tuple[Tier, ...]:
    """Its lengths, where the engine changes them with the load for these kinds; () where a fixed length can't do."""
    return candidate.by_load if candidate.kind in by_load else candidate.fixed or ()


def policy_of(plan: Plan, concurrency: int | None = None) -> Policy:
    """The policy of a plan, for all its loads or for one. Raises InputError for a load that was not planned."""
    if concurrency is not None and concurrency not in plan.concurrency:
        known = ", ".join(map(str, sorted(plan.concurrency)))
        raise InputError(f"load {concurrency} was not planned (planned: {known}): plan it with --concurrency")
    loads = tuple(sorted(plan.concurrency)) if concurrency is None else (concurrency,)
    overall = plan.bucket(plan.overall)
    candidates = tuple(
        Candidate(
            info.name,
            info.kind,
            _name(info.model, f"drafter {info.name}") if info.kind in _WITH_MODEL else None,
            _by_load(overall, info.name, loads),
            _fixed(overall, info.name, loads),
            info.kind in HEADS and (info.model or {}).get("path") is None,
        )
        for info in plan.drafters
    )
    return Policy(
        model=_name(plan.target, "target"),
        rule=plan.sampling.get("rule"),
        temperature=float(plan.sampling.get("temperature", 0.0)),
        invariant=plan.target.get("numerics") == "invariant",
        concurrency=loads,
        one_load=concurrency is not None,
        candidates=candidates,
        buckets=tuple(_wishes(bucket, loads) for bucket in plan.buckets),
    )


def _name(model: dict[str, Any] | None, whose: str) -> str:
    name = (model or {}).get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"the plan does not name the model of its {whose}: measure and plan again")
    return name


def _wishes(bucket: Bucket, loads: Sequence[int]) -> BucketWishes:
    bands = [bucket.band(load) for load in loads]
    wishes = [
        Wish(band.concurrency, band.drafter, band.point.gamma) if band.enable else Wish(band.concurrency, None, 0)
        for band in bands
    ]
    return BucketWishes(bucket.name, tuple(wishes))


def _is_worth(point: Point) -> bool:
    low = point.speedup.low
    return point.gamma > 0 and low is not None and low > 1


def _tier(load: int, point: Point) -> Tier:
    if point.gamma == 0:
        return Tier(load, 0, 1.0, None)
    per_round = point.tokens_per_round.mean / point.speedup.mean  # tokens a round needs to cost what plain costs
    floor = (per_round - 1) / point.drafted if point.drafted > 0 else None
    return Tier(load, point.gamma, point.speedup.mean, None if floor is None else min(1.0, max(0.0, floor)))


def _best_worth(band: Band, curve: Curve) -> Point:
    enabled = band.enable if curve.drafter == band.drafter else _is_worth(curve.best)
    return curve.best if enabled else curve.points[0]


def _by_load(bucket: Bucket, drafter: str, loads: Sequence[int]) -> tuple[Tier, ...]:
    return tuple(_tier(load, _best_worth(band, band.curve(drafter))) for load in loads for band in [bucket.band(load)])


def _fixed(bucket: Bucket, drafter: str, loads: Sequence[int]) -> tuple[Tier, ...] | None:
    """The length with the highest geometric mean of the speed-up among those worth enabling at every load."""
    curves = [bucket.band(load).curve(drafter) for load in loads]
    lengths = range(1, min(len(curve.points) for curve in curves))
    lines = [[curve.points[gamma] for curve in curves] for gamma in lengths]
    lines = [points for points in lines if all(map(_is_worth, points))]
    if not lines:
        return None
    best = max(lines, key=lambda points: math.fsum(math.log(point.speedup.mean) for point in points))
    return tuple(_tier(load, point) for load, point in zip(loads, best, strict=True))
