"""How the tokens of one sequence's draft are chosen from a model's rows of logits, in one round.

Temperature 0, and rule `follow`: the best id of the processed logits. Rule `coupled`: the winner of the race with the
noise of the token's absolute position, so that draft and target mostly agree (theorem 5). Both are "fixed". Rule
`reject`: a draw from the dense law, one number of the round a node; the law reported is the array that was drawn from,
bit for bit (D1, B09). Penalties, bias and bans hold under the history of each node, by the code the target's law uses.

Invariant: whether to go on is decided from the law, before a token is drawn (D2). A row without a law ends the draft.
Does not know: caches, models, where rows come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.errors import RowError
from draftproof.protocols import Noise
from draftproof.rules.coins import draw
from draftproof.rules.coupled import race_top, sample
from draftproof.rules.select import best_ids
from draftproof.rules.warp import History, Warped, best_id, processed, warp
from draftproof.types import EMPTY_DRAFT, Draft, FloatArray, StepItem, chain


class Choice:
    """The chain of one item as it grows, and the ranking of siblings for trees.

    length: most tokens of the draft. min_probability: the draft ends where the best token's probability is below it.
    min_path: it ends with the token at which the product of these probabilities down the chain falls below this, and
        without it where that falls below a quarter: the forward is paid for, a row of the target is not.
    """

    def __init__(
        self,
        item: StepItem,
        noise: Noise,
        vocab: DraftVocab,
        length: int,
        min_probability: float = 0.0,
        min_path: float = 0.0,
    ) -> None:
        self.tokens: list[int] = []
        self.ended = False
        self._item, self._noise, self._vocab = item, noise, vocab
        self._length, self._min_probability, self._min_path = length, min_probability, min_path
        self._path = 1.0
        # Where nothing is to be done to single target ids, laws stay over the drafter's own, shorter list of them.
        self._ids = None if item.params.has_processors else vocab.ids
        params = item.params
        self._rule = "follow" if params.temperature == 0 else params.resolved_rule
        self._laws: FloatArray | None = None  # [length, V], rows 0..len(tokens)-1 are used

    @property
    def takes_argmax(self) -> bool:
        """True when the largest logit of an untouched row is the choice."""
        plain = self._rule == "follow" and not self._item.params.has_processors
        return plain and not self._min_probability and not self._min_path and self._vocab.keeps_ids

    def take(self, best: int) -> bool:
        """Appends the argmax of a whole row of the drafter; False where it is no token of the target."""
        if not 0 <= best < self._vocab.size:
            return False
        self._append(best)
        return True

    def extend(self, row: FloatArray) -> None:
        """Appends the next token of the chain, chosen from logits float[Vd], or ends the draft."""
        try:
            token = self._next(row if self._ids is not None else self._processed(row, self.tokens))
        except RowError:
            token = None
        if token is None:
            self.ended = True
        else:
            self._append(token)

    def ranked(self, row: FloatArray, path: Sequence[int], count: int) -> list[int]:
        """The `count` best candidates after a node, best first; path: draft tokens from the root to the node."""
        try:
            logits = self._processed(row, path)
            best_id(logits)
        except RowError:
            return []
        if self._rule != "coupled":
            return [int(token) for token in best_ids(logits, count)]
        warped = warp(logits, self._item.params)
        gumbel = self._noise.gumbel(self._item.seed, self._position(path), warped.ids, self._vocab.size)
        return [int(token) for token in race_top(warped, gumbel, count)]

    def draft(self) -> Draft:
        """The chain so far."""
        if not self.tokens:
            return EMPTY_DRAFT
        if self._laws is None:
            return chain(self.tokens)
        return chain(self.tokens, "iid", self._laws[: len(self.tokens)])

    def _position(self, path: Sequence[int]) -> int:
        return len(self._item.tokens) + len(path)

    def _processed(self, row: FloatArray, path: Sequence[int]) -> FloatArray:
        """float[V] in target ids, with penalties, bias and bans under the history of the node."""
        item, logits = self._item, self._vocab.row(row)
        if not item.params.has_processors:
            return logits
        tokens = np.concatenate([item.tokens, np.array(path, np.int32)])
        return processed(logits, item.params, History(tokens, item.prompt_len), item.stop_ids)

    def _next(self, logits: FloatArray) -> int | None:
        """A token, or None where the drafter is too unsure. logits: of target ids, or of `_ids`."""
        if self._rule == "follow":
            best = best_id(logits)
            if self._unsure(logits, float(logits[best])):
                return None
            return best if self._ids is None else int(self._ids[best])
        warped = warp(logits, self._item.params)
        if self._ids is not None:
            warped = Warped(self._ids if warped.ids is None else self._ids[warped.ids], warped.scores)
        if self._unsure(warped.scores, 0.0):
            return None
        if self._rule == "coupled":
            position = self._position(self.tokens)
            return sample(warped, self._noise, self._item.seed, position, self._vocab.size)
        return self._draw(warped)

    def _unsure(self, scores: FloatArray, largest: float) -> bool:
        """True where the best token of a law given as scores, or the chain up to it, is less likely than is asked."""
        if not self._min_probability and not self._min_path:
            return False
        best = 1.0 / float(np.exp(scores - largest).sum())
        self._path *= best
        return best < self._min_probability or self._path < self._min_path / 4

    def _draw(self, warped: Warped) -> int:
        law = warped.law(self._vocab.size)
        if self._laws is None:
            self._laws = np.empty((self._length, self._vocab.size), law.dtype)
        node = len(self.tokens)
        self._laws[node] = law
        number = self._noise.uniform(self._item.seed, "draft", self._item.round, node + 1)[node]
        return draw(self._laws[node], float(number))

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        full = len(self.tokens) >= self._length or self._path < self._min_path
        self.ended = full or token in self._item.stop_ids
