"""Drafters in order: the first one that has something to say drafts.

A lookup costs nothing and is right where text repeats; a head costs a millisecond and knows the language. So a lookup
is asked first, and the head only for the sequences it has nothing for.

Which drafter drafts follows from what the earlier ones proposed, a function of the past (D2, where they keep to it),
and each draft travels with the law of the drafter that made it: the cascade is as law-exact as its parts. A draft is
one drafter's as a whole, so chains of one and trees of another may stand side by side in a step.

Invariant: every drafter sees every commit, so each may draft in any round.
Does not know: what its drafters are.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.errors import UnknownDrafter
from draftproof.protocols import Drafter, Noise
from draftproof.types import Commit, Draft, StepItem


class Cascade:
    """drafters: at least one, the cheapest first."""

    name = "cascade"

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        if not drafters:
            raise UnknownDrafter("a cascade needs at least one drafter")
        self._drafters = tuple(drafters)
        self.wants: frozenset[str] = frozenset().union(*(drafter.wants for drafter in drafters))

    @property
    def parts(self) -> tuple[Drafter, ...]:
        """Its drafters, in order."""
        return self._drafters

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """For each item the first draft that is not empty."""
        drafts = list(self._drafters[0].propose(items, noise))
        for drafter in self._drafters[1:]:
            left = [i for i, item in enumerate(items) if item.budget > 0 and not len(drafts[i])]
            if not left:
                break
            for index, draft in zip(left, drafter.propose([items[i] for i in left], noise), strict=True):
                drafts[index] = draft
        return drafts

    def observe(self, commits: Sequence[Commit]) -> None:
        """Tells all of them."""
        for drafter in self._drafters:
            drafter.observe(commits)

    def forget(self, seq: int) -> None:
        """Tells all of them."""
        for drafter in self._drafters:
            drafter.forget(seq)
