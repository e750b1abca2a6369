"""Traffic that never was: requests of some buckets over days, with the nuisances of real ones, played into a rollout.

A bucket's requests come in sessions of one to a dozen, whose acceptances hang together and whose key is one. The rate
and the time for a token follow the hour of the day; times have a common slow noise, and a skewed one of each request.
What a request says depends on whether it speculates, is shadowed or is plain; what it would say in each case is drawn
before.

Invariant: the same seed gives the same traffic, whatever the rollout does. Does not know: what is measured with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.rollout import Decision, Rollout, Sample

DAY = 86400.0
_SESSION = 4  # requests of a session, on average
_SPAN = 900.0  # seconds that a session lasts, on average
_BASE = 0.02  # seconds for a plain token, at night
_SKEW = 0.4  # standard deviation of the logarithm of a request's own time


@dataclass(frozen=True, slots=True)
class Kind:
    """A bucket. acceptance: mean over requests. cost: seconds of a speculating token, as a share of a plain one's."""

    name: str
    acceptance: float
    requests: int  # a day
    cost: float = 0.65
    errors: float = 0.002
    session_spread: float = 0.1  # standard deviation of the acceptance between sessions, and as much within them


@dataclass(frozen=True, slots=True)
class Request:
    """One, and what it would say."""

    time: float
    kind: int
    key: str
    tokens: int
    accepted: float  # share of its draft tokens
    seconds: float  # for a plain token
    error: bool


def _beta(rng: np.random.Generator, mean: np.ndarray, spread: float) -> np.ndarray:
    """Acceptances in (0, 1) with these means and, away from the ends, this standard deviation."""
    size = np.maximum(mean * (1 - mean) / spread**2 - 1, 0.5)
    return rng.beta(mean * size, (1 - mean) * size)


def _sessions(rng: np.random.Generator, number: int, day: int, kind: Kind) -> tuple[np.ndarray, ...]:
    """Times, session numbers and acceptances of one bucket's day, float64 and int64[Q]."""
    num = max(1, round(kind.requests / _SESSION))
    sizes = rng.geometric(1 / _SESSION, num)
    hours = rng.beta(2.5, 2.0, num) * 24  # busier in the afternoon
    owner = np.repeat(np.arange(num), sizes)
    times = (hours[owner] * 3600 + rng.exponential(_SPAN, len(owner))) % DAY + day * DAY
    mean = _beta(rng, np.full(num, kind.acceptance), kind.session_spread)
    accepted = _beta(rng, np.clip(mean[owner], 0.02, 0.98), kind.session_spread)
    return times, owner + (number * 1_000_000 + day) * 100_000, accepted


def day_of(rng: np.random.Generator, day: int, kinds: Sequence[Kind]) -> list[Request]:
    """All requests of a day in the order of their ends."""
    parts = [_sessions(rng, number, day, kind) for number, kind in enumerate(kinds)]
    times, owner, accepted = (np.concatenate(column) for column in zip(*parts, strict=True))
    which = np.repeat(np.arange(len(kinds)), [len(part[0]) for part in parts])
    order = np.argsort(times, kind="stable")
    slow = np.exp(0.1 * np.cumsum(rng.standard_normal(1441)) / 8)  # of each minute, for all requests alike
    slow /= slow.mean()
    minute = ((times % DAY) / 60).astype(int)
    load = 1 + 0.5 * np.sin(np.pi * (times % DAY) / DAY) ** 2
    seconds = _BASE * load * slow[minute] * np.exp(_SKEW * rng.standard_normal(len(times)))
    tokens = 2 + rng.geometric(1 / 60, len(times))
    errors = rng.random(len(times)) < np.array([kind.errors for kind in kinds])[which]
    columns = (times, which, owner, tokens, accepted, seconds, errors)
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [Request(time, kind, f"s{key}", *rest) for time, kind, key, *rest in rows]


def sample_of(request: Request, kind: Kind, mode: str) -> Sample:
    """What the request says under this treatment; of its tokens, three in four were tested as drafts."""
    if mode == "off":
        return Sample(kind.name, "off", request.time, request.seconds, 0.1, request.tokens, 0, 0, 0, request.error)
    tested = max(1, request.tokens * 3 // 4)
    accepted = min(tested, int(request.accepted * tested + 0.5))
    cost = kind.cost if mode == "on" else 1.02
    seconds = request.seconds * cost
    drafted = tested + tested // 3
    return Sample(kind.name, mode, request.time, seconds, 0.1, request.tokens, drafted, tested, accepted, request.error)


def play(
    rollout: Rollout,
    requests: Sequence[Request],
    kinds: Sequence[Kind],
    *,
    every: float = 60.0,
    seen: Callable[[Request, str], None] | None = None,
) -> Iterator[Decision]:
    """Gives the rollout these requests, with a tick every so many seconds; its decisions. seen: each treatment."""
    due = (rollout.state.time or 0.0) + every
    names = [kind.name for kind in kinds]
    for request in requests:
        while request.time >= due:
            yield from rollout.tick(due)
            due += every
            if request.time - due > DAY:
                due = request.time
        kind = request.kind
        mode = rollout.assign(names[kind], request.key).mode
        if seen is not None:
            seen(request, mode)
        yield from rollout.record(sample_of(request, kinds[kind], mode))
