"""Finds stop strings in text that arrives in pieces, and says how much of its end may still become one.

One Knuth-Morris-Pratt automaton for each stop string: its state is the length of the longest end of the text so far
that begins the string. A full state is an occurrence; a partial state is text to hold back. Each character costs
amortised constant time, whatever the lengths.

Invariant: after `feed`, the last `held` characters of the text are exactly the longest end of it that is a proper
beginning of some stop string.

Does not know: tokens, which occurrence wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """One occurrence: `stop` is text[start:end] of the whole text fed so far."""

    start: int
    end: int
    stop: str


def _failures(stop: str) -> list[int]:
    """failures[n]: the longest proper end of stop[:n] that also begins it (Knuth, Morris and Pratt 1977)."""
    failures = [0] * (len(stop) + 1)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = failures[length]
        length += stop[index] == stop[length]
        failures[index + 1] = length
    return failures


class StopSearch:
    """Incremental search for several strings at once."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._failures = [_failures(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._length = 0

    @property
    def held(self) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        return max(self._states, default=0)

    def copy(self) -> StopSearch:
        """A search in the same state, for text that may be taken back."""
        twin = StopSearch.__new__(StopSearch)
        twin._stops, twin._failures = self._stops, self._failures
        twin._states, twin._length = list(self._states), self._length
        return twin

    def feed(self, text: str) -> Match | None:
        """Reads on; returns the occurrence among those that end in `text` which starts first (then ends first)."""
        found: list[tuple[int, int, int]] = []
        for index, stop in enumerate(self._stops):
            end = self._feed_one(index, text)
            if end is not None:
                found.append((end - len(stop), end, index))
        self._length += len(text)
        if not found:
            return None
        start, end, index = min(found)
        return Match(start, end, self._stops[index])

    def _feed_one(self, index: int, text: str) -> int | None:
        """End of the first occurrence of one stop string; all its occurrences are as long, so it also starts first."""
        stop, failures, state = self._stops[index], self._failures[index], self._states[index]
        first = None
        for offset, char in enumerate(text, start=1):
            while state and char != stop[state]:
                state = failures[state]
            state += char == stop[state]
            if state == len(stop):
                first = first or self._length + offset
                state = failures[state]
        self._states[index] = state
        return first
