"""Where the nodes of a draft tree write their rows in a second model's own cache: each branch on pages of its own.

A row is read with everything before it in its page table, so two branches can't share a page they write. The first
branch goes on behind the committed rows, on the trunk's own pages: a chain copies nothing. A node that opens another
branch gets a set of spare pages: what lies before the tree's first page is shared by naming it, the rest is copied. A
branch that nobody goes on with gives its pages back.

All pages are of one open reservation of the sequence, which the round's end rolls back.

Invariant: the table handed out for a node holds the committed rows and its ancestors' rows, in order, and no other
node's table holds the page its row is written to.
Does not know: models, tokens, ledgers, what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from draftproof.types import Ids, Slots

Branch = TypeVar("Branch")
Copies = list[tuple[int, int]]  # (source page, own page)


def rows_ahead(length: int, depth: int, branches: int, page_size: int) -> int:
    """Rows to reserve behind `length` committed ones for so many branches of at most `depth` rows."""
    trunk, own = _extent(length, depth, page_size)
    return (trunk + (branches - 1) * own) * page_size - length


def _extent(length: int, depth: int, page_size: int) -> tuple[int, int]:
    """Pages of a branch with all before it, and how many of them are its own."""
    trunk = -(-(length + depth) // page_size)
    return trunk, trunk - length // page_size


class Branches:
    """table: pages of a reservation of `rows_ahead` rows behind `length`, for these numbers."""

    def __init__(self, table: Ids, length: int, depth: int, branches: int, page_size: int) -> None:
        trunk, own = _extent(length, depth, page_size)
        self._length, self._size = length, page_size
        self._shared = table[: length // page_size]
        self._sets = [table[trunk - own + index * own :][:own] for index in range(branches)]
        self._tables: dict[int, Ids] = {}
        self._free = list(range(branches - 1, 0, -1))
        self._held: dict[int, int] = {0: 0}  # branch end -> set; 0 is the root, on the trunk's pages

    def go_on(self, ends: Sequence[int], parents: Sequence[int], depth: int) -> tuple[list[Slots], Copies]:
        """A row at this depth (from 1) for each of `ends`, behind its parent's; the copies to make before writing.

        ends, parents: numbers of their own that the caller gives to nodes; 0 is the root.
        """
        held, left = {}, dict(self._held)
        waiting: list[tuple[int, int]] = []
        for end, parent in zip(ends, parents, strict=True):
            if parent in left:
                held[end] = left.pop(parent)  # its first child goes on with its pages
            else:
                waiting.append((end, parent))
        self._free += left.values()
        copies: Copies = []
        for end, parent in waiting:
            held[end] = self._free.pop()
            copies += self._copies(self._held[parent], held[end], depth)
        self._held = held
        return [Slots(self._table(held[end]), self._length + depth - 1, 1) for end in ends], copies

    def _copies(self, source: int, own: int, depth: int) -> Copies:
        """The pages of a branch that rows were written to before this depth."""
        if not self._sets[own].size:
            return []
        first = len(self._shared)
        used = -(-(self._length + depth - 1) // self._size) - first
        return list(zip(self._sets[source][:used].tolist(), self._sets[own][:used].tolist(), strict=True))

    def _table(self, number: int) -> Ids:
        if number not in self._tables:
            self._tables[number] = np.concatenate([self._shared, self._sets[number]])
        return self._tables[number]
