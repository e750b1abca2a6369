"""Logits that already lie on the host: a NumPy array [n, V] behind `types.Logits`.

Invariant: rows are read-only views, never copies.
Does not know: what made the rows, or whose they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftproof.types import FloatArray


class HostLogits:
    """`types.Logits` over an array float[n, V]."""

    def __init__(self, array: FloatArray) -> None:
        self._rows = array.view()
        self._rows.setflags(write=False)

    def __len__(self) -> int:
        return len(self._rows)

    def argmax(self) -> NDArray[np.int64]:
        """int64[n]: largest logit of each row, ties to the lowest id; -1 where it is not finite (a NaN anywhere)."""
        best = self._rows.argmax(axis=1)  # stops at the first NaN: one look at the winner is enough
        finite = np.isfinite(self._rows[np.arange(len(best)), best])
        return np.where(finite, best, -1)

    def row(self, index: int) -> FloatArray:
        """float[V], read-only."""
        row: FloatArray = self._rows[index]
        return row
