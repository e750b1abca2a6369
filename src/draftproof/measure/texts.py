"""A prompt with the tokens that follow it, as drafters and laws are asked about it; where a draft could start, and of
which length.

Positions count from the first token after the prompt. A round that starts at position s decides tokens[prompt_len + s];
the token at position 0 comes without a draft, so starts run from 1.

Invariant: `budget` is what the engine would give: never past the end of what may be written, and no less because the
text happens to end: an end that nobody foresaw (a stop id) is drafted past.
Does not know: drafters, laws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.measure.encode import Prompt
from draftproof.types import Ids, SamplingParams, StepItem


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """tokens int32[P + T]: prompt and completion. end: most tokens that prompt and completion might have had."""

    prompt: Prompt
    tokens: Ids
    params: SamplingParams  # resolved, with the seed of this prompt
    stop_ids: frozenset[int]
    end: int

    @property
    def prompt_len(self) -> int:
        """P."""
        return len(self.prompt.tokens)

    @property
    def length(self) -> int:
        """T, the tokens of the completion."""
        return len(self.tokens) - self.prompt_len

    @property
    def completion(self) -> Ids:
        """int32[T]."""
        return self.tokens[self.prompt_len :]

    def budget(self, start: int, gamma: int) -> int:
        """Most drafts of a round that starts at this position."""
        if start == 0:
            return 0
        return max(0, min(gamma, self.end - self.prompt_len - start - 1))

    def budgets(self, gamma: int) -> NDArray[np.int64]:
        """int64[T]: `budget` of each position."""
        room = self.end - self.prompt_len - 1 - np.arange(self.length)
        budgets = np.clip(room, 0, gamma)
        budgets[:1] = 0
        return budgets

    def left(self) -> NDArray[np.int64]:
        """int64[T]: tokens of the completion from each position on; no draft beyond them is ever judged."""
        return np.arange(self.length, 0, -1)

    def item(self, seq: int, start: int, budget: int, params: SamplingParams) -> StepItem:
        """The sequence as a drafter sees it when a round starts at this position."""
        return StepItem(
            seq=seq,
            tokens=self.tokens[: self.prompt_len + start],
            prompt_len=self.prompt_len,
            pending=1,
            feed=1,
            budget=budget,
            params=params,
            round=start,  # a number of its own for each start, as rounds have
            stop_ids=self.stop_ids,
        )
