"""What a drafter has already seen of one sequence, and whether the sequence still begins with it.

An index over committed tokens may only grow. If a history was cut, shifted, or belongs to another request that took
over the number, the index must be built anew (B40); comparing lengths does not notice a shift, so tokens are compared.
The comparison is one vectorised pass over int32: microseconds for thousands of tokens.

Does not know: what is indexed, who decides tokens.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from draftproof.types import Ids


class History:
    """A private copy of the tokens seen so far; `ids` is the same as a list, for code that walks token by token."""

    def __init__(self) -> None:
        self._seen = np.empty(256, np.int32)
        self.ids: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def precedes(self, tokens: Ids) -> bool:
        """True when `tokens` int32[L] begins with everything seen."""
        length = len(self.ids)
        return len(tokens) >= length and np.array_equal(self._seen[:length], tokens[:length])

    def catch_up(self, tokens: Ids) -> list[int]:
        """Takes over `tokens` int32[L], which must begin with everything seen; returns the new ones."""
        length, total = len(self.ids), len(tokens)
        if total > len(self._seen):
            self._seen = np.concatenate([self._seen[:length], np.empty(2 * total - length, np.int32)])
        self._seen[length:total] = tokens[length:]
        new: list[int] = tokens[length:].tolist()
        self.ids.extend(new)
        return new


def cut_after_stop(tokens: list[int], stop_ids: Collection[int]) -> list[int]:
    """The tokens up to and including the first stop id: nothing after it can be kept."""
    if stop_ids:
        for index, token in enumerate(tokens):
            if token in stop_ids:
                return tokens[: index + 1]
    return tokens
