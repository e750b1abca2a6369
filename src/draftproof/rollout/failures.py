"""The watches of failed requests: more than allowed, or more than plain requests of the same time have.

"errors" bets, request by request, that the share of speculating requests that fail is above `max_error_rate`. "odds"
bets block by block. Of a block with n speculating and m plain requests, k failed altogether. If speculation makes no
difference, the number X of speculating ones among them is hypergeometric (any k of the requests are as likely),
whatever the rate of failures at that time: an outage hits both kinds and says nothing. So psi^X / E[psi^X] with psi >
1 has mean 1 then, and less where speculating requests fail less often: an exact factor for `Bets`.

Does not know: stages, which failures count, what follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from draftproof.rollout.compare import Block
from draftproof.rollout.cusum import Bets
from draftproof.rollout.interval import as_json, share_interval
from draftproof.rollout.limits import Finding, Limits

_LOG_ODDS = tuple(math.log(psi) for psi in (2.0, 5.0, 20.0))  # odds ratios that the styles bet on
_LARGEST = 100.0  # logarithm of a factor


@dataclass(slots=True)
class ErrorWatch:
    """Bets that too many requests fail, and the requests since their last restart."""

    bets: Bets = field(default_factory=Bets)
    requests: int = 0
    failed: int = 0

    def observe(self, error: bool, limits: Limits) -> Finding | None:
        """A request."""
        most = limits.policy.max_error_rate
        evidence = self.bets.step(1 / most - 1 if error else -1.0)
        if not evidence:
            self.requests = self.failed = 0
            return None
        self.requests += 1
        self.failed += error
        if evidence < limits.threshold:
            return None
        share = share_interval(self.failed, self.requests, limits.alpha, limits.tuned)
        if share is None or share.low is None or share.low <= most:
            return None
        numbers = {"requests": self.requests, "failed": self.failed, "error_rate": as_json(share)}
        limit = {"max_error_rate": most, "evidence": evidence, "threshold": limits.threshold}
        return Finding("errors", f"{self.failed} of {self.requests} speculating requests failed", {**numbers, **limit})


@dataclass(slots=True)
class OddsWatch:
    """Bets that speculation makes requests fail, and the requests since their last restart."""

    bets: Bets = field(default_factory=Bets)
    on: int = 0
    failed_on: int = 0
    off: int = 0
    failed_off: int = 0

    def observe(self, block: Block, limits: Limits) -> Finding | None:
        """A full block."""
        on, off = block.on, block.off
        if not on.errors and not off.errors:
            return None
        evidence = self.bets.multiply(factors(on.errors, on.requests, off.errors, off.requests))
        if not evidence:
            self.on = self.failed_on = self.off = self.failed_off = 0
            return None
        self.on += on.requests
        self.failed_on += on.errors
        self.off += off.requests
        self.failed_off += off.errors
        if evidence < limits.threshold:
            return None
        numbers = {"requests_on": self.on, "failed_on": self.failed_on}
        numbers |= {"requests_off": self.off, "failed_off": self.failed_off}
        reason = (
            f"{self.failed_on} of {self.on} speculating requests failed, {self.failed_off} of {self.off} plain ones"
        )
        limit = {"evidence": evidence, "threshold": limits.threshold}
        return Finding("odds", f"{reason} of the same time", {**numbers, **limit})


def factors(failed_on: int, on: int, failed_off: int, off: int) -> list[float]:
    """psi^X / E[psi^X] for each style; all 1 where nothing failed."""
    failed = failed_on + failed_off
    first, last = max(0, failed - off), min(failed, on)
    logs = [0.0]  # of the hypergeometric weights of X = first..last, up to a constant
    for x in range(first, last):
        logs.append(logs[-1] + math.log((failed - x) * (on - x)) - math.log((x + 1) * (off - failed + x + 1)))
    whole = _log_sum(logs)
    return [
        math.exp(min(_LARGEST, failed_on * psi - _log_sum([w + x * psi for x, w in enumerate(logs, first)]) + whole))
        for psi in _LOG_ODDS
    ]


def _log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(math.fsum(math.exp(value - top) for value in logs))
