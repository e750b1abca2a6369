"""Prompt lookup: if the last tokens occurred before, guess that what followed then follows now.

The longest suffix n-gram, of `max_ngram` down to `min_ngram` tokens, that ends somewhere before the last token is
looked up; of several occurrences the most recent one is continued, so [1, 2, 9, 1, 2, 7, 1, 2] drafts [7, 1, 2]. Where
the continuation runs into the end of the text it goes on in its own copy: a loop of period k is drafted around. A stop
id ends the copy, inclusive. (Saxena, "Prompt lookup decoding", 2023.)

Invariant: only committed tokens are indexed, each end position once, and the last one only when a token follows it: so
a suffix never matches itself, and a draft that was refused leaves no trace.

Does not know: models, laws, other sequences.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from draftproof.drafters.history import History, cut_after_stop
from draftproof.errors import UnknownDrafter
from draftproof.protocols import Noise
from draftproof.types import EMPTY_DRAFT, Commit, Draft, Ids, StepItem, chain


class _Index:
    """n-gram -> end of its most recent occurrence (the index of the token that followed)."""

    def __init__(self, sizes: range) -> None:
        self.history = History()
        self._sizes = sizes  # longest first
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0  # ends 1.._indexed are in

    def catch_up(self, tokens: Ids) -> None:
        """Indexes every end before the last token. tokens: int32[L], beginning with what was seen."""
        self.history.catch_up(tokens)
        ids, ends, last = self.history.ids, self._ends, len(self.history) - 1
        for end in range(self._indexed + 1, last + 1):
            for size in self._sizes:
                if size <= end:
                    ends[tuple(ids[end - size : end])] = end
        self._indexed = max(self._indexed, last)

    def continuation(self, budget: int, stop_ids: Collection[int]) -> list[int]:
        """Up to `budget` tokens that followed the longest known suffix."""
        ids = self.history.ids
        for size in self._sizes:
            if size < len(ids):
                end = self._ends.get(tuple(ids[-size:]))
                if end is not None:
                    return cut_after_stop(_copy(ids, end, budget), stop_ids)
        return []


def _copy(ids: list[int], start: int, count: int) -> list[int]:
    """`count` tokens from `start` on, going round in the copy itself after the last token."""
    copied = ids[start : start + count]
    period = len(ids) - start
    for index in range(len(copied), count):
        copied.append(copied[index - period])
    return copied


class NgramDrafter:
    """Chains copied from the sequence's own past; "fixed" siblings, no laws.

    max_ngram, min_ngram: lengths of suffix tried, longest first. One-token suffixes match by chance on open text.
    """

    name = "ngram"
    wants: frozenset[str] = frozenset()

    def __init__(self, max_ngram: int = 3, min_ngram: int = 2) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise UnknownDrafter(f"ngram needs 1 <= min_ngram <= max_ngram, got {min_ngram} and {max_ngram}")
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._indices: dict[int, _Index] = {}

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One chain for each item; empty where nothing matches."""
        return [self._draft(item) if item.budget > 0 else EMPTY_DRAFT for item in items]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing: committed tokens come with the next item."""

    def forget(self, seq: int) -> None:
        """Drops the index of this sequence."""
        self._indices.pop(seq, None)

    def _draft(self, item: StepItem) -> Draft:
        index = self._indices.get(item.seq)
        if index is None or not index.history.precedes(item.tokens):
            index = self._indices[item.seq] = _Index(self._sizes)
        index.catch_up(item.tokens)
        tokens = index.continuation(item.budget, item.stop_ids)
        return chain(tokens) if tokens else EMPTY_DRAFT
