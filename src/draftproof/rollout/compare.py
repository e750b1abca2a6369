"""Speculating requests against plain ones of the same bucket and time: ratio of seconds per token, odds of errors.

Time is cut into blocks, each long enough to hold some requests of both kinds; when a block ends is decided by time and
counts alone, never by what is measured. Within a block both kinds saw the same load. r is the mean of the seconds
between tokens of each kind, a request counting by its gaps between tokens, up to 64: nearly the price of a token. A
block weighs W = n*m / (n + m) with n and m the effective numbers of requests, (sum of gaps)^2 / (sum of gaps^2). The
ratio is sum(W * r_on) / sum(W * r_off); its error comes from the residuals W * (r_on - ratio * r_off) of whole blocks.
So a request counts once, however many tokens it has, and so does a moment that was slow for many requests together.

What it can't see: sequences of one engine step share its time. Where speculation makes the steps of *all* requests
longer, both kinds pay, and the ratio shows only the tokens won. That loss is prevented where it arises, by the engine's
draft lengths for the whole batch (ADR 7); this comparison finds the costs that a speculating request bears itself.

Keys should be many (users, conversations, requests): the requests of one key are either all on or all off, and with few
keys the kinds would differ by who they are.

Does not know: stages, gates, what follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from draftproof.planner.interval import Interval
from draftproof.rollout.interval import as_json, boundary

FEWEST = 10  # blocks below which no interval is given
_TUNED = 2 * FEWEST
_FULL_WEIGHT = 64  # gaps from which on a request counts no more: or a few long ones would decide


@dataclass(slots=True)
class Arm:
    """The requests of one kind in a block."""

    requests: int = 0
    errors: int = 0
    seconds: float = 0.0
    gaps: float = 0.0
    gaps2: float = 0.0

    def add(self, itl: float | None, tokens: int, error: bool) -> None:
        """A request. What a failed one says of time is not used."""
        self.requests += 1
        if error:
            self.errors += 1
        elif itl is not None and tokens > 1:
            gaps = min(tokens - 1, _FULL_WEIGHT)
            self.seconds += itl * gaps
            self.gaps += gaps
            self.gaps2 += gaps * gaps


@dataclass(slots=True)
class Block:
    """What is not yet compared."""

    begin: float | None = None
    on: Arm = field(default_factory=Arm)
    off: Arm = field(default_factory=Arm)

    def is_full(self, now: float, seconds: float, requests: int) -> bool:
        """True when it has both the time and the requests; a clock that is set back only delays it."""
        if self.begin is None or self.on.requests < requests or self.off.requests < requests:
            return False
        return now - self.begin >= seconds


@dataclass(frozen=True, slots=True)
class Pair:
    """A block as the comparison uses it: seconds per token of each kind and of both together, and the weight."""

    on: float
    off: float
    both: float
    weight: float


def pair_of(block: Block) -> Pair | None:
    """None where a kind has no request with a gap between tokens, or where all together took no time."""
    on, off = block.on, block.off
    if not (on.gaps and off.gaps and on.seconds + off.seconds > 0):
        return None
    n, m = on.gaps * on.gaps / on.gaps2, off.gaps * off.gaps / off.gaps2
    both = (n * on.seconds / on.gaps + m * off.seconds / off.gaps) / (n + m)
    return Pair(on.seconds / on.gaps, off.seconds / off.gaps, both, n * m / (n + m))


@dataclass(slots=True)
class Comparison:
    """Sums over blocks."""

    blocks: int = 0
    requests_on: int = 0
    requests_off: int = 0
    weight: float = 0.0
    on: float = 0.0  # sum of W * r_on
    off: float = 0.0
    on2: float = 0.0  # sum of (W * r_on)^2
    onoff: float = 0.0
    off2: float = 0.0

    def add(self, block: Block, pair: Pair) -> None:
        """A full block and what it says."""
        self.requests_on += block.on.requests
        self.requests_off += block.off.requests
        self.blocks += 1
        on, off = pair.weight * pair.on, pair.weight * pair.off
        self.weight += pair.weight
        self.on += on
        self.off += off
        self.on2 += on * on
        self.onoff += on * off
        self.off2 += off * off

    def plus(self, other: Comparison) -> Comparison:
        """Of both."""
        return Comparison(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def ratio(self, alpha: float) -> Interval | None:
        """Seconds per token, speculating to plain, with an interval for all looks at once (bare below FEWEST blocks).

        None without a block, or where the plain requests took no time at all.
        """
        if self.on <= 0 or self.off <= 0:
            return None
        mean = self.on / self.off
        if self.blocks < FEWEST:
            return Interval(mean)
        squares = max(0.0, self.on2 - 2 * mean * self.onoff + mean * mean * self.off2)
        error = math.sqrt(squares * self.blocks / (self.blocks - 1)) / self.on  # of the ratio's logarithm
        half = min(100.0, boundary(self.blocks, alpha, _TUNED) * error)
        return Interval(mean, mean * math.exp(-half), mean * math.exp(half))

    def to_evidence(self, alpha: float) -> dict[str, Any]:
        """Counts, means and the interval for the log."""
        return {
            "blocks": self.blocks,
            "requests_on": self.requests_on,
            "requests_off": self.requests_off,
            "itl_on_s": self.on / self.weight if self.weight else None,
            "itl_off_s": self.off / self.weight if self.weight else None,
            "itl_ratio": as_json(self.ratio(alpha)),
        }
