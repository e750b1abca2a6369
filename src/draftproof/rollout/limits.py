"""A bucket's policy in the numbers that watches and gates use, and what an alarm says.

Invariant: derived from the policy alone. Does not know: traffic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from draftproof.rollout.compare import FEWEST
from draftproof.rollout.policy import BucketPolicy

WatchName = Literal["floor", "errors", "odds", "price", "fell", "rose"]
WATCHES: tuple[WatchName, ...] = ("floor", "errors", "odds", "price", "fell", "rose")


class Limits:
    """What follows from a policy."""

    def __init__(self, policy: BucketPolicy) -> None:
        self.policy = policy
        self.cap = float(policy.full_weight_tokens)
        self.alpha = 1 - policy.confidence  # chance that an interval ever misses
        self.tuned = float(policy.min_requests)  # where intervals are at their best
        self.threshold = len(WATCHES) / policy.false_alarm_rate  # wealth that is an alarm
        self.log_cap = math.log(self.threshold) / FEWEST  # most that one block adds to the wealth's logarithm
        missed = (
            policy.baseline_requests / self.threshold
        )  # chance that the baseline's interval may miss with, each side
        self.baseline_errors = -NormalDist().inv_cdf(min(0.5, missed))  # its half width in standard errors


@dataclass(frozen=True, slots=True)
class Finding:
    """An alarm: which watch, in words, and the numbers behind it."""

    watch: WatchName
    reason: str
    evidence: dict[str, Any]
