"""A drafter's rows of logits in the target's token ids, whatever the drafter's vocabulary is (B39).

Three cases. Equal sizes: the row itself. Sizes that differ by padding: ids of the drafter that the target lacks are
cut off *before* anything is drawn, ids that the drafter lacks are impossible (-inf, so probability 0 in every law).
A reduced head: draft id d means target id mapping[d]; every other target id is impossible.

Invariant: what is drawn, reported and tested lives in target ids; no draft id leaves this module.
With a mapping the drafter's *inputs* are target ids as well (it has the full embedding and a short head).

Does not know: sampling, models. Whether two vocabularies of equal size mean the same strings is the pairing check's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import PairingError
from draftproof.types import FloatArray, Ids


class DraftVocab:
    """draft_size logits a row become target_size ones. mapping: int[draft_size] of target ids, or None."""

    def __init__(self, draft_size: int, target_size: int, mapping: ArrayLike | None = None) -> None:
        self.size = target_size
        self._draft_size = draft_size
        self._mapping = None if mapping is None else _checked(np.asarray(mapping), draft_size, target_size)
        ascending = self._mapping is not None and bool((np.diff(self._mapping) > 0).all())
        self._ids = self._mapping if ascending else None

    @property
    def ids(self) -> NDArray[np.int64] | None:
        """int64[draft_size], ascending: the target id of each draft id, where a law can stay over these alone."""
        return self._ids

    @property
    def keeps_ids(self) -> bool:
        """True when a draft id is the target id of the same number, or is no target id."""
        return self._mapping is None

    def can_read(self, tokens: Ids) -> bool:
        """True when the drafter has an embedding for all of tokens int32[L]."""
        if self._mapping is not None or self._draft_size >= self.size:
            return True
        return bool((tokens < self._draft_size).all())

    def row(self, row: FloatArray) -> FloatArray:
        """float[target_size]: logits of target ids; `row` float[draft_size] itself where nothing differs."""
        if self._mapping is None and self._draft_size >= self.size:
            return row[: self.size]
        mapped: FloatArray = np.full(self.size, -np.inf, row.dtype)
        if self._mapping is None:
            mapped[: self._draft_size] = row
        else:
            mapped[self._mapping] = row
        return mapped


def ids_from_offsets(offsets: ArrayLike) -> NDArray[np.int32]:
    """Absolute target ids int32[Vd] of a table that stores target id minus draft id: [0, 1, 1, 3] is 0, 2, 3, 6."""
    steps: NDArray[np.int32] = np.asarray(offsets, np.int32)
    return np.add(steps, np.arange(len(steps), dtype=np.int32), dtype=np.int32)


def _checked(mapping: NDArray[np.integer], draft_size: int, target_size: int) -> NDArray[np.int64]:
    if mapping.shape != (draft_size,):
        raise PairingError(f"the id mapping has shape {mapping.shape}, but the drafter has {draft_size} ids")
    if draft_size and not 0 <= mapping.min() <= mapping.max() < target_size:
        raise PairingError(f"the id mapping leaves the target's {target_size} ids: is it a table of offsets?")
    if len(np.unique(mapping)) != draft_size:
        raise PairingError("the id mapping gives two draft ids the same target id: is it a table of offsets?")
    return mapping.astype(np.int64)
