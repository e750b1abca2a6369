"""Trees from an EAGLE head: grown level by level for all sequences of a step, one forward of the head a level.

A node that the head is run on takes the head's own output after its parent, as a chain's does, and sees the committed
rows and its ancestors: branches are kept apart by `tree_pages`. A sequence's rule says what siblings are
(`tree_children`), the shape which nodes there are (`tree_shape`).

Rule `block` judges chains as a whole, and may not be chosen for a round by what was drawn in it: its items get chains.

Invariant: no row of a tree stays in the head's cache; a draft depends on its own item, the noise and the head alone.
Does not know: the target, its hidden states, what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from draftproof.drafters.tree_children import Children
from draftproof.drafters.tree_pages import Branches, Copies
from draftproof.drafters.tree_shape import Growth, Node, Shape, first_number
from draftproof.models.batch import Rows
from draftproof.types import EMPTY_DRAFT, Draft, FloatArray, Logits, Slots, StepItem

States = NDArray[np.float32]
Forward = Callable[[list[Rows], Copies, States], tuple[Logits, States]]  # rows, pages to copy before, their states


@dataclass(slots=True, eq=False)
class Tree:
    """One sequence's tree as it grows."""

    item: StepItem
    widths: tuple[int, ...]
    children: Children
    growth: Growth
    branches: Branches | None  # None: the nodes are never fed to a head
    root: Node = field(default_factory=lambda: Node(None))
    fed: list[Node] = field(default_factory=list)  # the level that the head was run on last
    laws: list[FloatArray] = field(default_factory=list)

    def grow(self, logits: Logits, first_row: int) -> None:
        """Gives the nodes that were fed their children; row first_row + i of the logits is the i-th one's."""
        level: list[Node] = []
        for index, node in enumerate(self.fed):
            node.row = first_row + index
            level += self._children(node, logits.row(node.row))
        self.fed = self.growth.add(level)

    def _children(self, node: Node, row: FloatArray) -> list[Node]:
        ranked = self.children.rank(row, node.path(), self.widths[node.depth])
        count = self.growth.num_children(node, ranked.chances)
        first = first_number(self.widths, node)
        tokens = ranked.tokens(self.children.numbers(first, count))
        if ranked.law is not None and tokens:
            node.law = len(self.laws)
            self.laws.append(ranked.law)
        return [
            Node(node, (*node.place, rank + 1), token, node.value * chance, first + rank, ends=self._ends(token))
            for rank, (token, chance) in enumerate(zip(tokens, ranked.chances, strict=False))
        ]

    def _ends(self, token: int) -> bool:
        return token in self.item.stop_ids

    def slots(self) -> tuple[list[Slots], Copies]:
        """Where the nodes to be fed write their rows."""
        assert self.branches is not None, "a tree without pages has no rows to write"
        ends = [node.number + 1 for node in self.fed]
        parents = [node.parent.number + 1 for node in self.fed if node.parent is not None]
        return self.branches.go_on(ends, parents, self.fed[0].depth)

    def draft(self) -> Draft:
        """The chosen nodes."""
        chosen = self.growth.chosen()
        if not chosen:
            return EMPTY_DRAFT
        numbers = {id(node): index + 1 for index, node in enumerate(chosen)} | {id(self.root): 0}
        tokens = np.array([node.token for node in chosen], np.int32)
        parents = np.array([numbers[id(node.parent)] for node in chosen], np.int32)
        if not self.children.draws:
            return Draft(tokens, parents)
        drawn_from = [node.parent.law for node in chosen if node.parent is not None]
        used = sorted(set(drawn_from))
        rows = np.array([used.index(law) for law in drawn_from], np.int32)
        return Draft(tokens, parents, "distinct", np.stack([self.laws[law] for law in used]), rows)


def start(item: StepItem, shape: Shape, room: int, children: Children, branches: Branches | None) -> Tree:
    """A tree with nothing but its root, whose row the head has been run on."""
    tree = Tree(item, shape.widths, children, shape.grow(room), branches)
    tree.fed = [tree.root]
    return tree


def grow_all(trees: Sequence[Tree], logits: Logits, own: States, forward: Forward) -> None:
    """Grows trees to their end. logits, own [n, H]: one row a tree, after its last committed token."""
    growing = list(trees)
    while growing:
        first_row = 0
        for tree in growing:
            count = len(tree.fed)
            tree.grow(logits, first_row)
            first_row += count
        growing = [tree for tree in growing if tree.fed]
        if not growing:
            return
        parts: list[Rows] = []
        copies: Copies = []
        sources: list[int] = []
        for tree in growing:
            slots, more = tree.slots()
            copies += more
            for node, slot in zip(tree.fed, slots, strict=True):
                parts.append(Rows(np.array([node.token], np.int32), 1, slot))
                sources.append(node.parent.row if node.parent is not None else 0)
        logits, own = forward(parts, copies, own[sources])
