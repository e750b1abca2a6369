"""What a stage must show before the next one: each gate with the number, its interval and the threshold.

A gate is passed when the whole interval lies on the good side. Between "passed" and an alarm of a watch lies "not known
yet": the bucket stays where it is.

Invariant: gates read evidence, never change it. Does not know: stages' order, what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftproof.planner.interval import Interval
from draftproof.rollout.interval import as_json, share_interval
from draftproof.rollout.limits import Limits
from draftproof.rollout.state import BucketState, Evidence


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition. value: a number, or an interval; needs: in words."""

    name: str
    passed: bool
    value: Any
    needs: str
    threshold: float

    def to_json(self) -> dict[str, Any]:
        """For the log and the status."""
        return {name: getattr(self, name) for name in self.__slots__}


def gates(bucket: BucketState, now: float, limits: Limits) -> list[Gate]:
    """Of a bucket in stage shadow, canary or wide; none in the others."""
    if bucket.stage not in ("shadow", "canary", "wide"):
        return []
    policy, evidence = limits.policy, bucket.evidence
    acceptance = evidence.drafts.interval(limits.alpha, limits.tuned)
    found = [
        _at_least("seconds in the stage", now - bucket.since, policy.min_seconds),
        _at_least("requests that tested drafts", evidence.drafts.requests, policy.min_requests),
        _above("acceptance", acceptance, policy.floor),
        _below("error rate", _error_rate(evidence, limits), policy.max_error_rate),
    ]
    if bucket.stage != "shadow":
        ratio = evidence.comparison.ratio(limits.alpha)
        found.insert(2, _at_least("plain requests", evidence.requests_off, policy.min_requests))
        found.append(_below("ITL ratio, speculating to plain", ratio, policy.max_itl_ratio))
    return found


def probe_verdict(bucket: BucketState, limits: Limits) -> bool | None:
    """Whether a bucket that is probed has recovered; None: not known yet."""
    drafts = bucket.evidence.drafts
    acceptance = drafts.interval(limits.alpha, limits.tuned)
    needed = limits.policy.floor + limits.policy.hysteresis
    if acceptance is not None and acceptance.low is not None and acceptance.low > needed:
        return True
    below = acceptance is not None and acceptance.high is not None and acceptance.high < needed
    return False if below or drafts.requests >= limits.policy.probe_requests else None


def _error_rate(evidence: Evidence, limits: Limits) -> Interval | None:
    return share_interval(evidence.failed_on, evidence.requests_on, limits.alpha, limits.tuned)


def _at_least(name: str, value: float, least: float) -> Gate:
    return Gate(name, value >= least, value, "at least", least)


def _above(name: str, interval: Interval | None, least: float) -> Gate:
    passed = interval is not None and interval.low is not None and interval.low > least
    return Gate(name, passed, as_json(interval), "interval above", least)


def _below(name: str, interval: Interval | None, most: float) -> Gate:
    passed = interval is not None and interval.high is not None and interval.high < most
    return Gate(name, passed, as_json(interval), "interval below", most)
