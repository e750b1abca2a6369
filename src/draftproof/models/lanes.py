"""Which of several compiled copies of a graph runs a step, and at how many rows.

A graph of dynamic shape prepares each of its nodes anew when the rows of a step are not those of the step before: 6 ms
of a step of 9 on two cores with 30 layers, and drafts make that happen all the time. So lanes keep different shapes
ready, and a step may be padded with a few rows that nobody reads to one of them. A prompt's shape hardly comes twice:
its lane is free for another one afterwards. Padding is rent: once that of a width has cost what its own shape costs, it
gets one, if a lane stood idle meanwhile or nothing that ran in it filled its shape. So each shape that is bought has
cost as much in padding before, as in ski rental (Karlin et al. 1988).

Invariant: a step never loses rows. Which lane runs it and how it is padded changes no bit of its rows where numerics
are invariant; the self-check at load runs through here too.
Does not know: graphs, what a row is.
"""

from __future__ import annotations


class Lanes:
    """num_lanes: compiled copies. shape_rows: what preparing another shape costs, in rows.

    A quarter of that is worth adding in padding, which is paid in every step; three quarters count against a step that
    needs another shape, which may come again (both as a replay of recorded steps had it: docs/LOG.md).
    """

    def __init__(self, num_lanes: int, shape_rows: float) -> None:
        self._shape_rows = shape_rows
        self._most_padding = int(shape_rows / 4)
        self._price = 0.75 * shape_rows
        self._shapes = [0] * num_lanes  # rows of the last step; 0 is a shape that won't come again
        self._used = [0] * num_lanes  # when, in steps
        self._filled = [0] * num_lanes  # when a step last had as many rows of its own
        self._now = 0
        self._rent: dict[int, tuple[int, int]] = {}  # of widths padded now: (when that began, rows added since)

    def prompt(self) -> int:
        """The lane of a step that is not to be padded: the one unused for longest."""
        lane = self._oldest()
        self._shapes[lane] = 0
        return lane

    def rows_like(self, num_rows: int) -> float:
        """Rows that a step of num_rows rows costs as much as, if all were of a shape that is ready. Changes nothing."""
        return float(min(self._fitting(num_rows), default=num_rows + self._price))

    def choose(self, num_rows: int) -> tuple[int, int]:
        """(lane, rows to pad to) of a step of num_rows rows: the least padding, else the lane unused for longest."""
        self._now += 1
        fitting = self._fitting(num_rows)
        if fitting and not self._buys(num_rows, min(fitting) - num_rows):
            lane = self._shapes.index(min(fitting))
        else:
            lane = self._oldest()
            self._shapes[lane] = num_rows
        self._used[lane] = self._now
        if self._shapes[lane] == num_rows:
            self._filled[lane] = self._now
        return lane, self._shapes[lane]

    def _buys(self, num_rows: int, padding: int) -> bool:
        """Counts the padding of this step; True where its width is to have a shape of its own instead."""
        if not padding:
            return False
        since, paid = self._rent.get(num_rows, (self._now, 0))
        if paid < self._shape_rows:
            self._rent[num_rows] = since, paid + padding
            return False
        del self._rent[num_rows]  # whatever comes of it: it counts from 0 again
        lane = self._oldest()
        return self._shapes[lane] == 0 or self._filled[lane] < since

    def _fitting(self, num_rows: int) -> list[int]:
        """Shapes that are ready and wide enough, and not too wide."""
        return [shape for shape in self._shapes if 0 <= shape - num_rows <= self._most_padding]

    def _oldest(self) -> int:
        """A lane whose shape won't come again, else the one unused for longest."""
        return min(range(len(self._shapes)), key=lambda lane: (self._shapes[lane] > 0, self._used[lane]))
