"""Drafts on command, for tests and experiments: given tokens, given trees, or draws from given laws.

`ScriptedDrafter` returns what it was told for a round, cut to the budget. `LawDrafter` draws every node of a given tree
from a given law and reports it: any pair of laws can so be put before a rule in a running engine.

Invariant: D1 to D5 hold as for any drafter: the first nodes of a tree are a tree (a parent comes before its child), and
a cut by the budget looks at no token.

Does not know: models; whether what it was told is sensible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from draftproof.errors import UnknownDrafter
from draftproof.protocols import Noise
from draftproof.rules.coins import draw
from draftproof.types import EMPTY_DRAFT, Commit, Draft, FloatArray, Ids, Siblings, StepItem, chain

Script = Draft | Sequence[int] | Ids


class ScriptedDrafter:
    """script: drafts by round number (none after the last), or a function of the item for any round."""

    name = "scripted"
    wants: frozenset[str] = frozenset()

    def __init__(self, script: Sequence[Script] | Callable[[StepItem], Script]) -> None:
        self._script = script

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """What the script says for each item's round."""
        return [_cut(self._of(item), item.budget) if item.budget > 0 else EMPTY_DRAFT for item in items]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to drop."""

    def _of(self, item: StepItem) -> Draft:
        if callable(self._script):
            script = self._script(item)
        else:
            script = self._script[item.round] if item.round < len(self._script) else EMPTY_DRAFT
        return script if isinstance(script, Draft) else chain(script)


def _cut(draft: Draft, count: int) -> Draft:
    """The first `count` nodes."""
    if len(draft) <= count:
        return draft
    return Draft(draft.tokens[:count], draft.parents[:count], draft.siblings, draft.laws, draft.law_row[:count])


class LawDrafter:
    """A tree whose tokens are drawn from given laws.

    laws: float[m, V]; parents, law_row: int[n] as in `Draft`, by default a chain with one law a node.
    siblings: "iid", or "distinct" for draws without replacement (siblings must share a row with enough tokens).
    """

    name = "scripted"
    wants: frozenset[str] = frozenset()

    def __init__(
        self,
        laws: ArrayLike,
        siblings: Siblings = "iid",
        parents: ArrayLike | None = None,
        law_row: ArrayLike | None = None,
    ) -> None:
        self._laws: FloatArray = np.array(laws)
        self._laws.setflags(write=False)
        order = np.arange(len(self._laws), dtype=np.int32)
        self._siblings: Siblings = siblings
        self._parents: Ids = order if parents is None else np.asarray(parents, np.int32)
        self._law_row: Ids = order if law_row is None else np.asarray(law_row, np.int32)
        self._check()

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """A fresh draw of the tree's first nodes for each item."""
        return [self._draw(item, noise) if item.budget > 0 else EMPTY_DRAFT for item in items]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to drop."""

    def _draw(self, item: StepItem, noise: Noise) -> Draft:
        count = min(item.budget, len(self._parents))
        numbers = noise.uniform(item.seed, "draft", item.round, count).tolist()
        tokens = np.empty(count, np.int32)
        for node in range(count):
            weights = self._laws[self._law_row[node]]
            if self._siblings == "distinct":
                weights = weights.copy()
                weights[tokens[:node][self._parents[:node] == self._parents[node]]] = 0
            tokens[node] = draw(weights, numbers[node])
        return Draft(tokens, self._parents[:count], self._siblings, self._laws, self._law_row[:count])

    def _check(self) -> None:
        if self._siblings == "fixed":
            raise UnknownDrafter('drawn siblings are "iid" or "distinct", not "fixed"')
        if self._laws.ndim != 2 or len(self._parents) != len(self._law_row):
            raise UnknownDrafter("a drawn tree needs laws [m, V], and a parent and a law row for each node")
        for parent in set(self._parents.tolist()):
            rows = self._law_row[self._parents == parent]
            if len(set(rows.tolist())) > 1:
                raise UnknownDrafter(f"the children of node {parent} are drawn from different laws")
            if self._siblings == "distinct" and np.count_nonzero(self._laws[rows[0]]) < len(rows):
                raise UnknownDrafter(f"node {parent} has more distinct children than its law has tokens")
