"""What every drafter with a model of its own has in common: who drafts in this step, caught up and rolled back.

Each propose opens the sequences with a budget, feeds what the model has not seen of them in one flat forward, and lets
the subclass fill the drafts. A sequence without budget costs nothing. Past the model's own context limit, or where it
can't read a token, a sequence goes on without drafts and its pages are free (B31).

Invariant: same items and noise, same drafts, whatever was drafted before: the cache is only a cache.

Does not know: the target model, its cache, what the second model is, how a draft is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.own_cache import OwnCache, OwnRows
from draftproof.protocols import KVCache, Noise, Target
from draftproof.types import EMPTY_DRAFT, Commit, Draft, StepItem, TargetOutput


@dataclass(slots=True, eq=False)
class Run:
    """One sequence in one propose; `draft` is filled by the subclass."""

    item: StepItem
    room: int  # most nodes: the budget, and what the model's context leaves
    rows: OwnRows
    draft: Draft = EMPTY_DRAFT


class SecondModelDrafter:
    """Base of the drafters that own a model.

    target, ledger: the second model and the ledger of *its* pages; nobody else uses them.
    vocab_size: the target's; the drafter's may be smaller or larger by padding, or `mapping` int[Vd] gives target ids.
    chunk: most rows of one sequence in a forward while it catches up.
    """

    name: str
    wants: frozenset[str] = frozenset()
    keeps_drafts = True  # as of `OwnCache`

    def __init__(
        self, target: Target, ledger: KVCache, vocab_size: int, *, mapping: ArrayLike | None = None, chunk: int = 512
    ) -> None:
        self._vocab = DraftVocab(target.vocab_size, vocab_size, mapping)
        self._cache = OwnCache(target, ledger, chunk, keeps_drafts=self.keeps_drafts)
        self._max_len = target.max_len
        self.choosing: Callable[..., Choice] = Choice  # as of `drafters.told`

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One draft for each item; empty without budget, room in the cache, or room in the model's context."""
        batch = {item.seq for item in items if item.budget > 0}
        runs = [self._open(item, batch) if item.budget > 0 else None for item in items]
        opened = [run for run in runs if run is not None]
        if opened:
            self._draft(opened, noise)
        return [EMPTY_DRAFT if run is None else run.draft for run in runs]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Rolls the own cache back to what was committed."""
        for commit in commits:
            self._cache.observe(commit)

    def forget(self, seq: int) -> None:
        """Frees the pages of this sequence."""
        self._cache.release(seq)

    def _draft(self, runs: Sequence[Run], noise: Noise) -> None:
        """Feeds what the model has not seen of each sequence, then sets each run's draft."""
        output = self._cache.catch_up([run.rows for run in runs], [run.item.tokens for run in runs])
        self._fill(runs, output, noise)

    def _fill(self, runs: Sequence[Run], output: TargetOutput, noise: Noise) -> None:
        """Sets each run's draft. output: one row of logits a run, after its last committed token."""
        raise NotImplementedError

    def _choice(self, run: Run, noise: Noise, **limits: float) -> Choice:
        return self.choosing(run.item, noise, self._vocab, run.room, **limits)

    def _open(self, item: StepItem, batch: Collection[int]) -> Run | None:
        room = min(item.budget, self._max_len - len(item.tokens))
        if room < 1 or not self._vocab.can_read(item.tokens):
            self._cache.release(item.seq)
            return None
        rows = self._cache.open(item.seq, item.tokens, room - 1, batch)  # the last node is never fed
        return None if rows is None else Run(item, room, rows)
