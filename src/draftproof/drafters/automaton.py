"""A suffix automaton over a growing text, with the number and the last two ends of every substring's occurrences.

Online construction (Blumer, Blumer, Haussler, Ehrenfeucht, Chen, Seiferas, "The smallest automaton recognizing the
subwords of a text", 1985): at most 2L states, amortised constant time a token. A state stands for a set of substrings
that end at the same places; `link` leads to the longest suffix that ends at more places. The states on the link path of
the newest one are exactly the suffixes of the text, so their counts and ends are brought up to date along that path.

Invariant: state 0 is the empty string; `counts[s]` occurrences, the last ending at index `ends[s]`, the one before at
`earlier[s]` (-1, inside these lists only: there was none). In a text that repeats one token for long the path is as
long as the text: only its `_MAX_PATH` longest suffixes are updated, the others keep an older count.

Does not know: drafts, requests; any hashable token will do, negative numbers are used as separators.
"""

from __future__ import annotations

_MAX_PATH = 32


class SuffixAutomaton:
    """Parallel lists, one entry a state: a list read is the cheapest thing Python has."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self.next: list[dict[int, int]] = [{}]
        self.links: list[int] = [0]
        self.lengths: list[int] = [0]
        self.counts: list[int] = [0]
        self.ends: list[int] = [-1]
        self.earlier: list[int] = [-1]
        self.last = 0  # state of the whole text

    def extend(self, tokens: list[int]) -> None:
        """Appends tokens to the text."""
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        position = len(self.text)
        self.text.append(token)
        state, new = self.last, self._state({}, self.lengths[self.last] + 1)
        following, links = self.next, self.links
        while token not in following[state]:
            following[state][token] = new
            if state == 0:
                break
            state = links[state]
        else:
            links[new] = self._split(state, token)
        self.last = new
        self._mark(new, position)

    def _state(self, following: dict[int, int], length: int) -> int:
        self.next.append(following)
        self.lengths.append(length)
        self.links.append(0)
        self.counts.append(0)
        self.ends.append(-1)
        self.earlier.append(-1)
        return len(self.lengths) - 1

    def _split(self, state: int, token: int) -> int:
        """The state of exactly `state`'s longest string + token: its target, or a clone cut out of the target."""
        target = self.next[state][token]
        length = self.lengths[state] + 1
        if self.lengths[target] == length:
            return target
        clone = self._state(self.next[target].copy(), length)
        self.links[clone] = self.links[target]
        self.links[target] = clone
        self.counts[clone] = self.counts[target]
        self.ends[clone] = self.ends[target]  # `earlier` follows at once: the clone is the next suffix marked
        while self.next[state].get(token) == target:
            self.next[state][token] = clone
            if state == 0:
                break
            state = self.links[state]
        return clone

    def _mark(self, state: int, position: int) -> None:
        """One more occurrence of every suffix of the text, longest first."""
        ends, earlier, counts, links = self.ends, self.earlier, self.counts, self.links
        for _ in range(_MAX_PATH):
            if state == 0:
                return
            earlier[state] = ends[state]
            ends[state] = position
            counts[state] += 1
            state = links[state]

    def step(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Follows a foreign text: the longest suffix of (string of `length` in `state`) + token in this text.

        A state is good until this text grows: that may split it.
        """
        while state and token not in self.next[state]:
            state = self.links[state]
            length = self.lengths[state]
        target = self.next[state].get(token)
        return (0, 0) if target is None else (target, length + 1)
