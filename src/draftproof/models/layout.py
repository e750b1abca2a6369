"""A `StepBatch` (NumPy, ragged) -> the index tensors of one forward on a device.

Sequences with few rows share one padded group; one with many rows (a prompt chunk) is a group of its own, so that a
batch of decoding sequences is not padded to the length of a prompt.

Invariant: row r of a sequence lies in slot past + r, whatever its depth; a depth comes from `StepBatch.positions` only.
The page after the last one is the zero page: never written, used for padding.

Does not know: models, layers, what a row's token is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from draftproof.kv.pages import PagedStore
from draftproof.models.attention import FlatStep, Group, RowStep
from draftproof.types import StepBatch

FEW_ROWS = 16  # sequences with at most so many rows are padded to each other

Ints = NDArray[np.int64]


def _row_slots(batch: StepBatch, page_size: int) -> tuple[Ints, Ints]:
    """Page and offset of every row, int64[R] each."""
    sizes = np.diff(batch.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(owner)) - batch.offsets[owner] + batch.past_lens[owner]
    begins = np.cumsum([0, *(len(table) for table in batch.tables)])
    pages = np.concatenate(batch.tables)[begins[owner] + place // page_size]
    return pages.astype(np.int64), (place % page_size).astype(np.int64)


def _split(sizes: Ints) -> Iterator[Ints]:
    """Sequence numbers of each group."""
    few = np.flatnonzero(sizes <= FEW_ROWS)
    if len(few):
        yield few
    for number in np.flatnonzero(sizes > FEW_ROWS):
        yield np.array([number])


def _visible(batch: StepBatch, members: Ints, t: int, length: int) -> NDArray[np.bool_]:
    """bool[b, t, L]: the past and the rows before, or the ancestors where the batch names them."""
    past = batch.past_lens[members].astype(np.int64)
    visible = np.arange(length) <= (past[:, None] + np.arange(t))[:, :, None]
    for index, number in enumerate(members):
        mask = batch.ancestors[number]
        if mask is not None:
            begin, size = past[index], len(mask)
            visible[index, :size, begin : begin + size] = mask
    return visible


def _group(batch: StepBatch, members: Ints, page_size: int, zero_page: int, device: torch.device) -> Group:
    past = batch.past_lens[members].astype(np.int64)
    begins = batch.offsets[members].astype(np.int64)
    sizes = batch.offsets[members + 1] - begins
    ends = past + sizes
    num_pages = -(-ends // page_size)
    t, p = int(sizes.max()), int(num_pages.max())
    real = np.arange(t) < sizes[:, None]  # [b, t]
    rows = begins[:, None] + np.where(real, np.arange(t), 0)
    pages = np.full((len(members), p), zero_page, np.int64)
    key_depth = np.broadcast_to(np.arange(p * page_size), (len(members), p * page_size)).copy()
    for index, number in enumerate(members):
        pages[index, : num_pages[index]] = batch.tables[number][: num_pages[index]]
        key_depth[index, past[index] : ends[index]] = batch.positions[begins[index] : begins[index] + sizes[index]]
    last = (num_pages[:, None] - 1) * page_size + np.arange(page_size)  # [b, page_size] key positions of the last page
    dead_seq, dead_offset = np.nonzero(last >= ends[:, None])

    def put(array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Group(
        rows=put(rows),
        pages=put(pages[:, None]),
        visible=put(_visible(batch, members, t, p * page_size)),
        row_depth=put(batch.positions[rows]),
        key_depth=put(key_depth),
        dead=(put(dead_seq), put(last[dead_seq, dead_offset])),
        places=put(np.flatnonzero(real)),
        flat_rows=put(rows[real]),
    )


def flat_step(batch: StepBatch, store: PagedStore, device: torch.device) -> FlatStep:
    """All rows at once."""
    page, offset = _row_slots(batch, store.page_size)
    zero_page = store.keys[0].shape[0] - 1
    groups = [
        _group(batch, members, store.page_size, zero_page, device)
        for members in _split(np.diff(batch.offsets).astype(np.int64))
    ]
    return FlatStep(store, (torch.from_numpy(page).to(device), torch.from_numpy(offset).to(device)), groups)


def row_steps(batch: StepBatch, store: PagedStore, device: torch.device) -> Iterator[RowStep]:
    """One step a row, in order. A row sees the past, its ancestors in order, and itself."""
    page, offset = (torch.from_numpy(a).to(device) for a in _row_slots(batch, store.page_size))
    for number, table in enumerate(batch.tables):
        begin, end = batch.offsets[number : number + 2].tolist()
        past, mask = int(batch.past_lens[number]), batch.ancestors[number]
        before = np.arange(past)
        old_page = torch.from_numpy(table[before // store.page_size].astype(np.int64)).to(device)
        old_offset = torch.from_numpy(before % store.page_size).to(device)
        for row in range(end - begin):
            line = np.arange(row + 1) if mask is None or row >= len(mask) else np.flatnonzero(mask[row, : row + 1])
            new = torch.from_numpy(line + begin).to(device)
            here = slice(begin + row, begin + row + 1)
            seen = (torch.cat([old_page, page[new]]), torch.cat([old_offset, offset[new]]))
            yield RowStep(store, (page[here], offset[here]), seen)
