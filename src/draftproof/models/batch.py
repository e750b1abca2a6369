"""Rows of several sequences -> one flat `StepBatch`: ids, positions, offsets, ancestor masks, wanted logits.

Used by the engine's packer for the target and by model drafters for their own forwards.
Rows of one sequence: the fed tokens in order, then the draft nodes in node order, then padding rows up to `min_rows`.
The position of a row is its *depth* in the sequence (B17), never its index in the batch.

Does not know: requests, sampling, what a drafter is. Pads only; never keeps a padding row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.types import Ids, Slots, StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What one sequence puts into a step."""

    tokens: Ids  # [feed + n] fed tokens, then draft tokens in node order
    feed: int  # >= 1
    slots: Slots
    parents: Ids | None = None  # [n] of the draft nodes as in `Draft.parents`; None is a chain
    wants_logits: bool = True  # of the root row and of each node
    wide: bool = False  # all of them are prompt rows: computed together, where a target tells them from later rows


def _tree_layout(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Depths of all rows beyond the first, and the ancestor mask bool[T, T]."""
    feed, total = rows.feed, len(rows.tokens)
    mask = np.tri(total, dtype=np.bool_)
    depth = np.arange(total, dtype=np.int64)
    assert rows.parents is not None
    for index, parent in enumerate(rows.parents.tolist()):
        row, above = feed + index, feed - 1 + parent
        mask[row] = mask[above]
        mask[row, row] = True
        depth[row] = depth[above] + 1
    return depth, mask


def _is_chain(parents: Ids) -> bool:
    return bool((parents == np.arange(len(parents))).all())


def flat_batch(batch: Sequence[Rows], min_rows: int) -> StepBatch:
    """One flat forward of all rows. `min_rows` pads sequences that have fewer (repeating their last token)."""
    ids: list[NDArray[np.int64]] = []
    places: list[NDArray[np.int64]] = []
    wanted: list[NDArray[np.int64]] = []
    masks: list[NDArray[np.bool_] | None] = []
    begins, logit_begins = [0], [0]
    for rows in batch:
        total, start = len(rows.tokens), rows.slots.start
        tokens = rows.tokens.astype(np.int64)
        depth, mask = np.arange(total, dtype=np.int64), None
        if rows.parents is not None and not _is_chain(rows.parents):
            depth, mask = _tree_layout(rows)
        padding = max(0, min_rows - total)
        if padding:
            tokens = np.concatenate([tokens, np.full(padding, tokens[-1])])
            depth = np.arange(total + padding, dtype=np.int64)
        ids.append(tokens)
        places.append(depth + start)
        masks.append(mask)
        first = begins[-1] + rows.feed - 1
        if rows.wants_logits:
            wanted.append(np.arange(first, begins[-1] + total, dtype=np.int64))
        logit_begins.append(logit_begins[-1] + (total - rows.feed + 1 if rows.wants_logits else 0))
        begins.append(begins[-1] + total + padding)
    return StepBatch(
        input_ids=np.concatenate(ids),
        positions=np.concatenate(places),
        offsets=np.array(begins, np.int32),
        past_lens=np.array([rows.slots.start for rows in batch], np.int32),
        tables=tuple(rows.slots.table for rows in batch),
        logit_rows=np.concatenate(wanted) if wanted else np.zeros(0, np.int64),
        logit_offsets=np.array(logit_begins, np.int32),
        ancestors=tuple(masks),
        wide=tuple(rows.wide for rows in batch),
    )
