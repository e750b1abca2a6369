"""The k best entries of a vocabulary-wide row, without sorting the vocabulary.

The row is cut into groups; k group maxima that are >= b are k entries >= b, so the k-th best entry is at least the
k-th best maximum. Only the entries that reach this bound are sorted: a few hundred of 50 000.

Invariant: best first, ties to the lower id, and an entry of -inf is never chosen. The answer depends on the row and k
only, not on how the candidates were found.

Does not know: temperatures, laws, tokens' meaning. The row holds no NaN (callers check its maximum first).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftproof.types import FloatArray

_GROUP = 64  # entries a group; 768 maxima of a vocabulary of 49 152


def best_ids(row: FloatArray, k: int) -> NDArray[np.int64]:
    """int64[<= k]: the ids of the k largest entries of row [V], best first; fewer where the rest is -inf."""
    candidates = np.flatnonzero(_reach(row, k))
    order = np.argsort(-row[candidates], kind="stable")  # stable and ascending ids: ties to the lower id
    return candidates[order[:k]]


def _reach(row: FloatArray, k: int) -> NDArray[np.bool_]:
    """bool[V]: True at (at least) every entry that can be among the k best."""
    bound = _bound(row, k)
    return np.asarray(row > -np.inf if bound == -np.inf else row >= bound)


def _bound(row: FloatArray, k: int) -> float:
    """A number that the k-th best entry reaches."""
    num_groups = len(row) // _GROUP
    if k >= len(row):
        return -np.inf
    if k > num_groups:
        return float(np.partition(row, len(row) - k)[len(row) - k])
    maxima = row[: num_groups * _GROUP].reshape(_GROUP, num_groups).max(axis=0)  # a group is a column: whole-row SIMD
    return float(np.partition(maxima, num_groups - k)[num_groups - k])
