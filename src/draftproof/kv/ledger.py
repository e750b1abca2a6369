"""Which cache rows belong to which sequence: integers only, pages with reference counts.

Row r of a sequence is its token position; it lives in page table[r // page_size] at offset r % page_size. A step
*reserves* rows behind the kept ones, and *commits* those that survive: keeping is rolling back. Pages beyond the kept
rows are free again at once (B23); a forked sequence shares its parent's pages until one of the two writes into one.

Full pages of a prompt may be `publish`ed: they outlive their sequence as long as nobody needs the room, and another
sequence that begins with the same tokens `adopt`s them instead of computing them again.

Invariants, proved by `check`: a page's reference count is the number of tables that name it, and one more where it is
published; a page is free exactly when its count is 0; between steps a sequence holds ceil(kv_len / page_size) pages and
not one more; a page that is shared is never one that a reserved row falls into.

Does not know: tensors, layers, devices, tokens, requests, or in which order sequences run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from draftproof.errors import EngineError
from draftproof.kv.prefix import PrefixIndex
from draftproof.types import NO_MOVES, Ids, Moves, Slots

_FIRST_CAPACITY = 8  # pages a new table has room for; it doubles


class _Book:
    """What one sequence holds. `pages` is the truth, `table` its int32 twin that is handed out without a copy."""

    __slots__ = ("kv_len", "open_rows", "pages", "table", "view")

    def __init__(self, capacity: int = _FIRST_CAPACITY) -> None:
        self.kv_len = 0
        self.open_rows: int | None = None  # rows of the reserve that waits for its commit
        self.pages: list[int] = []
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        self.table: Ids = np.zeros(capacity, np.int32)  # [capacity]
        self.view: Ids = self.table.view()  # the same memory, read-only
        self.view.setflags(write=False)

    def append(self, pages: list[int]) -> None:
        begin, end = len(self.pages), len(self.pages) + len(pages)
        if end > len(self.table):
            self._allocate(max(end, 2 * len(self.table)))
            self.table[:begin] = self.pages
        self.table[begin:end] = pages
        self.pages += pages

    def replace_last(self, page: int) -> None:
        self.pages[-1] = page
        self.table[len(self.pages) - 1] = page


class PageLedger:
    """Host half of a paged cache (`KVCache`): num_pages pages of page_size rows each.

    pages_per_sequence: most pages one table may name; None is all of them.
    Source of the page idea: Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention" (2023), §4.
    """

    def __init__(self, num_pages: int, page_size: int, pages_per_sequence: int | None = None) -> None:
        if num_pages < 1 or page_size < 1 or (pages_per_sequence is not None and pages_per_sequence < 1):
            raise ValueError(f"a ledger needs at least one page of one row, got {num_pages} of {page_size}")
        self.num_pages = num_pages
        self.page_size = page_size
        self.max_rows = min(num_pages, pages_per_sequence or num_pages) * page_size  # of one sequence alone
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: the page freed last is warm
        self._references = [0] * num_pages
        self._books: dict[int, _Book] = {}
        self._known = PrefixIndex(page_size)

    @property
    def free_pages(self) -> int:
        """Pages nobody holds, those that only wait to be adopted included."""
        return len(self._free) + self._known.num_idle

    @property
    def idle_pages(self) -> int:
        """Pages that nobody holds and that wait to be adopted."""
        return self._known.num_idle

    def pages_for(self, rows: int) -> int:
        """Pages that hold this many rows."""
        return -(-rows // self.page_size)

    def kv_len(self, seq: int) -> int:
        """Rows kept of a sequence; 0 for one the ledger does not hold."""
        book = self._books.get(seq)
        return 0 if book is None else book.kv_len

    def pages_held(self, seq: int) -> int:
        """Pages a sequence holds now, shared ones and those of an open reserve included."""
        book = self._books.get(seq)
        return 0 if book is None else len(book.pages)

    def pages_needed(self, seq: int, rows: int) -> int:
        """Free pages that `reserve(seq, rows)` would take."""
        book = self._books.get(seq)
        if book is None:
            return self.pages_for(rows)
        return self.pages_for(book.kv_len + rows) - len(book.pages) + self._writes_shared(book)

    def reserve(self, seq: int, rows: int) -> Slots | None:
        """Room for `rows` >= 1 new rows behind the kept ones; None when there is none, and then nothing changed.

        The table in the answer is a read-only view, valid until this sequence's commit. `Slots.copies` are to be made
        before anything is written. Raises EngineError when the last reserve was not committed.
        """
        book = self._books.get(seq)
        if book is None:
            book = _Book()
        elif book.open_rows is not None:
            raise EngineError(f"sequence {seq} reserved rows twice without a commit between")
        if rows < 1:
            raise EngineError(f"sequence {seq} reserved {rows} rows: a step has at least one")
        start = book.kv_len
        total = -(-(start + rows) // self.page_size)
        fresh = total - len(book.pages)
        shared = self._writes_shared(book)
        if fresh + shared > self.free_pages or start + rows > self.max_rows:
            return None
        self._books[seq] = book
        copies = (self._own_last(book),) if shared else ()
        if fresh:
            book.append([self._take() for _ in range(fresh)])
        book.open_rows = rows
        return Slots(book.view[:total], start, rows, copies)

    def commit(self, seq: int, kept: Sequence[int]) -> Moves:
        """Keeps these rows of the last reserve, in this order, and frees the rest; a chain moves nothing.

        kept: rising row indices; row kept[i] becomes row i. The moves are to be made in order, before the next reserve.
        Raises EngineError without an open reserve, or for rows that are not in it.
        """
        book = self._books.get(seq)
        if book is None or book.open_rows is None:
            raise EngineError(f"sequence {seq} has no reserved rows to commit")
        num_kept = len(kept)
        moves = NO_MOVES
        if kept != range(num_kept):  # a range compares in constant time; a tuple never equals one
            moves = self._gather(book, list(kept))
        elif num_kept > book.open_rows:
            raise EngineError(f"sequence {seq} keeps {num_kept} rows of {book.open_rows}")
        book.open_rows = None
        book.kv_len += num_kept
        keep = -(-book.kv_len // self.page_size)
        if keep < len(book.pages):
            self._drop(book.pages[keep:])
            del book.pages[keep:]
        return moves

    def release(self, seq: int) -> None:
        """Frees everything of this sequence, an open reserve too. One that holds nothing is no error."""
        book = self._books.pop(seq, None)
        if book is not None:
            self._drop(book.pages)

    def fork(self, parent_seq: int, child_seq: int) -> None:
        """Gives `child_seq` the parent's kept rows without copying: pages are shared until one of the two writes.

        Raises EngineError for an unknown or reserving parent, or a child that exists.
        """
        parent = self._books.get(parent_seq)
        if parent is None or parent.open_rows is not None:
            raise EngineError(f"sequence {parent_seq} can't be forked: it holds no rows, or is in the middle of a step")
        if child_seq in self._books:
            raise EngineError(f"sequence {child_seq} exists: a fork needs a new number")
        child = _Book(max(_FIRST_CAPACITY, len(parent.pages)))
        child.kv_len = parent.kv_len
        child.append(list(parent.pages))
        for page in child.pages:
            self._references[page] += 1
        self._books[child_seq] = child

    def publish(self, seq: int, prompt: Ids) -> None:
        """Makes the full pages of a sequence's first rows known by int32[n] prompt, whose rows they are.

        Raises EngineError for more tokens than there are kept rows.
        """
        book = self._books.get(seq)
        if book is None or len(prompt) > book.kv_len:
            raise EngineError(f"sequence {seq} publishes {len(prompt)} rows that it has not kept")
        for page in self._known.add(prompt, book.pages):
            self._references[page] += 1

    def adopt(self, seq: int, prompt: Ids) -> int:
        """Begins a sequence with the longest published beginning of int32[n] prompt; the rows it has now, maybe 0.

        Raises EngineError for a sequence that holds rows.
        """
        if seq in self._books:
            raise EngineError(f"sequence {seq} holds rows: it can't begin anew")
        pages = self._known.find(prompt)
        if pages:
            self._books[seq] = book = _Book(max(_FIRST_CAPACITY, len(pages)))
            book.kv_len = len(pages) * self.page_size
            book.append(pages)
            for page in pages:
                self._references[page] += 1
                self._known.wake(page)
        return len(pages) * self.page_size

    def check(self) -> None:
        """Raises EngineError if any invariant of this module is broken. Costs a walk over all pages."""
        counted = [0] * self.num_pages
        for seq, book in self._books.items():
            self._check_book(seq, book)
            for page in book.pages:
                counted[page] += 1
        if self._known.idle != {page for page in self._known if not counted[page]}:
            raise EngineError("idle pages are not the published ones that no table names")
        for page in self._known:
            counted[page] += 1
        if counted != self._references:
            raise EngineError("reference counts differ from the tables that name the pages")
        broken = self._known.broken()
        if broken is not None:
            raise EngineError(broken)
        if sorted(self._free) != [page for page in range(self.num_pages) if counted[page] == 0]:
            raise EngineError("the free list is not the set of pages that nobody holds: a leak, or a page used twice")

    def _check_book(self, seq: int, book: _Book) -> None:
        rows = book.kv_len + (book.open_rows or 0)
        if len(book.pages) != self.pages_for(rows) or rows > self.max_rows:
            raise EngineError(f"sequence {seq} holds {len(book.pages)} pages for {rows} rows")
        if len(set(book.pages)) != len(book.pages) or book.view[: len(book.pages)].tolist() != book.pages:
            raise EngineError(f"sequence {seq} has a page twice, or a table that lags behind")
        written = book.pages[book.kv_len // self.page_size :] if book.open_rows else []
        if any(self._references[page] > 1 for page in written):
            raise EngineError(f"sequence {seq} would write into a page that another one reads")

    def _writes_shared(self, book: _Book) -> bool:
        """True when the next row falls into a partly filled page that another table names too."""
        return book.kv_len % self.page_size != 0 and self._references[book.pages[-1]] > 1

    def _take(self) -> int:
        page = self._free.pop() if self._free else self._known.give_back()
        self._references[page] = 1
        return page

    def _own_last(self, book: _Book) -> tuple[int, int]:
        """Swaps the shared last page for an own one: (source page, own page)."""
        source, own = book.pages[-1], self._take()
        self._references[source] -= 1
        book.replace_last(own)
        return source, own

    def _drop(self, pages: list[int]) -> None:
        references = self._references
        for page in reversed(pages):  # a page rests before the one it follows (`kv.prefix`)
            references[page] -= 1
            if not references[page]:
                self._free.append(page)
            elif references[page] == 1 and page in self._known:
                self._known.rest(page)

    def _gather(self, book: _Book, kept: list[int]) -> Moves:
        """The copies kept[i] -> i. Rising rows make the order safe: no source is overwritten before it is read."""
        if not kept:
            return NO_MOVES
        rising = all(low < high for low, high in pairwise(kept))
        if not rising or kept[0] < 0 or kept[-1] >= (book.open_rows or 0):
            raise EngineError(f"kept rows {kept} are not rising rows of the {book.open_rows} reserved ones")
        moved = [(row, target) for target, row in enumerate(kept) if row != target]
        if not moved:
            return NO_MOVES
        return Moves(self._places(book, [row for row, _ in moved]), self._places(book, [target for _, target in moved]))

    def _places(self, book: _Book, rows: list[int]) -> Ids:
        """int32[k, 2]: page and offset of these rows of the open reserve."""
        size, start, pages = self.page_size, book.kv_len, book.pages
        return np.array([(pages[(start + row) // size], (start + row) % size) for row in rows], np.int32)


class SlotLedger(PageLedger):
    """The contiguous reference: one slot of max_len rows a sequence, a table of one page.

    Same answers to the same calls as any `PageLedger` with room, because it is one: a slot is a page that no sequence
    outgrows. It wastes what a sequence leaves unused; it is here to be compared with.
    """

    def __init__(self, num_slots: int, max_len: int) -> None:
        super().__init__(num_slots, max_len, pages_per_sequence=1)
