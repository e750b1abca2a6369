"""What the engine did, round by round: a drafter that passes on everything and writes it down.

Invariant: the drafts, and so the texts, are the wrapped drafter's own. Of the laws of a draft only the rows of tested
places are kept.

Does not know: texts, laws of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from draftproof.certify.types import Depth, Round
from draftproof.protocols import Drafter, Noise
from draftproof.rules.block import is_chain
from draftproof.rules.follow import children_of
from draftproof.types import EMPTY_DRAFT, Commit, Draft, StepItem

_KNOWN = ("follow", "coupled", "reject", "block")  # rules whose coins `places` has the law of
_BLIND = ("none", "ngram", "suffix", "scripted")  # drafters that never look at the noise of a position


class TracedDrafter:
    """A drafter in its place. `take(seq)` gives the rounds of a sequence and forgets them."""

    def __init__(self, drafter: Drafter) -> None:
        self.inner = drafter
        self.name = drafter.name
        self.wants = drafter.wants
        self._proposed: dict[int, tuple[StepItem, Draft]] = {}
        self._rounds: dict[int, list[Round]] = {}
        self._step = 0

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """The wrapped drafter's drafts."""
        drafts = self.inner.propose(items, noise)
        self._proposed = {item.seq: (item, draft) for item, draft in zip(items, drafts, strict=True)}
        return drafts

    def observe(self, commits: Sequence[Commit]) -> None:
        """Writes down what became of them."""
        self.inner.observe(commits)
        self._step += 1
        for commit in commits:
            if commit.verdict is not None:
                self._rounds.setdefault(commit.seq, []).append(self._round(commit))
        self._proposed = {}  # a step without budgets asks no drafter: nothing old may be taken for its drafts

    def forget(self, seq: int) -> None:
        """Passed on; the rounds stay until they are taken."""
        self.inner.forget(seq)

    def take(self, seq: int) -> tuple[Round, ...]:
        """The rounds of a sequence that has ended."""
        return tuple(self._rounds.pop(seq, ()))

    def _round(self, commit: Commit) -> Round:
        item, draft = self._proposed.get(commit.seq, (None, EMPTY_DRAFT))
        depths: tuple[Depth, ...] = ()
        rule = "follow" if item is None or item.params.temperature == 0 else item.params.resolved_rule
        if commit.verdict is not None and rule in _KNOWN:  # of another rule nothing is said but where its rounds end
            if (
                rule not in ("reject", "block") and draft.laws is not None
            ):  # theorem 1 judges what was drawn, too, without its law
                draft = Draft(draft.tokens, draft.parents)
            informed = rule == "coupled" and self.name not in _BLIND
            depths = tuple(_depths(draft, commit.verdict.path, commit.num_tested, informed))
            if rule == "block" and is_chain(draft):
                depths = tuple(replace(depth, chain=True) for depth in depths)
        return Round(len(commit.tokens), commit.num_accepted, commit.num_tested, commit.num_drafted, depths, self._step)


def _depths(draft: Draft, path: Sequence[int], num_tested: int, informed: bool) -> list[Depth]:
    children = children_of(draft)
    node, depths = 0, []
    for index in range(num_tested):
        candidates = children[node]
        accepted = path[index] if index < len(path) else None
        law = None
        if draft.siblings != "fixed" and draft.laws is not None and candidates:
            law = np.array(draft.laws[int(draft.law_row[candidates[0] - 1])])
        place = None if accepted is None else candidates.index(accepted)
        tokens = tuple(int(draft.tokens[child - 1]) for child in candidates)
        depths.append(Depth(tokens, draft.siblings, law, place, informed))
        node = accepted if accepted is not None else node
    return depths
