"""What a request gets, what became of it, and what was decided: the words between the server and the rollout.

Stages of a bucket, in their order: "off" (plain), "shadow" (some requests are drafted for and the drafts scored, none
is emitted), "canary" and "wide" (a share of the request keys speculates), "full" (all but a small holdout). Modes of a
request: "off" plain, "shadow", "on" speculating.

Invariant: a sample is checked on construction; only requests that were treated as `assign` said may become samples. A
request whose client chose for itself (speculation on, off, another drafter) would spoil the comparison: drop it.

Does not know: clocks, servers, how decisions are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["off", "shadow", "canary", "wide", "full"]
Mode = Literal["off", "shadow", "on"]
STAGES: tuple[Stage, ...] = ("off", "shadow", "canary", "wide", "full")
MODES: tuple[Mode, ...] = ("off", "shadow", "on")
EVERYWHERE = "*"  # the bucket of decisions about all buckets
OTHER = "other"  # the bucket of requests that name one bucket too many


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a request gets. `bucket` is where it counts, which may be "other" instead of the name it came with."""

    mode: Mode
    stage: Stage
    bucket: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What became of a request that was treated as assigned.

    time: when it ended, seconds on the clock that `tick` gets. itl_s: mean seconds between its tokens, None below two
    tokens. ttft_s: seconds to its first token, None without one. tokens: emitted. drafted >= tested >= accepted: draft
    tokens, in shadow mode those that were only scored. error: the request failed through the server's fault (a client
    that left, or sent nonsense, is no error).
    """

    bucket: str
    mode: Mode
    time: float
    itl_s: float | None
    ttft_s: float | None
    tokens: int
    drafted: int
    tested: int
    accepted: int
    error: bool

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that can't be."""
        seconds_fit = all(s is None or 0.0 <= s < math.inf for s in (self.itl_s, self.ttft_s))
        if not (seconds_fit and math.isfinite(self.time) and self.tokens >= 0 and self.mode in MODES):
            raise ValueError(f"no sample: {self}")
        if not 0 <= self.accepted <= self.tested <= self.drafted or (self.mode == "off" and self.drafted):
            raise ValueError(f"no counts of drafts: {self}")


@dataclass(frozen=True, slots=True)
class Decision:
    """A line of the audit log.

    action: "start" (a bucket begins, by itself or by an administrator), "promote", "off" (taken back by itself),
    "probe" (shadow requests look whether it recovered), "probe_failed", "reenter", "alarm" (acceptance changed;
    nothing was switched), "manual" (promoted by an administrator), "stop", "policy" (the policy changed between two
    runs). bucket: "*" for all. evidence: JSON-ready numbers that led to it: counts, means, intervals, thresholds.
    """

    time: float
    bucket: str
    action: str
    from_stage: Stage
    to_stage: Stage
    reason: str
    evidence: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As the log and the admin API show it."""
        return {name: getattr(self, name) for name in self.__slots__}
