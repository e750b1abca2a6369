"""The rollout: who gets speculation, what was learnt from it, what follows. A pure state machine.

    treatment = rollout.assign(bucket, key)      # when a request comes; the same key, the same answer
    decisions = rollout.record(sample)           # when it is done
    decisions = rollout.tick(now)                # every few seconds

Invariant: no clock, no chance, no files: the same policy, state and calls give the same decisions. Times are seconds on
one clock that goes on over restarts (of the day, that is); one that is set back delays decisions and breaks nothing.
Not safe for several threads at once.

Does not know: servers, engines, where state is kept.
"""

from __future__ import annotations

import math
from typing import Any

from draftproof.errors import InputError
from draftproof.rollout import ladder
from draftproof.rollout.bucket import Bucket
from draftproof.rollout.changes import changes
from draftproof.rollout.codec import copied
from draftproof.rollout.policy import RolloutPolicy, check_name
from draftproof.rollout.state import RolloutState
from draftproof.rollout.status import bucket_status
from draftproof.rollout.traffic import EVERYWHERE, OTHER, STAGES, Decision, Sample, Stage, Treatment


class Rollout:
    """A rollout that begins, or goes on from a state."""

    def __init__(self, policy: RolloutPolicy, state: RolloutState | None = None) -> None:
        """With a state that was made under another policy, buckets go to the nearest step of this one (see `tick`)."""
        self.policy = policy
        self._state: RolloutState = copied(state or RolloutState())
        now = self._state.time or 0.0
        self._buckets = {
            name: Bucket(name, policy.of(name), now, bucket) for name, bucket in self._state.buckets.items()
        }
        self._pending = changes(self._state.policy, policy, self._buckets)  # by bucket, until the next call with a time
        self._owed: list[Decision] = []  # decisions of a call that was refused in the end: the next one returns them
        if not self._pending:
            self._state.policy = policy.to_json()

    @property
    def state(self) -> RolloutState:
        """As it is now: what follows does not change it."""
        value: RolloutState = copied(self._state)
        return value

    # ------------------------------------------------------------------ traffic

    def assign(self, bucket: str, key: str) -> Treatment:
        """What a request gets; changes nothing. Raises InputError for what can't be the name of a bucket."""
        check_name(bucket)
        name = self._resolve(bucket)
        known = self._buckets.get(name)
        if known is None:
            return self._unseen(name, key)
        if not self._is_live(known):
            return Treatment("off", "off", name)
        state, place = known.state, ladder.place_of(self.policy.salt, name, key)
        if place < state.share:
            return Treatment("on", state.stage, name)
        return Treatment("shadow" if place < known.shadow_share else "off", state.stage, name)

    def record(self, sample: Sample) -> list[Decision]:
        """What became of a request. May take speculation back at once, or raise an alarm."""
        name = self._resolve(sample.bucket)
        bucket = self._buckets.get(name)
        if bucket is None:
            check_name(name)
        now = self._open(sample.time)
        decisions: list[Decision] = []
        if bucket is None:
            bucket = self._put(Bucket(name, self.policy.of(name), now))
            decisions += bucket.begin(now) if self._is_live(bucket) else []
        totals = bucket.state.totals
        totals.requests[sample.mode] += 1
        totals.errors[sample.mode] += sample.error
        if self._is_live(bucket):
            decisions += bucket.record(sample, now)
        return self._all(decisions)

    def tick(self, now: float) -> list[Decision]:
        """What is due by now: steps up, probes; after a change of the policy, what that changed."""
        _check_time(now)
        if self._state.time is not None and now < self._state.time:
            for bucket in self._buckets.values():
                bucket.set_back(now)
        self._state.time = now
        self._open(now)
        live = [bucket for bucket in self._buckets.values() if self._is_live(bucket)]
        return self._all([decision for bucket in live for decision in bucket.tick(now)])

    # ------------------------------------------------------------------ administrators

    def promote(self, bucket: str, now: float, reason: str = "") -> list[Decision]:
        """One step up, whatever the gates say; watches go on. Raises InputError where that can't be."""
        now = self._open(now)
        known = self._buckets.get(bucket)
        if known is None:
            raise InputError(f"there is no bucket {bucket!r}; there are: {', '.join(self._buckets) or 'none yet'}")
        self._check_running()
        return self._all([known.promote(now, reason)])

    def stop(self, bucket: str | None, now: float, reason: str = "") -> list[Decision]:
        """The kill switch: one bucket, or with None all of them, until `start`."""
        now = self._open(now)
        if bucket is not None:
            named = self._named(bucket, now)
            decision = named.stop(now, reason)
            self._put(named)
            return self._all([decision])
        stages = {name: known.state.stage for name, known in self._buckets.items()}
        evidence: dict[str, Any] = {"was_stopped": self._state.stopped, "stages": stages}
        highest = self._highest()
        self._state.stopped = True
        words = reason or "all buckets stopped by an administrator"
        return self._all([Decision(now, EVERYWHERE, "stop", highest, "off", words, evidence)])

    def start(self, bucket: str | None, now: float, reason: str = "") -> list[Decision]:
        """A bucket that is off goes to shadow; None undoes stop(None). Raises InputError where nothing can start."""
        now = self._open(now)
        if bucket is not None:
            self._check_running()
            named = self._named(bucket, now)
            decision = named.start(now, reason)
            self._put(named)
            return self._all([decision])
        if not self._state.stopped:
            raise InputError("the buckets are not stopped as a whole: name one to start it")
        self._state.stopped = False
        live = [known for known in self._buckets.values() if self._is_live(known)]
        resumed = [decision for known in live for decision in known.resume(now, reason)]
        words = reason or "all buckets started by an administrator"
        return self._all([Decision(now, EVERYWHERE, "start", "off", self._highest(), words, {}), *resumed])

    def status(self) -> dict[str, Any]:
        """JSON-ready: the kill switch and each bucket's stage, share, evidence, gates and alarms."""
        state = self._state
        buckets = {
            name: bucket_status(bucket, state.time or 0.0, is_live=self._is_live(bucket))
            for name, bucket in self._buckets.items()
        }
        return {"time": state.time, "stopped": state.stopped, "buckets": buckets}

    # ------------------------------------------------------------------ inside

    def _is_live(self, bucket: Bucket) -> bool:
        return not (self._state.stopped or bucket.state.stopped) and bucket.policy.enabled

    def _resolve(self, name: str) -> str:
        """The bucket that requests of this name count in."""
        if name in self._buckets or name in self.policy.buckets:
            return name
        return name if self._num_free() > 0 else OTHER

    def _num_free(self) -> int:
        counted = [name for name in self._buckets if name != OTHER and name not in self.policy.buckets]
        return self.policy.max_buckets - len(counted)

    def _unseen(self, name: str, key: str) -> Treatment:
        """What a new bucket will do as soon as it has a sample."""
        policy = self.policy.of(name)
        if self._state.stopped or not (policy.enabled and policy.auto_start):
            return Treatment("off", "off", name)
        is_shadow = ladder.place_of(self.policy.salt, name, key) < policy.shadow_share
        return Treatment("shadow" if is_shadow else "off", "shadow", name)

    def _put(self, bucket: Bucket) -> Bucket:
        self._buckets[bucket.name] = bucket
        self._state.buckets[bucket.name] = bucket.state
        return bucket

    def _named(self, name: str, now: float) -> Bucket:
        """For administrators, who may speak of a bucket before its first request; not yet `_put`."""
        check_name(name)
        if self._resolve(name) != name:
            raise InputError(f"there is no bucket {name!r}, and no room for another (max_buckets)")
        return self._buckets.get(name) or Bucket(name, self.policy.of(name), now)

    def _check_running(self) -> None:
        if self._state.stopped:
            raise InputError("all buckets are stopped: start them first, without naming one")

    def _highest(self) -> Stage:
        places = [STAGES.index(bucket.state.stage) for bucket in self._buckets.values() if self._is_live(bucket)]
        return STAGES[max(places, default=0)]

    def _open(self, now: float) -> float:
        """The time of a call, which may lie a moment before the last one's; a changed policy is adopted first."""
        _check_time(now)
        now = now if self._state.time is None else max(now, self._state.time)
        self._state.time = now
        if self._pending:
            pending, self._pending = self._pending, {}
            self._state.policy = self.policy.to_json()
            for name, changed in pending.items():
                self._owed += self._adopt(name, now, changed)
        return now

    def _adopt(self, name: str, now: float, changed: dict[str, Any]) -> list[Decision]:
        if name != EVERYWHERE:
            return self._buckets[name].adopt(now, changed)
        return [Decision(now, name, "policy", "off", "off", "the policy was changed", {"changed": changed})]

    def _all(self, decisions: list[Decision]) -> list[Decision]:
        owed, self._owed = self._owed, []
        return [*owed, *decisions]


def _check_time(now: float) -> None:
    if not math.isfinite(now):
        raise ValueError(f"no time: {now}")
