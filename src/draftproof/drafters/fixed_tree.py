"""A tree of fixed shape, filled by rank: at each level the best few tokens of a second model's law after each node.

widths (3, 2, 1) means three candidates after the root, two after each of them, one after each of those. Under `coupled`
the ranking is that of the race (log law + noise), else that of the processed logits. The siblings are "fixed" under
every rule: they are ranked, not drawn, and theorem 1 makes any tree exact. With fewer nodes than the shape has, the
levels are filled from the root down and, within a level, the better-ranked parents first.

Invariant: at most `budget` nodes, at most the room in the drafter's context; no row of the tree stays in the own cache
(each level feeds the tree so far again behind the committed rows, under its ancestor mask).

Does not know: caches and vocabularies (its base does), the target model, how a tree is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from draftproof.drafters.choice import Choice
from draftproof.drafters.second_model import Run, SecondModelDrafter
from draftproof.errors import UnknownDrafter
from draftproof.models.batch import Rows
from draftproof.protocols import KVCache, Noise, Target
from draftproof.types import EMPTY_DRAFT, Draft, Logits, TargetOutput


@dataclass(slots=True, eq=False)
class _Tree:
    """One sequence's tree as it grows; node numbers as in `Draft`."""

    run: Run
    choice: Choice
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=lambda: [0])  # nodes of the newest level that can have children

    @property
    def grows(self) -> bool:
        """True while there is a node to hang a child on, and room for it."""
        return bool(self.leaves) and len(self.tokens) < self.run.room

    def path_to(self, node: int) -> list[int]:
        """Draft tokens from the root to `node`."""
        path = []
        while node:
            path.append(self.tokens[node - 1])
            node = self.parents[node - 1]
        return path[::-1]

    def grow(self, width: int, logits: Logits, first_row: int) -> None:
        """Gives each leaf its `width` best children; the logits of node i are row first_row + i."""
        leaves, self.leaves = self.leaves, []
        for leaf in leaves:
            count = min(width, self.run.room - len(self.tokens))
            if count < 1:
                return
            for token in self.choice.ranked(logits.row(first_row + leaf), self.path_to(leaf), count):
                self.tokens.append(token)
                self.parents.append(leaf)
                if token not in self.run.item.stop_ids:
                    self.leaves.append(len(self.tokens))

    def draft(self) -> Draft:
        """The tree so far."""
        if not self.tokens:
            return EMPTY_DRAFT
        return Draft(np.array(self.tokens, np.int32), np.array(self.parents, np.int32))


class FixedTreeDrafter(SecondModelDrafter):
    """Ranked trees from a second model; arguments as of the base. widths: the number of children at each level."""

    name = "fixed_tree"

    def __init__(
        self,
        target: Target,
        ledger: KVCache,
        vocab_size: int,
        *,
        widths: Sequence[int] = (3, 2, 1),
        mapping: ArrayLike | None = None,
        chunk: int = 512,
    ) -> None:
        if not widths or min(widths) < 1:
            raise UnknownDrafter(f"fixed_tree needs widths of at least one child a level, got {tuple(widths)}")
        super().__init__(target, ledger, vocab_size, mapping=mapping, chunk=chunk)
        self._widths = tuple(widths)

    def _fill(self, runs: Sequence[Run], output: TargetOutput, noise: Noise) -> None:
        trees = growing = [_Tree(run, self._choice(run, noise)) for run in runs]
        for level, width in enumerate(self._widths):
            if level:
                output = self._cache.forward([self._part(tree) for tree in growing])
            for tree, first_row in zip(growing, output.offsets[:-1].tolist(), strict=True):
                tree.grow(width, output.logits, first_row)
            growing = [tree for tree in growing if tree.grows]
            if not growing:
                break
        for tree in trees:
            tree.run.draft = tree.draft()

    def _part(self, tree: _Tree) -> Rows:
        return self._cache.tree_part(tree.run.rows, np.array(tree.tokens, np.int32), np.array(tree.parents, np.int32))
