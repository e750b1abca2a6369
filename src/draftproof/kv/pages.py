"""The paged physical store: per layer one array of keys and one of values, cut into pages of equal size.

    keys[layer] [num_pages, kv_heads, page_size, key_dim]    values[layer] [num_pages, kv_heads, page_size, value_dim]

Position i of a sequence with page table `t` lies in page t[i // page_size] at offset i % page_size. The arrays may be
NumPy arrays (views of another library's memory too) or torch tensors on any device: the code only uses what both
understand, integer-array indexing, so that this module loads no torch.

Invariant: only `move`, `copy_pages` and a target's forward write; a move reads all its sources before it writes.

Does not know: sequences, page tables, who owns a page (that is `ledger`), models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftproof.types import Moves

Array = Any  # numpy.ndarray or torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one row of one layer holds."""

    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers(self) -> int:
        """Numbers in one row, keys and values together."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True, eq=False)
class PagedStore:
    """Pages of all layers. `keys` and `values` have one array a layer; shapes as in the module's docstring."""

    keys: Sequence[Array]
    values: Sequence[Array]

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) != len(self.values):
            raise ValueError("a store needs as many key arrays as value arrays, at least one")
        places = {(a.shape[0], a.shape[2]) for side in (self.keys, self.values) for a in side}
        if len(places) != 1:
            raise ValueError(f"all layers need the same number and size of pages, got {sorted(places)}")

    @property
    def page_size(self) -> int:
        """Rows in a page."""
        return int(self.keys[0].shape[2])

    def move(self, moves: Moves) -> None:
        """Copies rows (page, offset) -> (page, offset) in every layer; what is read was there before the call."""
        if not moves:
            return
        source, offset = moves.src.astype(np.int64).T
        page, place = moves.dst.astype(np.int64).T
        for side in (self.keys, self.values):
            for array in side:
                array[page, :, place] = array[source, :, offset]  # [k, kv_heads, dim], the right side is a copy

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages (source, own) in every layer."""
        if not copies:
            return
        source, own = np.array(copies, np.int64).T
        for side in (self.keys, self.values):
            for array in side:
                array[own] = array[source]


def paged_store(
    shapes: Sequence[LayerShape], num_pages: int, page_size: int, zeros: Callable[[tuple[int, ...]], Array] = np.zeros
) -> PagedStore:
    """A new store. `zeros` makes one array of a given shape, for example `partial(torch.zeros, device=...)`."""
    keys = [zeros((num_pages, s.kv_heads, page_size, s.key_dim)) for s in shapes]
    values = [zeros((num_pages, s.kv_heads, page_size, s.value_dim)) for s in shapes]
    return PagedStore(keys, values)
