"""An EAGLE head as drafter: chains, or trees where a shape is given, from the target's own hidden states.

Row t of the head's cache belongs to token t+1 and takes the target's hidden states after token t. They come with the
commits, for every row that was kept; so at a round's start the head first feeds what it has not seen of them (prompt,
accepted tokens, bonus), then drafts on with its own output in their place. Rows it drafted fall away at the round's
end: the next round writes them anew, from the target's states.

A sequence whose states are not all there (its pages were taken by others, or its head's cache was) goes on without
drafts until the target feeds it from the start again: an empty draft is always legal (D4).

Invariant: a draft depends on the item, the noise and the target's states alone; where these are the same bits whatever
is beside them, so are the drafts (D5).

Source: EAGLE-3 (Li et al. 2025), section 3.1.
Does not know: the target, how the head was made, sampling (`choice`), which nodes a tree has (`tree_shape`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.drafters.eagle_tree import grow_all, start
from draftproof.drafters.second_model import Run, SecondModelDrafter
from draftproof.drafters.tree_children import Children
from draftproof.drafters.tree_pages import Branches, Copies, rows_ahead
from draftproof.drafters.tree_shape import Shape
from draftproof.errors import UnknownDrafter
from draftproof.models.batch import Rows
from draftproof.protocols import KVCache, Noise, Target
from draftproof.types import Commit, FloatArray, Logits, StepBatch, StepItem

States = NDArray[np.float32]
MIN_PATH = 0.5  # another forward of the head and row of the target pay about from here on (docs/LOG.md)


class Head(Target, Protocol):
    """The head as a model with pages: also takes hidden states, also gives its own."""

    def draft(self, batch: StepBatch, features: States | None, own: States | None) -> tuple[Logits, States]:
        """(logits [n, Vd], output [n, H]) of the wanted rows, from one of features [R, F] and own [R, H]."""
        ...


class _Seen:
    """The target's states of one sequence from position `begin` on, as far as the head may need them yet."""

    def __init__(self) -> None:
        self.begin = self.end = 0
        self._parts: list[FloatArray] = []

    def add(self, start: int, states: FloatArray) -> None:
        """States of positions start, start + 1, ...; those that were there from `start` on are replaced."""
        if start > self.end:  # a gap: what lies before it can't be used
            self._parts, self.begin = [], start
        elif start < self.end:
            self._parts = [self.rows(self.begin, max(start, self.begin))]
            self.begin = min(start, self.begin)
        self._parts.append(states)
        self.end = start + len(states)

    def rows(self, first: int, last: int) -> FloatArray:
        """[last - first, F]"""
        whole = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        self._parts = [whole]
        return whole[first - self.begin : last - self.begin]

    def drop_before(self, position: int) -> None:
        """Frees what the head has read."""
        if position > self.begin:
            kept = self.rows(position, self.end).copy()
            self._parts, self.begin = [kept], position


class EagleDrafter(SecondModelDrafter):
    """Drafts from a head; arguments as of the base, where `target` is the head.

    min_path: the head drafts on while it gives its chain so far at least this. tree: which trees to draft, None for
    chains; rule `block` has chains in any case.
    """

    name = "eagle"
    wants = frozenset({"features"})
    keeps_drafts = False

    def __init__(
        self,
        target: Head,
        ledger: KVCache,
        vocab_size: int,
        *,
        mapping: ArrayLike | None = None,
        min_path: float = MIN_PATH,
        tree: Shape | None = None,
        chunk: int = 256,
    ) -> None:
        if not 0 <= min_path < 1:
            raise UnknownDrafter(f"{self.name} needs min_path in [0, 1), got {min_path}")
        super().__init__(target, ledger, vocab_size, mapping=mapping, chunk=chunk)
        self._head, self._min_path, self._tree = target, min_path, tree
        self._page_size = target.page_size
        self._seen: dict[int, _Seen] = {}

    def observe(self, commits: Sequence[Commit]) -> None:
        """Takes the states of the kept rows; drops the rows that were drafted."""
        super().observe(commits)
        for commit in commits:
            if commit.features is not None and commit.finish is None:
                self._seen.setdefault(commit.seq, _Seen()).add(commit.start, commit.features)

    def forget(self, seq: int) -> None:
        """Frees the pages and states of this sequence."""
        super().forget(seq)
        self._seen.pop(seq, None)

    def _open(self, item: StepItem, batch: Collection[int]) -> Run | None:
        """Room for the rows to catch up with and the ones to draft; None where a draft can't be made."""
        room = min(item.budget, self._max_len - len(item.tokens))
        seen = self._seen.get(item.seq)
        if room < 1 or seen is None or len(item.tokens) < 2 or seen.end < len(item.tokens) - 1:
            return None
        rows = self._cache.open(item.seq, item.tokens[1:], self._ahead(item, room), batch)
        if rows is None:
            return None
        if rows.count < seen.begin:  # its pages were taken: the states they were made from are gone
            self._cache.release(item.seq)
            return None
        return Run(item, room, rows)

    def _shape(self, item: StepItem) -> Shape | None:
        """Of this sequence's trees; None where it has chains."""
        params = item.params
        return None if params.draws_drafts and params.resolved_rule == "block" else self._tree

    def _ahead(self, item: StepItem, room: int) -> int:
        """Rows of the head's cache behind the committed ones; the last node is never fed."""
        shape = self._shape(item)
        if shape is None:
            return room - 1
        return rows_ahead(len(item.tokens) - 1, *_extent(shape, room), self._page_size)

    def _draft(self, runs: Sequence[Run], noise: Noise) -> None:
        chains = [run for run in runs if self._shape(run.item) is None]
        if chains:
            self._draft_chains(chains, noise)
        trees = [(run, shape) for run in runs if (shape := self._shape(run.item)) is not None]
        if trees:
            self._draft_trees(trees, noise)

    def _draft_trees(self, runs: Sequence[tuple[Run, Shape]], noise: Noise) -> None:
        logits, own = self._catch_up([run for run, _ in runs])
        trees = []
        for run, shape in runs:
            assert run.rows.slots is not None
            children = Children(run.item, noise, self._vocab)
            length, extent = len(run.item.tokens) - 1, _extent(shape, run.room)
            branches = Branches(run.rows.slots.table, length, *extent, self._page_size)
            trees.append(start(run.item, shape, run.room, children, branches))
        grow_all(trees, logits, own, self._forward)
        for (run, _), tree in zip(runs, trees, strict=True):
            run.draft = tree.draft()

    def _forward(self, parts: list[Rows], copies: Copies, states: States) -> tuple[Logits, States]:
        self._head.copy_pages(copies)
        return self._head.draft(self._cache.batch(parts), None, states)

    def _draft_chains(self, runs: Sequence[Run], noise: Noise) -> None:
        choices = [self._choice(run, noise, min_path=self._min_path) for run in runs]
        logits, own = self._catch_up(runs)
        growing = list(zip(runs, choices, strict=True))
        while True:
            for index, (_, choice) in enumerate(growing):
                choice.extend(logits.row(index))
            left = [index for index, (_, choice) in enumerate(growing) if not choice.ended]
            if not left:
                break
            growing = [growing[index] for index in left]
            parts = [self._cache.part(run.rows, np.array(choice.tokens[-1:], np.int32)) for run, choice in growing]
            logits, own = self._head.draft(self._cache.batch(parts), None, own[left])
        for run, choice in zip(runs, choices, strict=True):
            run.draft = choice.draft()

    def _catch_up(self, runs: Sequence[Run]) -> tuple[Logits, States]:
        """Feeds what is missing of each sequence; (logits, output) after its last token."""
        chunk = self._cache.chunk
        for run in runs:
            while len(run.item.tokens) - 1 - run.rows.count > chunk:
                self._feed([run], [chunk], wants_logits=False)
        return self._feed(runs, [len(run.item.tokens) - 1 - run.rows.count for run in runs])

    def _feed(self, runs: Sequence[Run], counts: Sequence[int], *, wants_logits: bool = True) -> tuple[Logits, States]:
        parts: list[Rows] = []
        states: list[FloatArray] = []
        for run, count in zip(runs, counts, strict=True):
            first = run.rows.count
            seen = self._seen[run.item.seq]
            states.append(seen.rows(first, first + count))
            tokens = run.item.tokens[first + 1 : first + 1 + count]
            parts.append(self._cache.part(run.rows, tokens, wants_logits=wants_logits))
            seen.drop_before(first + count - 1)  # the last row is fed again where a step breaks off
        return self._head.draft(self._cache.batch(parts), np.concatenate(states), None)


def _extent(shape: Shape, room: int) -> tuple[int, int]:
    """(most rows, most branches) that a tree of `room` nodes writes to the head's cache."""
    return min(len(shape.widths), room) - 1, shape.most_fed(room)
