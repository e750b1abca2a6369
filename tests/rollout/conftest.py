"""Builders for samples, and the simulated traffic of the benches."""

import sys
from pathlib import Path

import pytest

from draftproof.rollout import BucketPolicy, Rollout, RolloutPolicy, Sample

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def make_sample(bucket="b", mode="on", time=0.0, share=0.7, tested=20, itl=0.02, tokens=30, error=False):
    """A request of which `share` of `tested` draft tokens are accepted; plain ones draft nothing."""
    tested = 0 if mode == "off" else tested
    return Sample(bucket, mode, time, itl, 0.1, tokens, tested, tested, round(share * tested), error)


@pytest.fixture
def sample():
    return make_sample


class Drive:
    """A rollout with a clock and a counter of keys: `send` plays requests as they are assigned."""

    def __init__(self, **policy):
        buckets = policy.pop("buckets", {})
        others = {name: policy.pop(name) for name in ("salt", "max_buckets") if name in policy}
        self.rollout = Rollout(RolloutPolicy(BucketPolicy(**policy), buckets, **others))
        self.now, self.key, self.log = 1000.0, 0, []

    def send(self, num, bucket="b", share=0.7, on=0.6, every=1.0, error=None, spread=0.2):
        """`num` requests, one every so many seconds, a tick each. on: their ITL when speculating, plain is 1.

        error: mode -> whether they fail. spread: ITL and acceptance swing by so much from request to request.
        """
        for _ in range(num):
            self.now += every
            self.key += 1
            mode = self.rollout.assign(bucket, f"key {self.key}").mode
            swing = spread * (self.key * 0.754877666 % 1 - 0.5)  # evenly, and not in step with the key's hash
            one = make_sample(
                bucket,
                mode,
                self.now,
                min(1.0, max(0.0, share + swing)),
                itl=0.02 * (on if mode == "on" else 1.0) * (1 + swing),
                error=bool(error and error.get(mode)),
            )
            self.log += self.rollout.record(one)
            self.tick()
        return self

    def tick(self, seconds=0.0):
        self.now += seconds
        self.log += self.rollout.tick(self.now)
        return self

    def to_full(self, *buckets):
        for bucket in buckets:
            self.log += self.rollout.start(bucket, self.now)
            while self.bucket(bucket)["stage"] != "full":
                self.log += self.rollout.promote(bucket, self.now)
        return self

    def bucket(self, name="b"):
        return self.rollout.status()["buckets"][name]

    def actions(self, bucket="b"):
        return [decision.action for decision in self.log if decision.bucket == bucket]


@pytest.fixture
def drive():
    """drive(**fields of the policy) -> Drive."""
    return Drive
