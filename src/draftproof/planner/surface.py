"""A measured cost over load, length and context, read between its points.

Points need not form a full grid: each context has its own loads, and each of these its own lengths. A value is taken
along the length first, then between loads, then between contexts, on straight lines.

Beyond the points the last slope goes on and the value is marked `extrapolated`; it never falls faster than in
proportion, for a cost has no negative fixed part. What a single point says, by axis:
    length    (draft tokens only) cost in proportion to it
    load      B sequences of n rows cost what one sequence of B*n rows costs; marked
    context   no growth; marked above it
Below the shortest measured context that one's cost is taken, unmarked: steps grow with context, so it is no less.

Does not know: what is measured, in which unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """A time in milliseconds, its relative standard error, and whether it lies beyond what was measured."""

    ms: float
    error: float = 0.0
    extrapolated: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured point."""

    sequences: int
    length: int  # rows of a target step, or draft tokens, of each sequence
    context: int
    ms: float
    error: float  # relative standard error of ms


_Knots = Sequence[tuple[float, Cost]]


@dataclass(slots=True)
class _Lengths:
    """The costs of one load at one context, by rising length."""

    places: list[int]
    knots: list[tuple[float, Cost]]


class Surface:
    """Cost over (sequences, length, context)."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        """samples: at least one; no two at the same place."""
        self._slices: dict[int, dict[int, _Lengths]] = {}
        for one in sorted(samples, key=lambda s: (s.context, s.sequences, s.length)):
            lengths = self._slices.setdefault(one.context, {}).setdefault(one.sequences, _Lengths([], []))
            lengths.places.append(one.length)
            lengths.knots.append((one.length, Cost(one.ms, one.error)))

    @property
    def loads(self) -> tuple[int, ...]:
        """Every measured number of sequences, ascending."""
        return tuple(sorted({load for loads in self._slices.values() for load in loads}))

    @property
    def longest(self) -> int:
        """The greatest length that was measured anywhere."""
        return max(lengths.places[-1] for loads in self._slices.values() for lengths in loads.values())

    @property
    def contexts(self) -> tuple[int, ...]:
        """Every measured context, ascending."""
        return tuple(self._slices)

    def at(self, sequences: float, length: float, context: float | None) -> Cost:
        """The cost; context None is the shortest measured one."""
        contexts = self.contexts
        place = contexts[0] if context is None else max(contexts[0], context)
        near = _around(contexts, place)
        return _line([(c, self._between_loads(self._slices[c], sequences, length)) for c in near], place, flat=True)

    @staticmethod
    def _between_loads(loads: dict[int, _Lengths], sequences: float, length: float) -> Cost:
        if len(loads) == 1:
            (load, lengths) = next(iter(loads.items()))
            cost = _along(lengths, length * sequences / load)
            return Cost(cost.ms, cost.error, cost.extrapolated or sequences != load)
        near = _around(tuple(loads), sequences)
        return _line([(load, _along(loads[load], length)) for load in near], sequences)


def _around(places: Sequence[int], x: float) -> Sequence[int]:
    """The two places that x lies between, or the two it lies next to; the only one if there is but one."""
    return places[_pair(places, x)]


def _pair(places: Sequence[int], x: float) -> slice:
    last = min(max(bisect_right(places, x), 1), len(places) - 1)
    return slice(max(last - 1, 0), last + 1)


def _along(lengths: _Lengths, x: float) -> Cost:
    cost = _line(lengths.knots[_pair(lengths.places, x)], x)
    # drafting fewer tokens than the fewest measured (one) is no guess about the unknown
    return Cost(cost.ms, cost.error) if x < lengths.places[0] <= 1 else cost


def _line(knots: _Knots, x: float, *, flat: bool = False) -> Cost:
    """On the straight line through one or two knots; through one: level (flat), or in proportion."""
    (left, a), (right, b) = knots[0], knots[-1]
    if x in (left, right):
        return a if x == left else b
    outside = not left <= x <= right
    if left == right:
        ms = a.ms if flat else a.ms * x / left
        return Cost(ms, a.error, a.extrapolated or outside)
    share = (x - left) / (right - left)
    ms = a.ms + share * (b.ms - a.ms)
    if x < left:
        ms = max(ms, a.ms * x / left)
    elif x > right:
        ms = max(ms, b.ms)  # noise may let the last slope fall; more work is never cheaper
    inside = min(max(share, 0.0), 1.0)
    error = max(a.error, b.error) if outside else (1 - inside) * a.error + inside * b.error
    return Cost(ms, error, a.extrapolated or b.extrapolated or outside)
