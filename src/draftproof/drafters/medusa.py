"""Medusa heads as drafter: chains, or trees where a shape is given, from the target's last hidden state.

The state after the last token but one comes with the commits; from it the target said the last token, and head k
guesses the (k+1)-th after that. A head does not see the tokens drafted before its own, so all laws of a round are known
at its start, in one forward of the heads for all sequences. Each is still the law its token is drawn from: penalties,
bans and the noise of a position are applied under the history of the node, as for any drafter (`choice`). In a tree
all nodes of one depth have the row of the same head (`tree_children` says what their siblings are).

A sequence whose last state is not there (it was set back, or its last rows came without states) goes on without drafts
until the target feeds it again: an empty draft is always legal (D4).

Invariant: a draft depends on the item, the noise and that one state alone.
Source: Cai et al. (2024), sections 2.1 and 2.3.3.
Does not know: the target, how the heads were made, sampling, which nodes a tree has (`tree_shape`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.eagle_tree import start
from draftproof.drafters.tree_children import Children
from draftproof.drafters.tree_shape import Shape, StaticShape
from draftproof.errors import UnknownDrafter
from draftproof.protocols import Noise
from draftproof.rules.host import HostLogits
from draftproof.types import EMPTY_DRAFT, Commit, Draft, FloatArray, StepItem

MIN_PATH = 0.1  # a row of the target pays about where its token is kept one time in ten; the heads have run by then


class Heads(Protocol):
    """The heads as a model without a cache."""

    vocab_size: int  # of the rows of logits
    num_heads: int

    def guess(self, states: NDArray[np.float32]) -> FloatArray:
        """Logits [B, K, Vd] from the target's last hidden states [B, H]; valid until the next call."""
        ...


class MedusaDrafter:
    """Drafts from the heads.

    target: the heads. vocab_size: the target's; `mapping` int[Vd] gives target ids of the draft's.
    min_path: a chain ends where it becomes less likely than this, to the heads, as of `Choice`. tree: which trees to
    draft, None for chains; rule `block` has chains in any case.
    """

    name = "medusa"
    wants = frozenset({"features"})

    def __init__(
        self,
        target: Heads,
        vocab_size: int,
        *,
        mapping: ArrayLike | None = None,
        min_path: float = MIN_PATH,
        tree: Shape | None = None,
    ) -> None:
        if not 0 <= min_path < 1:
            raise UnknownDrafter(f"{self.name} needs min_path in [0, 1), got {min_path}")
        self._heads, self._min_path, self._tree = target, min_path, tree
        # The heads have run: a fixed list is grown whole, then cut, so places below a stop id leave room to others.
        self._grown = len(tree.places) if isinstance(tree, StaticShape) else 0
        self._vocab = DraftVocab(target.vocab_size, vocab_size, mapping)
        self._states: dict[int, tuple[int, FloatArray]] = {}  # of the last kept row: its position, [H]
        self.choosing: Callable[..., Choice] = Choice  # as of `drafters.told`

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One draft for each item; empty without budget, or without the state it would be made from."""
        drafts = [EMPTY_DRAFT] * len(items)
        found = [(index, item, self._state(item)) for index, item in enumerate(items) if item.budget > 0]
        ready = [(index, item, state) for index, item, state in found if state is not None]
        if ready:
            logits = self._heads.guess(np.stack([state for _, _, state in ready]))  # [B, K, Vd]
            for row, (index, item, _) in enumerate(ready):
                drafts[index] = self._draft(item, logits[row], noise)
        return drafts

    def observe(self, commits: Sequence[Commit]) -> None:
        """Takes the state of the last kept row."""
        for commit in commits:
            if commit.features is not None and commit.finish is None and len(commit.features):
                self._states[commit.seq] = (commit.start + len(commit.features) - 1, commit.features[-1].copy())

    def forget(self, seq: int) -> None:
        """Frees the state of this sequence."""
        self._states.pop(seq, None)

    def _state(self, item: StepItem) -> FloatArray | None:
        """[H] after the last token but one, from which the target said the last one."""
        position, state = self._states.get(item.seq, (-1, None))
        return state if position == len(item.tokens) - 2 else None

    def _draft(self, item: StepItem, logits: FloatArray, noise: Noise) -> Draft:
        if self._tree is not None and item.params.resolved_rule != "block":
            return self._tree_of(self._tree, item, logits, noise)
        choice = self.choosing(item, noise, self._vocab, min(item.budget, len(logits)), min_path=self._min_path)
        for row in logits:
            choice.extend(row)
            if choice.ended:
                break
        return choice.draft()

    def _tree_of(self, shape: Shape, item: StepItem, logits: FloatArray, noise: Noise) -> Draft:
        """All nodes of a depth read the row of one head, [Vd] of logits [K, Vd]."""
        tree = start(item, shape, max(item.budget, self._grown), Children(item, noise, self._vocab), None)
        for row in logits:
            tree.grow(HostLogits(np.broadcast_to(row, (len(tree.fed), len(row)))), 0)
            if not tree.fed:
                break
        draft, count = tree.draft(), item.budget
        if len(draft) <= count:
            return draft
        return Draft(draft.tokens[:count], draft.parents[:count], draft.siblings, draft.laws, draft.law_row[:count])
