"""Toy Medusa heads, and a toy target with hidden states for them to read.

`ChainHeads` are the best heads there can be for a Markov chain: head k says the exact law of the token k + 2 places
after the one its state stands for. `HashHeads` say something else for each state, to the bit.

Does not know: drafters, rules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import EngineError
from draftproof.models.toy import TableTarget
from draftproof.types import StepBatch, TargetOutput


class StateTarget(TableTarget):
    """A Markov chain (as `TableTarget`) whose hidden state after a row is that row's token, [R, 1]."""

    def verify(self, batch: StepBatch) -> TargetOutput:
        """As ever, with the states."""
        return replace(super().verify(batch), features=batch.input_ids[:, None].astype(np.float32))


class ChainHeads:
    """Heads for the chain whose logits after token t are `table[t]`, float[V, V]."""

    def __init__(self, table: ArrayLike, num_heads: int = 3) -> None:
        law = np.exp(np.asarray(table, np.float64))
        law /= law.sum(1, keepdims=True)
        self.vocab_size, self.num_heads = law.shape[1], num_heads
        self._logits = np.stack([np.log(np.linalg.matrix_power(law, k + 2)) for k in range(num_heads)], 1)  # [V, K, V]

    def guess(self, states: NDArray[np.float32]) -> NDArray[np.float64]:
        """[B, K, V] from [B, 1]."""
        said: NDArray[np.float64] = self._logits[states[:, 0].astype(np.int64)]
        return said


class HashHeads:
    """Logits that are a pseudo-random function of the state's bits and the head's number."""

    def __init__(self, vocab_size: int, num_heads: int = 4) -> None:
        self.vocab_size, self.num_heads = vocab_size, num_heads
        self.num_rows = 0  # of all calls

    def guess(self, states: NDArray[np.float32]) -> NDArray[np.float64]:
        """[B, K, V] from [B, H]. Raises EngineError for no states at all: nobody asks for nothing."""
        if not len(states):
            raise EngineError("heads were asked to guess from no state")
        self.num_rows += len(states)
        return np.stack([self.answer(state) for state in states])

    def answer(self, state: NDArray[np.float32]) -> NDArray[np.float64]:
        """[K, V] from one state [H]."""
        rng = np.random.default_rng(np.ascontiguousarray(state, np.float32).view(np.uint32).tolist())
        return 3 * rng.standard_normal((self.num_heads, self.vocab_size))
