"""The last quarter of an hour for a page that opens now: every other second, what was counted since the one before.

A point holds differences, so that a reader needs no earlier one, and only what is not nothing, so that quiet buckets
cost no room.

Invariant: at most `_LENGTH` points, in the order of their times; a restart begins with none.

Does not know: who reads, what is drawn.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Any

from draftproof.serve.tally import Sums

EVERY = 2.0  # seconds between points
_LENGTH = 450


class History:
    """Points of one server. Event loop only."""

    def __init__(self, start: Sums, now: float) -> None:
        """start: what was counted by `now`, seconds of the epoch."""
        self._before, self._time = start, now
        self._points: deque[dict[str, Any]] = deque(maxlen=_LENGTH)

    def note(self, sums: Sums, gauges: Mapping[str, float], now: float) -> None:
        """One more point; none for a clock that was set back."""
        before, begin = self._before, self._time
        self._before, self._time = sums, now
        if now <= begin:
            return
        pages = gauges["kv_pages"]
        self._points.append(
            {
                "time": round(now, 3),
                "seconds": round(now - begin, 3),
                "running": gauges["texts_running"],
                "waiting": gauges["texts_waiting"],
                "memory": round(1 - gauges["kv_pages_free"] / pages, 4) if pages else 0.0,
                "answered": sums.answered - before.answered,
                "refused": sums.refused - before.refused,
                "tokens": _grown(sums.tokens, before.tokens),
                "gaps": _by_bucket(sums.gaps, before.gaps, ("count", "seconds")),
                "drafts": _by_bucket(sums.drafts, before.drafts, ("tested", "accepted")),
            }
        )

    def since(self, time: float) -> list[dict[str, Any]]:
        """Points that are later than `time`, oldest first."""
        later = itertools.takewhile(lambda point: point["time"] > time, reversed(self._points))
        return list(later)[::-1]


def _grown(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {key: value - before.get(key, 0) for key, value in now.items() if value != before.get(key, 0)}


def _by_bucket(
    now: Mapping[tuple[str, str], tuple[float, float]],
    before: Mapping[tuple[str, str], tuple[float, float]],
    names: tuple[str, str],
) -> list[dict[str, Any]]:
    """Both numbers' growth for each bucket and mode whose first one grew."""
    found = []
    for place, (first, second) in now.items():
        old_first, old_second = before.get(place, (0, 0))
        if first != old_first:
            values = zip(names, (first - old_first, round(second - old_second, 6)), strict=True)
            found.append({"bucket": place[0], "mode": place[1], **dict(values)})
    return found
