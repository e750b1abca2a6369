"""A second model's own cache: which rows of which sequence it holds, caught up and rolled back inside `propose`.

A propose *opens* a sequence: keeps the longest part of what was written that is still true of the committed tokens
(refused drafts fall away: rollback is a number), reserves rows for everything the model has not seen and for the
look-ahead, and leaves that reservation open, because only the next commit tells which drafted rows stay. So full
acceptance, rounds without drafts and prompts need no case of their own: what is missing is fed.

Invariant: after `observe`, and again inside `open`, the rows kept are a prefix of tokens[:-1]; the last token is always
fed, for its logits are what the draft begins with. A sequence without room takes the pages of the one drafted longest
ago outside the batch, or goes without a draft.

Does not know: laws, rules, how a token is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from draftproof.errors import EngineError
from draftproof.models.batch import Rows, flat_batch
from draftproof.protocols import KVCache, Target
from draftproof.types import EMPTY_IDS, Commit, Ids, Slots, StepBatch, TargetOutput


class OwnRows:
    """The rows of one sequence in the drafter's cache."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.count = 0  # rows written and not rolled back
        self.kept = 0  # of these, rows the ledger has committed
        self.length = 0  # committed tokens at the last open
        self.slots: Slots | None = None  # the open reservation
        self._tokens: Ids = np.empty(64, np.int32)

    @property
    def tokens(self) -> Ids:
        """int32[count]: the token in each row."""
        return self._tokens[: self.count]

    def put(self, tokens: Ids) -> None:
        """Notes rows that are about to be written."""
        end = self.count + len(tokens)
        if end > len(self._tokens):
            self._tokens = np.concatenate([self.tokens, np.empty(2 * end - self.count, np.int32)])
        self._tokens[self.count : end] = tokens
        self.count = end

    def shared_with(self, tokens: Ids) -> int:
        """How many first rows hold the first of these tokens."""
        common = min(self.count, len(tokens))
        differs = self._tokens[:common] != tokens[:common]
        return int(differs.argmax()) if differs.any() else common


class OwnCache:
    """Rows of many sequences over one Target and one ledger; both belong to the drafter alone.

    keeps_drafts: a drafted row that was accepted stays; else it falls away, since it will be written better.
    """

    def __init__(self, target: Target, ledger: KVCache, chunk: int, *, keeps_drafts: bool = True) -> None:
        self._target, self._ledger, self.chunk, self._keeps_drafts = target, ledger, chunk, keeps_drafts
        self._rows: dict[int, OwnRows] = {}  # the one drafted longest ago first

    def open(self, seq: int, tokens: Ids, look_ahead: int, batch: Collection[int]) -> OwnRows | None:
        """Room to feed tokens int32[L] and `look_ahead` rows more; None when there is none.

        batch: the sequences whose pages may not be taken for it.
        """
        rows = self._rows.pop(seq, None) or OwnRows(seq)
        self._rows[seq] = rows
        self._roll_back(rows, rows.shared_with(tokens[:-1]))
        wanted = len(tokens) - rows.kept + look_ahead + self._target.min_rows - 1  # a last row may need padding
        slots = self._ledger.reserve(seq, wanted)
        while slots is None and self._evict(batch):
            slots = self._ledger.reserve(seq, wanted)
        if slots is None:
            return None
        if slots.start != rows.kept:
            raise EngineError(f"the drafter's ledger holds {slots.start} rows of sequence {seq}, not {rows.kept}")
        if slots.copies:
            self._target.copy_pages(slots.copies)
        rows.slots, rows.length = slots, len(tokens)
        return rows

    def catch_up(self, runs: Sequence[OwnRows], tokens: Sequence[Ids]) -> TargetOutput:
        """Feeds what is missing of each sequence's tokens int32[L]; one row of logits each, after its last token."""
        for rows, ids in zip(runs, tokens, strict=True):
            while len(ids) - rows.count > self.chunk:
                self.forward([self.part(rows, ids[rows.count : rows.count + self.chunk], wants_logits=False)])
        return self.forward([self.part(rows, ids[rows.count :]) for rows, ids in zip(runs, tokens, strict=True)])

    def part(self, rows: OwnRows, tokens: Ids, *, wants_logits: bool = True) -> Rows:
        """The next rows of one sequence, a chain that stays: logits are those after its last token."""
        start = rows.count
        rows.put(tokens)
        return Rows(tokens, len(tokens), _behind(rows, start, len(tokens)), None, wants_logits)

    def tree_part(self, rows: OwnRows, tokens: Ids, parents: Ids) -> Rows:
        """A tree int32[n] behind the last row, which is written again as its root; no row of it stays."""
        again = np.concatenate([rows.tokens[-1:], tokens])  # [1 + n]
        return Rows(again, 1, _behind(rows, rows.count - 1, len(again)), parents)

    def forward(self, parts: Sequence[Rows]) -> TargetOutput:
        """One flat forward of the drafter's model."""
        return self._target.verify(self.batch(parts))

    def batch(self, parts: Sequence[Rows]) -> StepBatch:
        """The rows as the drafter's model takes them."""
        return flat_batch(parts, self._target.packed_rows)

    def observe(self, commit: Commit) -> None:
        """Gives back at once what a decided round made untrue; the next `open` would find it out as well."""
        rows = self._rows.get(commit.seq)
        if rows is None or rows.slots is None:
            return
        drafted, emitted = rows.tokens[rows.length :] if self._keeps_drafts else EMPTY_IDS, commit.tokens
        common = min(len(drafted), len(emitted) - 1)  # the last emitted token is fed by the next draft
        differs = drafted[: max(common, 0)] != emitted[: max(common, 0)]
        same = int(differs.argmax()) if differs.any() else common
        self._roll_back(rows, min(rows.count, rows.length + same))

    def release(self, seq: int) -> None:
        """Forgets a sequence and frees its pages."""
        if self._rows.pop(seq, None) is not None:
            self._ledger.release(seq)

    def _roll_back(self, rows: OwnRows, count: int) -> None:
        """Keeps the first `count` rows; where the ledger has committed more than that, none."""
        if count < rows.kept:
            self._ledger.release(rows.seq)
            rows.count = rows.kept = 0
        elif rows.slots is not None:
            moves = self._ledger.commit(rows.seq, range(count - rows.kept))
            assert not moves, "a chain moves nothing"
            rows.count = rows.kept = count
        rows.slots = None

    def _evict(self, batch: Collection[int]) -> bool:
        """Takes the pages of the sequence drafted longest ago that is not in the batch; False when there is none."""
        for seq, rows in self._rows.items():
            if seq not in batch and rows.count:
                self.release(seq)
                return True
        return False


def _behind(rows: OwnRows, start: int, count: int) -> Slots:
    """The part of the open reservation from row `start` of the sequence on."""
    assert rows.slots is not None
    return Slots(rows.slots.table, start, count)
