"""A bucket as people and the page see it: JSON-ready, nothing in it is used for decisions.

Does not know: how decisions are made.
"""

from __future__ import annotations

import math
from typing import Any

from draftproof.rollout.bucket import Bucket
from draftproof.rollout.gates import gates
from draftproof.rollout.interval import as_json, rounded
from draftproof.rollout.state import BucketState


def bucket_status(bucket: Bucket, now: float, *, is_live: bool) -> dict[str, Any]:
    """is_live: neither stopped (alone or with all) nor disabled; where False, the stage is the one to come back to."""
    state, limits = bucket.state, bucket.limits
    recent = state.recent.old.plus(state.recent.new)
    comparison = state.evidence.comparison
    if state.before is not None:
        comparison = state.before.comparison.plus(comparison)
    value = {
        "stage": state.stage,
        "share": state.share if is_live else 0.0,
        "live": is_live,
        "stopped": state.stopped,
        "enabled": bucket.policy.enabled,
        "since": state.since,
        "probing": state.probing,
        "probe_at": state.probe_at,
        "setbacks": state.setbacks,
        "requests": dict(state.totals.requests),
        "errors": dict(state.totals.errors),
        "acceptance": as_json(recent.interval(limits.alpha, limits.tuned)),
        "accepted": recent.accepted,
        "tested": recent.tested,
        "itl_ratio": as_json(comparison.ratio(limits.alpha)),
        "itl_on_s": comparison.on / comparison.weight if comparison.weight else None,
        "itl_off_s": comparison.off / comparison.weight if comparison.weight else None,
        "compared": {"on": comparison.requests_on, "off": comparison.requests_off, "blocks": comparison.blocks},
        "floor": bucket.policy.floor,
        "gates": [gate.to_json() for gate in gates(state, now, limits)],
        "watches": _watches(state, limits.threshold),
        "alarms": state.totals.alarms,
        "last_alarm": state.totals.last_alarm,
    }
    exact = {name: value[name] for name in ("since", "probe_at", "last_alarm")}  # seconds of the day need more digits
    return {**rounded(value), **exact}


def _watches(state: BucketState, threshold: float) -> dict[str, float]:
    """How far each watch is from an alarm: 0 nothing, 1 an alarm (logarithm of the wealth, as a share)."""
    watch = state.watch
    bets = {"floor": watch.floor.bets, "errors": watch.errors.bets, "odds": watch.odds.bets, "price": watch.price.bets}
    for name, drift in (("fell", watch.drift.fell), ("rose", watch.drift.rose)):
        if drift is not None:
            bets[name] = drift.bets
    whole = math.log(threshold)
    return {name: max(0.0, math.log(bet.evidence) / whole) for name, bet in bets.items()}
