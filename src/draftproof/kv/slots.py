"""The contiguous reference store: one slot of `max_len` rows for each sequence, no page ever crossed.

    keys[layer] [num_slots, kv_heads, max_len, key_dim]    values[layer] [num_slots, kv_heads, max_len, value_dim]

A slot is a page as long as the longest sequence, so this is the paged store with page_size = max_len, and the ledger,
the moves and the attention code take it as it is. It is kept to be compared with: a fault in crossing page borders
shows as a difference between the two, and nothing else can.

Invariant: the page table of each sequence is one number, its slot; offsets are positions.

Does not know: sequences, models. Not for production: every slot is paid for in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftproof.kv.pages import Array, LayerShape, PagedStore, paged_store


def slot_store(
    shapes: Sequence[LayerShape], num_slots: int, max_len: int, zeros: Callable[[tuple[int, ...]], Array] = np.zeros
) -> PagedStore:
    """A new contiguous store for `num_slots` sequences of at most `max_len` rows."""
    return paged_store(shapes, num_slots, max_len, zeros)
