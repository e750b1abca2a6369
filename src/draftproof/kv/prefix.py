"""Full pages of prompts that stay readable after their sequence has gone, found again by the tokens they hold.

A page is known by its own tokens and the page before it, compared token by token: no hash decides, so two prompts can't
be taken for one another. A page nobody else reads is *idle*; idle pages are given back oldest first.

Invariants: a known page's predecessor is known; whoever holds a page holds its predecessors; so a page becomes idle no
later than they do, the oldest idle page has no known successor, and giving it back breaks no chain.

Does not know: rows, sequences, reference counts (the ledger's), whether equal tokens have equal rows.
Source of the idea: Kwon et al. (2023), section 4.4 (shared prefix); vLLM's automatic prefix caching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from draftproof.types import Ids

_ROOT = -1  # stands for the page before the first
_Key = tuple[int, bytes]


class PrefixIndex:
    """Which page holds which tokens, after which page."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._page_of: dict[_Key, int] = {}
        self._key_of: dict[int, _Key] = {}
        self._idle: dict[int, None] = {}  # in order: the oldest first

    def __contains__(self, page: int) -> bool:
        return page in self._key_of

    def __iter__(self) -> Iterator[int]:
        return iter(self._key_of)

    @property
    def num_idle(self) -> int:
        """Pages that could be given back."""
        return len(self._idle)

    @property
    def idle(self) -> frozenset[int]:
        """Pages nobody reads."""
        return frozenset(self._idle)

    def find(self, tokens: Ids) -> list[int]:
        """Pages of the longest known beginning of int32[n] tokens; whole pages only."""
        pages: list[int] = []
        for key in self._keys(tokens, pages):
            page = self._page_of.get(key)
            if page is None:
                break
            pages.append(page)
        return pages

    def add(self, tokens: Ids, pages: Sequence[int]) -> list[int]:
        """Makes whole pages of a prompt known, `pages` being where it lies; the ones that are new here, not idle.

        Stops at a page whose tokens are known to lie elsewhere: the sequence does not hold that one.
        """
        held: list[int] = []
        new: list[int] = []
        for key, page in zip(self._keys(tokens, held), pages, strict=False):
            known = self._page_of.setdefault(key, page)
            if known != page:
                break
            if page not in self._key_of:
                self._key_of[page] = key
                new.append(page)
            held.append(page)
        return new

    def rest(self, page: int) -> None:
        """A known page that nobody reads any more."""
        self._idle[page] = None

    def wake(self, page: int) -> None:
        """A known page that somebody reads again."""
        self._idle.pop(page, None)

    def give_back(self) -> int:
        """Forgets the page that has been idle for longest, and returns it. Raises KeyError where none is idle."""
        page = next(iter(self._idle), None)
        if page is None:
            raise KeyError("no page is idle")
        del self._idle[page], self._page_of[self._key_of.pop(page)]
        return page

    def broken(self) -> str | None:
        """What is wrong with this index, for the ledger's check."""
        if {page: key for key, page in self._page_of.items()} != self._key_of:
            return "the prefix index names a page under two keys"
        if any(before != _ROOT and before not in self._key_of for before, _ in self._key_of.values()):
            return "a known page follows one that is not known"
        return None

    def _keys(self, tokens: Ids, before: Sequence[int]) -> Iterator[_Key]:
        """Key of each whole page; `before` holds the pages up to it by the time it is asked for."""
        size, lines = self._page_size, np.ascontiguousarray(tokens, np.int32)
        for start in range(0, len(lines) - size + 1, size):
            yield (before[-1] if before else _ROOT), lines[start : start + size].tobytes()
