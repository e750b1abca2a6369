"""The rows of one sequence in one step, each read under the history of its node and only when asked for.

Row index = node number: row 0 is what the target says after the last fed token, row i after draft node i. The history
of a node is everything committed and the draft tokens on the path to it, so two siblings never see each other's tokens.

Invariant: stateless; asking twice gives equal answers, and a node that is not reached costs nothing.
Does not know: rules, randomness, other sequences.
"""

from __future__ import annotations

import numpy as np

from draftproof.rules.warp import History, Warped, processed, warp
from draftproof.types import Draft, FloatArray, Logits, StepItem


class Nodes:
    """A draft with the target's rows behind it; node numbers as in `Draft`."""

    def __init__(self, item: StepItem, draft: Draft, logits: Logits, first_row: int) -> None:
        self.item = item
        self._draft = draft
        self._logits = logits
        self._first_row = first_row

    def path_to(self, node: int) -> list[int]:
        """The nodes from the root's child down to `node`; empty for the root."""
        path: list[int] = []
        while node:
            path.append(node)
            node = int(self._draft.parents[node - 1])
        return path[::-1]

    def position_after(self, node: int) -> int:
        """Absolute index of the token to be chosen after `node`."""
        return len(self.item.tokens) + len(self.path_to(node))

    def history(self, node: int) -> History:
        """What stands before the token to be chosen after `node`."""
        path = np.array(self.path_to(node), np.int64)
        tokens = np.concatenate([self.item.tokens, self._draft.tokens[path - 1]]) if len(path) else self.item.tokens
        return History(tokens, self.item.prompt_len)

    def raw(self, node: int) -> FloatArray:
        """float[V], read-only: the target's untouched logits after `node`."""
        return self._logits.row(self._first_row + node)

    def processed(self, node: int) -> FloatArray:
        """float[V]: with penalties, bias and bans under the history of `node`."""
        row, params = self.raw(node), self.item.params
        return processed(row, params, self.history(node), self.item.stop_ids) if params.has_processors else row

    def warped(self, node: int) -> Warped:
        """The target law after `node`, as scores. Raises RowError where the row has none."""
        return warp(self.processed(node), self.item.params)
