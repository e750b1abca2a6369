"""Drafts that are scored and never sent: what a drafter would have been worth, at no cost in target rows.

A sequence in shadow is decoded plainly. At the start of each round that it would have had, the inner drafter proposes;
the draft is remembered, an empty one is returned, and the tokens that come are compared with it: down to the first one
that differs (the correction), or to the one after the last draft (the bonus). Then the next round starts. Under the
path-exact rules the text does not depend on the drafts, so these are the very rounds that speculation would have had.
Under `reject` the plain text is the race of `coupled` (see `rules.decide`), so the draft is that of `coupled` too: its
acceptance is a lower bound of the ratio rule's.

Invariant: every draft is empty (D4), so nothing here can reach a text. One round of a sequence is open at a time.

Does not know: rules, laws, which sequences are in shadow, what the counts are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.protocols import Drafter, Noise
from draftproof.types import EMPTY_DRAFT, Commit, Draft, StepItem


@dataclass(slots=True)
class ShadowCounts:
    """What became of the drafts of one sequence; a test counts where a real round would have made it."""

    rounds: int = 0  # rounds with drafts
    drafted: int = 0
    tested: int = 0
    accepted: int = 0


@dataclass(slots=True)
class _Round:
    """A draft on its way through the text; `node` is the last one that the text agreed with."""

    draft: Draft
    length: int  # tokens of the sequence so far
    node: int = 0


class Shadow:
    """Wraps a drafter; sequences come with the budget they would have had."""

    wants: frozenset[str]

    def __init__(self, drafter: Drafter) -> None:
        self.name = f"shadow of {drafter.name}"
        self.wants = drafter.wants
        self._drafter = drafter
        self._rounds: dict[int, _Round] = {}
        self._counts: dict[int, ShadowCounts] = {}

    def in_round(self, seq: int) -> bool:
        """True while a draft of this sequence waits for tokens: no budget is needed."""
        return seq in self._rounds

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """Empty drafts; remembers the inner drafter's for the sequences that start a round."""
        starting = [item for item in items if item.budget > 0 and not self._goes_on(item)]
        if starting:
            drafts = self._drafter.propose([_seen(item) for item in starting], noise)
            for item, draft in zip(starting, drafts, strict=True):
                self._open(item, draft)
        return [EMPTY_DRAFT] * len(items)

    def observe(self, commits: Sequence[Commit]) -> None:
        """Compares what was emitted with the open drafts. The inner drafter sees it with its next item."""
        for commit in commits:
            for token in commit.tokens.tolist():
                self._advance(commit.seq, token)

    def forget(self, seq: int) -> None:
        """The sequence is gone; its counts stay until they are taken."""
        self._rounds.pop(seq, None)
        self._drafter.forget(seq)

    def take(self, seq: int) -> ShadowCounts:
        """The counts of a sequence, once."""
        return self._counts.pop(seq, None) or ShadowCounts()

    def _goes_on(self, item: StepItem) -> bool:
        """True where the open round belongs to this very text."""
        round_ = self._rounds.get(item.seq)
        return round_ is not None and round_.length == len(item.tokens)

    def _open(self, item: StepItem, draft: Draft) -> None:
        self._rounds.pop(item.seq, None)
        if not len(draft):
            return
        self._rounds[item.seq] = _Round(draft, len(item.tokens))
        counts = self._counts.setdefault(item.seq, ShadowCounts())
        counts.rounds += 1
        counts.drafted += len(draft)

    def _advance(self, seq: int, token: int) -> None:
        round_ = self._rounds.get(seq)
        if round_ is None:
            return
        draft = round_.draft
        children = [node for node, parent in enumerate(draft.parents.tolist(), start=1) if parent == round_.node]
        if not children:  # the bonus of a round without a refusal
            del self._rounds[seq]
            return
        counts = self._counts[seq]
        counts.tested += 1
        agreed = next((node for node in children if draft.tokens[node - 1] == token), None)
        if agreed is None:
            del self._rounds[seq]
            return
        counts.accepted += 1
        round_.node, round_.length = agreed, round_.length + 1


def _seen(item: StepItem) -> StepItem:
    """The item as the inner drafter gets it: under `reject`, with the rule whose race the plain text is."""
    if item.params.draws_drafts:
        return replace(item, params=replace(item.params, rule="coupled"))
    return item
