"""A `StepBatch` -> the inputs of OpenVINO's paged attention.

The operation has two attention kernels: one for sequences with a single row in the step, one for several. Each gives a
row the same bits whatever is beside it, but not the bits of the other. So a row's kernel must follow from its place in
the text alone: prompt rows go together (`StepBatch.wide`), every later row is a sequence of its own whose past ends
just before it. Keys and values of all rows are written before any is read, so a draft row sees the ones before it; and
the single-row kernel is the faster one for the few rows of a draft.

The two never share a step within one sequence: the kernel for several rows clears the rest of the last page it writes.

Where numerics are invariant, a lone prompt row is doubled (the second is written behind it, never kept), and so is a
lone row of a step or of the vocabulary product: products of one row take another kernel.

Does not know: sequences, requests, which rows are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.models.graph import PAGE_SIZE
from draftproof.types import Ids, StepBatch

_PAGES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """One forward as attention's sequences; R' >= R rows, some of them a row of the batch once more."""

    inputs: dict[str, NDArray[Any]]
    rows: NDArray[np.int64]  # [R'] the batch's row that each is
    places: NDArray[np.int64]  # [R] where each row of the batch is found


def layout(batch: StepBatch, doubled: bool) -> Layout:
    """doubled: no product and no prompt chunk of one row (invariant numerics)."""
    if any(mask is not None for mask in batch.ancestors):
        return _masked(batch)
    parts = _Parts(batch)
    for index in range(len(batch.past_lens)):
        parts.add(index, doubled)
    if doubled and len(parts.rows) == 1:
        parts.again()
    rows = np.array(parts.rows, np.int64)
    places = np.array(parts.places, np.int64)
    wanted = places[batch.logit_rows]
    if doubled and len(wanted) < 2:
        wanted = np.resize(wanted, 2) if len(wanted) else np.arange(2, dtype=np.int64)
    inputs = {
        "input_ids": batch.input_ids[rows],
        "position_ids": batch.positions[rows],
        "rows": wanted,
        **_attention(parts.past, parts.widths, parts.tables),
        "qq_bias": np.zeros(0, np.uint8),
        "qq_bias_begins": np.zeros(0, np.int32),
    }
    return Layout(inputs, rows, places)


def padded(inputs: dict[str, NDArray[Any]], num_rows: int, page: int) -> dict[str, NDArray[Any]]:
    """The inputs with rows added that nobody reads, each a sequence of one token that writes to `page`.

    Logits are asked for num_rows rows, and page numbers come in a multiple of `_PAGES`: the same shapes step for step.
    """
    extra = num_rows - len(inputs["input_ids"])
    past, begins = inputs["past_lens"], inputs["subsequence_begins"]
    pages, ends = inputs["block_indices"], inputs["block_indices_begins"]
    more = np.arange(1, extra + 1, dtype=np.int32)
    spare = -(len(pages) + extra) % _PAGES  # page numbers behind the last sequence's are not looked at
    return inputs | {
        "input_ids": _longer(inputs["input_ids"], num_rows),
        "position_ids": _longer(inputs["position_ids"], num_rows),
        "rows": _longer(inputs["rows"], num_rows),
        "past_lens": _longer(past, len(past) + extra),
        "subsequence_begins": np.concatenate([begins, begins[-1] + more]),
        "block_indices": np.concatenate([pages, np.full(extra + spare, page, np.int32)]),
        "block_indices_begins": np.concatenate([ends, ends[-1] + more]),
    }


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Zeros behind it up to this length."""
    if len(array) == length:
        return array
    out = np.zeros(length, array.dtype)
    out[: len(array)] = array
    return out


class _Parts:
    """Attention's sequences as they are laid out: `rows` of the batch in their order, `places` of the batch's rows."""

    def __init__(self, batch: StepBatch) -> None:
        self._batch = batch
        self._begins: list[int] = batch.offsets.tolist()
        self._past: list[int] = batch.past_lens.tolist()
        self._wide = batch.wide or (False,) * len(self._past)
        self.rows: list[int] = []
        self.places: list[int] = []
        self.past: list[int] = []
        self.widths: list[int] = []
        self.tables: list[Ids] = []

    def add(self, index: int, doubled: bool) -> None:
        """All rows of one sequence: prompt rows together, later ones one by one."""
        begin, end, past = self._begins[index], self._begins[index + 1], self._past[index]
        table = self._batch.tables[index]
        if self._wide[index]:
            self.places.extend(range(len(self.rows), len(self.rows) + end - begin))
            together = list(range(begin, end))
            self._append(together * 2 if doubled and len(together) == 1 else together, past, table)
            return
        for row in range(begin, end):
            self.places.append(len(self.rows))
            self._append([row], past + row - begin, table)

    def again(self) -> None:
        """The only row once more, as a sequence of its own that writes the same bits into the same slot."""
        self._append(list(self.rows), self.past[0], self.tables[0])

    def _append(self, rows: list[int], past: int, table: Ids) -> None:
        self.rows.extend(rows)
        self.past.append(past)
        self.widths.append(len(rows))
        self.tables.append(table[: -(-(past + len(rows)) // PAGE_SIZE)])


def _masked(batch: StepBatch) -> Layout:
    """Every sequence with all its rows under an ancestor mask [T, T], row-major, one after another (fast numerics)."""
    past, widths = batch.past_lens.tolist(), np.diff(batch.offsets).tolist()
    tables = [
        table[: -(-(before + width) // PAGE_SIZE)]
        for table, before, width in zip(batch.tables, past, widths, strict=True)
    ]
    masks = [
        (np.tri(width, dtype=np.uint8) if mask is None else mask.astype(np.uint8)).ravel()
        for mask, width in zip(batch.ancestors, widths, strict=True)
    ]
    inputs = {
        "input_ids": batch.input_ids,
        "position_ids": batch.positions,
        "rows": batch.logit_rows,
        **_attention(past, widths, tables),
        "qq_bias": np.concatenate(masks),
        "qq_bias_begins": _begins([len(mask) for mask in masks]),
    }
    same = np.arange(len(batch.input_ids), dtype=np.int64)
    return Layout(inputs, same, same)


def _attention(past: Sequence[int], widths: Sequence[int], tables: Sequence[Ids]) -> dict[str, NDArray[Any]]:
    longest = max(before + width for before, width in zip(past, widths, strict=True))
    return {
        "past_lens": np.array(past, np.int32),
        "subsequence_begins": _begins(widths),
        "block_indices": np.concatenate(tables),
        "block_indices_begins": _begins([len(table) for table in tables]),
        "max_context_len": np.array(longest, np.int32),
    }


def _begins(sizes: Sequence[int]) -> NDArray[np.int32]:
    out = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=out[1:])
    return out
