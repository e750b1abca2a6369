"""The watches of the acceptance: below the floor; away from its baseline, downwards or upwards.

A request's tokens a of t enter as x = a / t with weight w = min(t, cap) / cap. "floor" bets that E[w * (x - floor)] <
0: its false alarms are bounded for any requests whose expected acceptance, given the past, is not below the floor.
"fell" and "rose" do the same with the ends of the baseline's interval, `drift` further out, as their floor and
ceiling. The baseline is the acceptance of the first requests; its interval is normal and misses with the chance that
these requests have as their own budget of false alarms.

Neighbours that hang together beyond that, as the requests of one conversation do when few come between them, are not
covered: right at the floor they can use up what is promised (bench.rollout_days counts it), further above they can't.

An alarm also needs the interval over the requests since the bets' last restart to lie on the wrong side: these requests
are what the log shows.

Does not know: stages, what follows from a finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from draftproof.rollout.cusum import Bets
from draftproof.rollout.limits import Finding, Limits
from draftproof.rollout.sums import Sums


@dataclass(slots=True)
class MeanWatch:
    """Bets that a mean lies below its target (or above it), and the requests since their last restart."""

    target: float
    below: bool = True
    bets: Bets = field(default_factory=Bets)
    seen: Sums = field(default_factory=Sums)

    def observe(self, accepted: int, tested: int, limits: Limits) -> dict[str, Any] | None:
        """A request that tested something; the numbers of an alarm, if it is one."""
        weight = min(float(tested), limits.cap)
        gain = weight / limits.cap * (self.target - accepted / tested)  # in [target - 1, target]
        evidence = self.bets.step(gain / (1.0 - self.target) if self.below else -gain / self.target)
        if evidence:
            self.seen.add(accepted, tested, weight)
            if evidence >= limits.threshold:
                return self._alarm(evidence, limits)
        elif self.seen.requests:
            self.seen = Sums()
        return None

    def _alarm(self, evidence: float, limits: Limits) -> dict[str, Any] | None:
        interval = self.seen.interval(limits.alpha, limits.tuned)
        if interval is None or interval.low is None or interval.high is None:
            return None  # too few requests to be sure of anything
        if not (interval.high < self.target if self.below else interval.low > self.target):
            return None
        numbers = {"target": self.target, "evidence": evidence, "threshold": limits.threshold}
        return {**self.seen.to_evidence(limits.alpha, limits.tuned), **numbers}


@dataclass(slots=True)
class DriftWatch:
    """A baseline, and what lies too far from it."""

    baseline: Sums = field(default_factory=Sums)
    fell: MeanWatch | None = None  # once there is a baseline; None also where acceptance can't move that far
    rose: MeanWatch | None = None

    def observe(self, accepted: int, tested: int, limits: Limits) -> Finding | None:
        """A request that tested something."""
        if self.baseline.requests < limits.policy.baseline_requests:
            self.baseline.add(accepted, tested, min(float(tested), limits.cap))
            if self.baseline.requests == limits.policy.baseline_requests:
                self._begin(limits)
            return None
        if self.fell is not None and (found := self.fell.observe(accepted, tested, limits)):
            return self._finding(found, self.fell, limits)
        if self.rose is not None and (found := self.rose.observe(accepted, tested, limits)):
            return self._finding(found, self.rose, limits)
        return None

    def _begin(self, limits: Limits) -> None:
        centre, error = self.baseline.standard_error()
        distance = limits.baseline_errors * error + limits.policy.drift
        self.fell = MeanWatch(centre - distance) if centre > distance else None
        self.rose = MeanWatch(centre + distance, below=False) if centre + distance < 1 else None

    def _finding(self, found: dict[str, Any], watch: MeanWatch, limits: Limits) -> Finding:
        now, then = found["acceptance"]["mean"], self.baseline.mean
        reason = f"acceptance {'fell' if watch.below else 'rose'} from {then:.3f} to {now:.3f}"
        baseline = self.baseline.to_evidence(limits.alpha, limits.tuned)
        evidence = {**found, "baseline": baseline, "drift": limits.policy.drift}
        return Finding("fell" if watch.below else "rose", reason, evidence)
