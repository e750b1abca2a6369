"""One bucket on its way up the ladder, and back: what each sample, tick and administrator's call changes.

Up: when every gate of the stage is passed, at a tick. Down: at once, to off, when a watch finds that acceptance is
below the floor, that too many requests fail, or that speculation costs time. From off the bucket comes back by
probing: after a wait, some requests are shadowed (which costs the target nothing); if their acceptance is above floor
+ hysteresis the bucket re-enters at the canary stage, else it waits again. Every setback makes the wait longer; a
bucket that holds out in stage full for its last wait begins anew. So it can't flap: k returns need waits that grow
geometrically, up to a limit.

Invariant: a bucket that is disabled or stopped is in stage off. Each change of stage is one Decision with its numbers.
Does not know: other buckets, the global kill switch, keys, files.
"""

from __future__ import annotations

from typing import Any

from draftproof.errors import InputError
from draftproof.rollout import ladder
from draftproof.rollout.compare import FEWEST
from draftproof.rollout.gates import Gate, gates, probe_verdict
from draftproof.rollout.interval import rounded
from draftproof.rollout.ladder import Step
from draftproof.rollout.limits import Finding, Limits
from draftproof.rollout.policy import BucketPolicy
from draftproof.rollout.state import BucketState, Evidence
from draftproof.rollout.traffic import Decision, Sample
from draftproof.rollout.watch import Watch

_COMPARING = ("canary", "wide", "full")


class Bucket:
    """A bucket's state under its policy."""

    def __init__(self, name: str, policy: BucketPolicy, now: float, state: BucketState | None = None) -> None:
        self.name = name
        self.policy = policy
        self.limits = Limits(policy)
        self.state = state or BucketState("off", 0.0, now, Evidence(now), Watch.new(self.limits))

    @property
    def step(self) -> Step:
        """Where it is on the ladder."""
        return self.state.stage, self.state.share

    @property
    def shadow_share(self) -> float:
        """The share of keys that is shadowed now."""
        if self.state.stage == "shadow":
            return self.policy.shadow_share
        return self.policy.probe_share if self.state.probing else 0.0

    def begin(self, now: float) -> list[Decision]:
        """When it is seen for the first time, and neither stopped nor disabled."""
        if not (self.policy.enabled and self.policy.auto_start):
            return []
        return [self._enter(ladder.SHADOW, now, "start", "new, and the policy starts buckets by itself", {})]

    # ------------------------------------------------------------------ traffic

    def record(self, sample: Sample, now: float) -> list[Decision]:
        """A sample of this bucket, while it is neither stopped nor disabled."""
        state, mode = self.state, sample.mode
        treated = mode == "on" if state.stage in _COMPARING else mode == "shadow" and self.shadow_share > 0
        found: Finding | None = None
        if treated:
            self._count(sample)
            if state.stage != "off":  # a probe has an end and a verdict of its own
                found = state.watch.treated(sample, self.limits)
        elif mode == "off":
            state.evidence.requests_off += 1
            state.evidence.failed_off += sample.error
        if state.stage in _COMPARING and (treated or mode == "off"):
            found = state.watch.compared(sample, self.limits, state.evidence.comparison) or found
        return [] if found is None else [self._act(found, now)]

    def _count(self, sample: Sample) -> None:
        evidence, tested = self.state.evidence, sample.tested
        evidence.requests_on += 1
        evidence.failed_on += sample.error
        if tested:
            weight = min(float(tested), self.limits.cap)
            evidence.drafts.add(sample.accepted, tested, weight)
            self.state.recent.add(sample.accepted, tested, weight)

    def _act(self, found: Finding, now: float) -> Decision:
        if found.watch in ("fell", "rose"):
            return self._alarm(found, now)
        state = self.state
        state.setbacks += 1
        evidence = {**found.evidence, "watch": found.watch, **self._plan_probe(now)}
        return self._enter(ladder.OFF, now, "off", found.reason, evidence)

    def _alarm(self, found: Finding, now: float) -> Decision:
        """Nothing is switched, but what was learnt before the change does not count any more."""
        state = self.state
        state.totals.alarms += 1
        state.totals.last_alarm = now
        state.watch.drift = type(state.watch.drift)()
        state.evidence, state.before = Evidence(now), None
        evidence = {**found.evidence, "watch": found.watch}
        return self._decision(now, "alarm", self.step, found.reason, evidence)

    def _plan_probe(self, now: float) -> dict[str, Any]:
        """When the next probe begins, after `setbacks` of them."""
        wait = self.wait
        self.state.probe_at = now + wait
        return {"setbacks": self.state.setbacks, "wait_seconds": wait}

    @property
    def wait(self) -> float:
        """Seconds after the last setback; 0 without one."""
        if not self.state.setbacks:
            return 0.0
        policy = self.policy
        doublings = min(self.state.setbacks - 1, 1000)
        try:
            wait = policy.backoff_seconds * policy.backoff_factor**doublings
        except OverflowError:
            return policy.max_backoff_seconds
        return min(wait, policy.max_backoff_seconds)

    # ------------------------------------------------------------------ time

    def tick(self, now: float) -> list[Decision]:
        """What is due, while the bucket is neither stopped nor disabled."""
        state = self.state
        if state.stage == "off":
            return self._tick_off(now)
        if state.stage == "full":
            if state.setbacks and now - state.since >= self.wait:
                state.setbacks = 0
        else:
            found = gates(state, now, self.limits)
            if all(gate.passed for gate in found):
                return [self._promote(now, "promote", "every gate is passed", found)]
        if now - state.evidence.since >= self.policy.review_seconds and self._has_plenty():
            state.before, state.evidence = state.evidence, Evidence(now)
        return []

    def _has_plenty(self) -> bool:
        """Several times what any gate needs: who has not passed by now is to be judged by what comes."""
        evidence, policy = self.state.evidence, self.policy
        compared = evidence.comparison.blocks >= 2 * FEWEST or self.state.stage not in _COMPARING
        return compared and evidence.requests_on >= max(10 * policy.min_requests, 20 / policy.max_error_rate)

    def _tick_off(self, now: float) -> list[Decision]:
        state = self.state
        if not state.probing:
            if state.probe_at is None:
                return self.begin(now)  # its first request came while all buckets were stopped
            if now < state.probe_at:
                return []
            state.probing, state.probe_at = True, None
            state.evidence, state.before = Evidence(now), None
            evidence = {"setbacks": state.setbacks, "probe_share": self.policy.probe_share}
            return [self._decision(now, "probe", self.step, "the wait is over", evidence)]
        verdict = probe_verdict(state, self.limits)
        if verdict is None:
            return []
        evidence = state.evidence.drafts.to_evidence(self.limits.alpha, self.limits.tuned)
        evidence |= {"needed": self.policy.floor + self.policy.hysteresis}
        if verdict:
            reason = "acceptance is back above floor + hysteresis"
            return [self._enter(ladder.canary(self.policy), now, "reenter", reason, evidence)]
        state.probing = False
        state.setbacks += 1
        evidence |= self._plan_probe(now)
        reason = "acceptance is not shown to be above floor + hysteresis"
        return [self._decision(now, "probe_failed", self.step, reason, evidence)]

    def set_back(self, now: float) -> None:
        """The clock was set back: nothing may lie in the future because of that."""
        state = self.state
        state.since = min(state.since, now)
        if state.probe_at is not None:
            state.probe_at = min(state.probe_at, now + self.wait)
        for evidence in (state.evidence, state.before):
            if evidence is not None:
                evidence.since = min(evidence.since, now)
        if state.watch.block.begin is not None:
            state.watch.block.begin = min(state.watch.block.begin, now)

    # ------------------------------------------------------------------ administrators

    def promote(self, now: float, reason: str) -> Decision:
        """One step up. Raises InputError where there is none."""
        self._check_enabled("promoted")
        if self.state.stopped:
            raise InputError(f"bucket {self.name} is stopped: start it first")
        if ladder.following(self.step, self.policy) is None:
            raise InputError(f"bucket {self.name} is in stage full already")
        return self._promote(
            now, "manual", reason or "promoted by an administrator", gates(self.state, now, self.limits)
        )

    def stop(self, now: float, reason: str) -> Decision:
        """Off until `start`."""
        evidence = {"was_stopped": self.state.stopped}
        self.state.probe_at = None
        self.state.stopped = True
        return self._enter(ladder.OFF, now, "stop", reason or "stopped by an administrator", evidence)

    def start(self, now: float, reason: str) -> Decision:
        """From off to shadow. Raises InputError where it is not off."""
        self._check_enabled("started")
        if self.state.stage != "off":
            raise InputError(f"bucket {self.name} is in stage {self.state.stage} already")
        evidence = {"was_stopped": self.state.stopped, "setbacks": self.state.setbacks}
        self.state.stopped, self.state.setbacks = False, 0
        return self._enter(ladder.SHADOW, now, "start", reason or "started by an administrator", evidence)

    def resume(self, now: float, reason: str) -> list[Decision]:
        """After all buckets were stopped: what was wider goes back to canary and must show its worth again."""
        if self.state.stage not in _COMPARING:
            return []
        step = ladder.canary(self.policy)
        return [self._enter(step, now, "start", reason or "all buckets were started again", {"was": list(self.step)})]

    def adopt(self, now: float, changed: dict[str, Any]) -> list[Decision]:
        """The policy is another one than the state was made under: the nearest step, without the old evidence."""
        state = self.state
        waits = state.probing or state.probe_at is not None
        evidence = {"changed": changed}
        if not self.policy.enabled:
            state.probe_at = None
            return [self._enter(ladder.OFF, now, "policy", "the policy disables the bucket", evidence)]
        step = ladder.nearest(*self.step, self.policy)
        decisions = [self._enter(step, now, "policy", "the policy was changed", evidence)]
        if step == ladder.OFF and waits:
            self._plan_probe(now)
        elif step == ladder.OFF and not state.stopped:
            decisions += self.begin(now)
        return decisions

    def _check_enabled(self, what: str) -> None:
        if not self.policy.enabled:
            raise InputError(f"bucket {self.name} can't be {what}: the policy has enabled: false for it")

    # ------------------------------------------------------------------ steps

    def _promote(self, now: float, action: str, reason: str, found: list[Gate]) -> Decision:
        step = ladder.following(self.step, self.policy)
        assert step is not None  # callers have seen that there is one
        evidence = {"gates": [gate.to_json() for gate in found], "share": step[1]}
        return self._enter(step, now, action, reason, evidence)

    def _enter(self, step: Step, now: float, action: str, reason: str, evidence: dict[str, Any]) -> Decision:
        """The step begins, without the evidence of the one before; watches go on only while the bucket widens."""
        state = self.state
        decision = self._decision(now, action, step, reason, evidence)
        widens = action in ("promote", "manual") and state.stage in _COMPARING
        state.stage, state.share = step
        state.since = now
        state.evidence, state.before = Evidence(now), None
        if step[0] != "off":
            state.probe_at = None
        state.probing = False
        if widens:
            state.watch.block = type(state.watch.block)()
        else:
            state.watch = Watch.new(self.limits)
        return decision

    def _decision(self, now: float, action: str, to: Step, reason: str, evidence: dict[str, Any]) -> Decision:
        return Decision(now, self.name, action, self.state.stage, to[0], reason, rounded(evidence))
