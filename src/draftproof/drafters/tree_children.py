"""The children that a node of a draft tree may get: how likely each is, and which tokens they are.

Two questions, asked apart, because a number of siblings may never depend on a token that is drawn and then dropped
(D2): `rank` says from the row alone what chance each sibling has, `Ranked.tokens` then which tokens stand there.

- temperature 0, and rule `follow`: the best ids of the processed logits, with their probabilities. "fixed".
- rule `coupled`: the first of the race log q + g with the noise of the token's position. The chance is that the target,
  whose race has the same noise, has the same winner: its scores are taken for ours plus Gumbel numbers of scale
  `SPREAD`, so the winner is distributed as softmax((log q + g) / SPREAD). "fixed".
- rule `reject`: drawn without replacement from the dense law, one number of the round for each place of the tree; the
  law is reported as it was drawn from, bit for bit (D1). The chance of sibling k is the k-th largest probability,
  whatever token is drawn. "distinct".

Invariant: chances fall from sibling to sibling, and follow from the row, the item and (`coupled`) the shared noise.
Does not know: shapes of trees, caches, models, where rows come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.errors import RowError
from draftproof.protocols import Noise
from draftproof.rules.coins import draw
from draftproof.rules.select import best_ids
from draftproof.rules.warp import History, Warped, best_id, processed, warp
from draftproof.types import FloatArray, Ids, StepItem

SPREAD = 1.2  # of the target's scores around the head's, in units of the noise: likeliest for the shipped head


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """What one row says of the children of its node, best first."""

    chances: list[float]
    ids: list[int]  # of fixed siblings; empty where they are drawn
    law: FloatArray | None = None  # [V] what they are drawn from

    def tokens(self, numbers: FloatArray) -> list[int]:
        """One token for each of numbers float64[k] in [0, 1), k <= len(chances); fixed siblings ignore their values."""
        if self.law is None:
            return self.ids[: len(numbers)]
        left, drawn = self.law.copy(), list[int]()
        for number in numbers.tolist():
            drawn.append(draw(left, number))
            left[drawn[-1]] = 0
        return drawn


_NOBODY = Ranked([], [])


class Children:
    """The rows of one item's tree, read in one round."""

    def __init__(self, item: StepItem, noise: Noise, vocab: DraftVocab) -> None:
        self._item, self._noise, self._vocab = item, noise, vocab
        # Where nothing is to be done to single target ids, laws stay over the drafter's own, shorter list of them.
        self._ids = None if item.params.has_processors else vocab.ids
        self.draws = item.params.draws_drafts
        self._greedy = item.params.temperature == 0
        self._couples = not self._greedy and not self.draws and item.params.resolved_rule == "coupled"

    def rank(self, row: FloatArray, path: Sequence[int], count: int) -> Ranked:
        """At most `count` children of a node; row float[Vd]: logits after it; path: draft tokens from the root to it.

        None where the row has no law: a broken row ends its branch (D4).
        """
        try:
            return self._rank(row, path, count)
        except RowError:
            return _NOBODY

    def numbers(self, first: int, count: int) -> FloatArray:
        """float64[count]: the round's numbers of these places of the tree; a draw's alone are looked at."""
        if not self.draws:
            return np.zeros(count)
        return self._noise.uniform(self._item.seed, "draft", self._item.round, first + count)[first:]

    def _rank(self, row: FloatArray, path: Sequence[int], count: int) -> Ranked:
        logits = row if self._ids is not None else self._processed(row, path)
        if self._greedy:
            scores = logits - logits[best_id(logits)]
            return self._best(Warped(self._ids, scores), scores, count)
        warped = warp(logits, self._item.params)
        if self._ids is not None:
            warped = Warped(self._ids if warped.ids is None else self._ids[warped.ids], warped.scores)
        if self.draws:
            return _drawn(warped.law(self._vocab.size), count)
        if not self._couples or len(warped.scores) == 1:
            return self._best(warped, warped.scores, count)
        position = len(self._item.tokens) + len(path)
        gumbel = self._noise.gumbel(self._item.seed, position, warped.ids, self._vocab.size)
        scores = warped.scores + gumbel
        return self._best(warped, (scores - scores.max()) / SPREAD, count)

    def _best(self, warped: Warped, scores: FloatArray, count: int) -> Ranked:
        """The first by score, each with its share of the exponentials; the largest score is 0."""
        top = best_ids(scores, count)
        chances = np.exp(scores[top]) / float(np.exp(scores).sum(dtype=np.float64))
        return Ranked(chances.tolist(), (top if warped.ids is None else warped.ids[top]).tolist())

    def _processed(self, row: FloatArray, path: Sequence[int]) -> FloatArray:
        """float[V] in target ids, with penalties, bias and bans under the history of the node."""
        item, logits = self._item, self._vocab.row(row)
        if not item.params.has_processors:
            return logits
        tokens: Ids = np.concatenate([item.tokens, np.array(path, np.int32)])
        return processed(logits, item.params, History(tokens, item.prompt_len), item.stop_ids)


def _drawn(law: FloatArray, count: int) -> Ranked:
    chances = law[best_ids(law, count)]
    return Ranked(chances[chances > 0].tolist(), [], law)  # a law has no more siblings than tokens
