"""The steps of a bucket in their order, each a stage with the share of request keys that speculates.

Invariant: shares ascend, so a key that speculates goes on when the share widens. Does not know: why a step is taken.
"""

from __future__ import annotations

import hashlib

from draftproof.rollout.policy import BucketPolicy
from draftproof.rollout.traffic import Stage

Step = tuple[Stage, float]
OFF: Step = ("off", 0.0)
SHADOW: Step = ("shadow", 0.0)


def steps(policy: BucketPolicy) -> tuple[Step, ...]:
    """off, shadow, canary, wide (any number of times), full."""
    wide: list[Step] = [("wide", share) for share in policy.wide_shares]
    return (OFF, SHADOW, ("canary", policy.canary_share), *wide, ("full", 1 - policy.holdout))


def following(step: Step, policy: BucketPolicy) -> Step | None:
    """The next step; None after the last."""
    ladder = steps(policy)
    place = ladder.index(step)
    return ladder[place + 1] if place + 1 < len(ladder) else None


def canary(policy: BucketPolicy) -> Step:
    """The first step that speculates."""
    return steps(policy)[2]


def nearest(stage: Stage, share: float, policy: BucketPolicy) -> Step:
    """The highest step of this policy that is no higher than one of another: for a policy that changed."""
    if stage == "full":
        return steps(policy)[-1]
    if stage in ("off", "shadow"):
        return (stage, 0.0)
    wide = [step for step in steps(policy) if step[0] == "wide" and step[1] <= share]
    return wide[-1] if stage == "wide" and wide else canary(policy)


def place_of(salt: str, bucket: str, key: str) -> float:
    """Where a key lies in [0, 1), evenly and for good; independent between buckets."""
    text = f"{len(salt)}:{salt}{len(bucket)}:{bucket}{key}".encode("utf-8", "surrogatepass")
    return (int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 11) / 2**53
