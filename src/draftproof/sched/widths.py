"""Step widths that are not ready, and what it has cost so far to do without them.

A step of another width than those that are ready pays for preparing it (`models.lanes`), which the drafts of one step
hardly earn; those of the steps to come would. So what each step loses without a width is added up, less what that width
would cost in steps that want fewer rows, and where the sum has reached the price, the width is taken: ski rental
(Karlin et al. 1988) in which a width that is wanted now and then earns nothing. Of several lanes only one would have to
change, so there widths are taken later than they might be.

Does not know: drafts, sequences, which widths are ready.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MOST = 64  # widths that are watched; of more, the one with the least behind it is forgotten


class Widths:
    """Remembers what steps have lost, in the unit of the costs."""

    def __init__(self) -> None:
        self._lost: dict[int, float] = {}  # by rows, above 0

    def wanted(self, rows: int, loss: float, price: float) -> bool:
        """True where a step that loses `loss` without this width is to prepare it, for `price`; both count above 0."""
        lost = self._lost.pop(rows, 0.0) + max(0.0, loss)
        if lost >= price > 0:
            return True
        if lost <= 0:
            return False
        if len(self._lost) == _MOST:
            del self._lost[min(self._lost, key=lambda width: self._lost[width])]
        self._lost[rows] = lost
        return False

    @property
    def watched(self) -> int:
        """The widest width that is watched; 0 where none is."""
        return max(self._lost, default=0)

    def unwanted(self, wished: int, time: float, times: NDArray[np.float64]) -> None:
        """A step that took `time` and wished for so many rows: what wider ones would have cost more. times: by rows."""
        for width in [width for width in self._lost if width > wished]:
            self._lost[width] -= max(0.0, float(times[min(width, len(times) - 1)]) - time)
            if self._lost[width] <= 0:
                del self._lost[width]
