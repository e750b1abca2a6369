"""Turning speculation on step by step, per bucket, and taking it back: a pure state machine, its store, its gates.

Does not know: servers, engines, models.
"""

from draftproof.rollout.machine import Rollout
from draftproof.rollout.policy import BucketPolicy, RolloutPolicy
from draftproof.rollout.state import RolloutState
from draftproof.rollout.store import RolloutStore
from draftproof.rollout.traffic import Decision, Sample, Treatment

__all__ = [
    "BucketPolicy",
    "Decision",
    "Rollout",
    "RolloutPolicy",
    "RolloutState",
    "RolloutStore",
    "Sample",
    "Treatment",
]
