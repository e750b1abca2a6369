"""Which nodes a draft tree has: a fixed list of them, or the likeliest ones by the head's own chances.

A node is a place, told by the ranks of its siblings from the root down, and a token that stands there. Its *value* is
the product of the chances down its path: how likely it is to be reached and accepted.

`StaticShape`: widths by depth, or a list of places; the budget cuts the list.
`DynamicShape`: level by level the likeliest nodes are expanded; of all nodes found the best by value are drafted. A
chain is one of the shapes it may come to, and the price says when. A row of the target costs `Prices.row` tokens (its
time, times the tokens that decoding makes in that time); a node is taken where its value is at least the price of the
rows it adds. The first child of a node goes on with its branch: one row. Every further child opens a branch, and where
branches run as forked sequences (invariant numerics) all rows above it are computed once more for it: depth + 1 rows,
and what a branch costs besides. So siblings are drafted where rows are cheap or the head is torn between few tokens,
and else the budget goes down the chain. The head runs again while the best node it has not run on is worth `forward`.

Invariant (D2): a place's value follows from rows after its ancestors, never from the token that stands there, and all
choices go by one order of (value, place) in which a parent comes before its child and an elder sibling before a younger
one. So whether a node is drafted depends on nodes drafted before it in that order alone, though tokens of others were
drawn too; and a smaller budget gives the first nodes of a larger one's tree.

Source: EAGLE-2 (Li et al. 2024), section 4, for expanding and reranking by the product of probabilities; prices ours.
Does not know: laws, tokens' meaning, caches, clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from draftproof.errors import UnknownDrafter

Place = tuple[int, ...]  # ranks from the root's child down, each from 1
MOST_NODES = 256  # of a fixed tree: more than any step pays for


@dataclass(slots=True, eq=False)
class Node:
    """One node of a growing tree; `number` is that of its place, which keys its draw and breaks ties."""

    parent: Node | None  # None for the root
    place: Place = ()
    token: int = -1
    value: float = 1.0
    number: int = -1
    law: int = -1  # which row of the laws its children were drawn from
    row: int = 0  # of the last forward, where it was fed
    ends: bool = False  # its token ends the text: nothing comes after it

    @property
    def depth(self) -> int:
        """The root has 0."""
        return len(self.place)

    def path(self) -> list[int]:
        """Draft tokens from the root to this node."""
        tokens: list[int] = []
        node = self
        while node.parent is not None:
            tokens.append(node.token)
            node = node.parent
        return tokens[::-1]


class Growth(Protocol):
    """The nodes of one tree in one round, asked level by level."""

    def num_children(self, node: Node, chances: Sequence[float]) -> int:
        """How many children a node gets whose siblings have these chances, best first."""
        ...

    def add(self, level: Sequence[Node]) -> list[Node]:
        """Takes all nodes of the next level; those of them the head is to be run on."""
        ...

    def chosen(self) -> list[Node]:
        """The nodes to draft, parents and elder siblings first."""
        ...


class Shape(Protocol):
    """What trees may look like. widths: the most children of a node at each depth."""

    widths: tuple[int, ...]

    def most_fed(self, room: int) -> int:
        """Most nodes of one level that the head is run on, in a tree of `room` nodes."""
        ...

    def grow(self, room: int) -> Growth:
        """A tree of at most `room` nodes."""
        ...


def first_number(widths: Sequence[int], parent: Node) -> int:
    """The number of a node's first child: places are counted level by level, children of one node together."""
    sizes = list(accumulate(widths, lambda size, width: size * width, initial=1))[1:]
    inside = 0
    for rank, width in zip(parent.place, widths, strict=False):
        inside = inside * width + rank - 1
    return sum(sizes[: parent.depth]) + inside * widths[parent.depth]


# -- a fixed list ------------------------------------------------------------------------------------------------------


class StaticShape:
    """places: in the order in which the budget takes them, parents and elder siblings first."""

    def __init__(self, places: Sequence[Place]) -> None:
        if len(places) > MOST_NODES:
            raise UnknownDrafter(f"a tree of {len(places)} nodes is too large: at most {MOST_NODES}")
        self.places = tuple(tuple(place) for place in places)
        known: set[Place] = {()}
        for place in self.places:
            elder = (*place[:-1], place[-1] - 1) if place else ()
            if not place or place in known or place[:-1] not in known or not (place[-1] == 1 or elder in known):
                shown = ".".join(map(str, place))
                raise UnknownDrafter(
                    f"a tree can't have {shown!r} there: its parent and elder sibling come first, once"
                )
            known.add(place)
        if not self.places:
            raise UnknownDrafter(
                "a tree needs at least one place: auto, dynamic, widths like 3,2,1 or places like '1 2 1.1'"
            )
        depth = max(map(len, self.places))
        self.widths = tuple(max(place[at] for place in self.places if len(place) > at) for at in range(depth))

    @classmethod
    def of_widths(cls, widths: Sequence[int]) -> StaticShape:
        """Every node at depth d has widths[d] children; level by level, better parents first."""
        if not widths or min(widths) < 1:
            raise UnknownDrafter(f"a tree needs widths of at least one child a level, got {tuple(widths)}")
        num = sum(accumulate(widths, mul))
        if num > MOST_NODES:
            raise UnknownDrafter(f"a tree of widths {tuple(widths)} has {num} nodes: at most {MOST_NODES}")
        return cls(list(_level_order(widths)))

    def most_fed(self, room: int) -> int:
        """The widest level that has children; the last node is never fed."""
        parents = {place[:-1] for place in self.places} - {()}
        sizes = [sum(len(place) == depth for place in parents) for depth in range(len(self.widths))]
        return max(1, min(max(sizes), room - 1))

    def grow(self, room: int) -> Growth:
        """The first places of the list that have a token."""
        return _StaticGrowth(self.places, room)


def _level_order(widths: Sequence[int]) -> Iterator[Place]:
    level: list[Place] = [()]
    for width in widths:
        level = [(*place, rank) for place in level for rank in range(1, width + 1)]
        yield from level


class _StaticGrowth:
    def __init__(self, places: Sequence[Place], room: int) -> None:
        self._order = {place: index for index, place in enumerate(places)}
        self._parents = {place[:-1] for place in places}
        self._room = room
        self._first: list[Node] = []

    def num_children(self, node: Node, chances: Sequence[float]) -> int:
        """As many as the list has places for, and the law tokens."""
        return min(len(chances), sum(place[:-1] == node.place for place in self._order))

    def add(self, level: Sequence[Node]) -> list[Node]:
        """Those with places below them; where a token ends the text, the places after take the room."""
        found = [*self._first, *(node for node in level if node.place in self._order)]
        self._first = sorted(found, key=lambda node: self._order[node.place])[: self._room]
        depth = level[0].depth if level else 0
        able = [node for node in self._first[: self._room - 1] if node.depth == depth and not node.ends]
        return [node for node in able if node.place in self._parents]

    def chosen(self) -> list[Node]:
        """In the list's order."""
        return self._first


# -- the likeliest nodes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prices:
    """What parts of a round cost, in tokens; all 0: only the number of nodes counts.

    row: one row of the target. branch: a branch beside its rows. forward: another forward of the head.
    repeats: a branch computes the rows above it once more.
    """

    row: float = 0.0
    branch: float = 0.0
    forward: float = 0.0
    repeats: bool = True

    def of(self, rank: int, depth: int) -> float:
        """The price of a node that is the rank-th child at this depth."""
        if rank == 1:
            return self.row
        return self.row * (depth + 1 if self.repeats else 1) + self.branch


FREE = Prices()
WIDTHS = (4, 4, 3, 2, 2, 2, 2, 2)


class DynamicShape:
    """widths: most children of a node at each depth; most_fed: most nodes of a level that the head is run on."""

    def __init__(self, prices: Prices = FREE, widths: Sequence[int] = WIDTHS, beam: int = 4) -> None:
        if not widths or min(widths) < 1 or beam < 1 or min(prices.row, prices.branch, prices.forward) < 0:
            raise UnknownDrafter("a dynamic tree needs widths and a beam of at least 1, and prices of at least 0")
        self.prices, self.widths, self.beam = prices, tuple(widths), beam

    def most_fed(self, room: int) -> int:
        """The last node is never fed."""
        return max(1, min(self.beam, room - 1))

    def grow(self, room: int) -> Growth:
        """The best nodes found."""
        return _DynamicGrowth(self, room)


class _DynamicGrowth:
    def __init__(self, shape: DynamicShape, room: int) -> None:
        self._shape, self._room = shape, room
        self._best: list[Node] = []

    def num_children(self, node: Node, chances: Sequence[float]) -> int:
        """As many as are worth the rows they add; prices rise and chances fall from sibling to sibling."""
        prices, depth, count = self._shape.prices, node.depth + 1, 0
        for chance in chances[: self._shape.widths[node.depth]]:
            if node.value * chance < prices.of(count + 1, depth):
                break
            count += 1
        return count

    def add(self, level: Sequence[Node]) -> list[Node]:
        """The best of the level, where they can have children among the best nodes of the tree."""
        self._best = sorted([*self._best, *level], key=lambda node: (-node.value, node.number))[: self._room]
        depth = level[0].depth if level else 0
        if not level or depth >= len(self._shape.widths):
            return []
        # The last of a full list has no room behind it.
        able = [node for node in self._best[: self._room - 1] if node.depth == depth and not node.ends]
        if not able or able[0].value < self._shape.prices.forward:
            return []
        return able[: self._shape.beam]

    def chosen(self) -> list[Node]:
        """Best first."""
        return self._best


def parse_shape(text: str, prices: Prices) -> Shape:
    """Shapes by name: "auto" widens where it pays at these prices, "dynamic" drafts the likeliest nodes whatever they
    cost, "3,2,1" are widths by depth, and "1 2 1.1" are places. Raises UnknownDrafter.
    """
    if text == "auto":
        return DynamicShape(prices)
    if text == "dynamic":
        return DynamicShape()
    try:
        if "," in text or text.isdecimal():
            return StaticShape.of_widths([int(width) for width in text.split(",")])
        return StaticShape([tuple(map(int, place.split("."))) for place in text.split()])
    except UnknownDrafter:
        raise
    except ValueError:
        raise UnknownDrafter(
            f'a tree is "auto", "dynamic", widths like "3,2,1" or places like "1 2 1.1", got {text!r}'
        ) from None
