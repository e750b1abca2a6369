"""What a rollout remembers: plain numbers that go through JSON without a change.

Invariant: `RolloutState.from_json(state.to_json())` equals `state`, to the last bit of each number.
Does not know: how any of it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from draftproof.errors import InputError
from draftproof.rollout.codec import plain, read
from draftproof.rollout.compare import Comparison
from draftproof.rollout.sums import Sums
from draftproof.rollout.traffic import Stage
from draftproof.rollout.watch import Watch

_RECENT = 256  # requests after which the window of recent acceptance moves on


@dataclass(slots=True)
class Evidence:
    """What gates look at: a stage's own requests, from `since` on."""

    since: float
    drafts: Sums = field(default_factory=Sums)
    requests_on: int = 0  # that speculated; in stage shadow, and in a probe, those shadowed
    failed_on: int = 0
    requests_off: int = 0
    failed_off: int = 0
    comparison: Comparison = field(default_factory=Comparison)


@dataclass(slots=True)
class Recent:
    """Acceptance of the last 256 to 512 requests that tested something."""

    new: Sums = field(default_factory=Sums)
    old: Sums = field(default_factory=Sums)

    def add(self, accepted: int, tested: int, weight: float) -> None:
        """A request."""
        if self.new.requests >= _RECENT:
            self.old, self.new = self.new, Sums()
        self.new.add(accepted, tested, weight)


@dataclass(slots=True)
class Totals:
    """Since the bucket was first seen, for people to look at."""

    requests: dict[str, int] = field(default_factory=lambda: {"off": 0, "shadow": 0, "on": 0})
    errors: dict[str, int] = field(default_factory=lambda: {"off": 0, "shadow": 0, "on": 0})
    alarms: int = 0
    last_alarm: float | None = None


@dataclass(slots=True)
class BucketState:
    """A bucket. In stage off exactly one of these holds: stopped; probing, or waiting for probe_at; never begun."""

    stage: Stage
    share: float  # of keys that speculate
    since: float  # when the stage began
    evidence: Evidence
    watch: Watch
    stopped: bool = False
    setbacks: int = 0  # since it last held out in stage full
    probe_at: float | None = None
    probing: bool = False
    before: Evidence | None = None  # the evidence of the same stage that became too old
    recent: Recent = field(default_factory=Recent)
    totals: Totals = field(default_factory=Totals)


@dataclass(slots=True)
class RolloutState:
    """Everything."""

    time: float | None = None  # latest that was seen
    stopped: bool = False  # the kill switch
    policy: dict[str, Any] | None = None  # that the state was made under
    buckets: dict[str, BucketState] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        value: dict[str, Any] = plain(self)
        return value

    @classmethod
    def from_json(cls, value: object) -> RolloutState:
        """Raises InputError for anything that `to_json` would not have made."""
        try:
            state: RolloutState = read(cls, value)
        except ValueError as error:
            raise InputError(f"this is no state of a rollout: {error}") from None
        return state
