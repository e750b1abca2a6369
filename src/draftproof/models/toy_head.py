"""A toy draft head, as strict as the toy targets: what it says follows from all that its pages hold of a sequence.

Invariant: each row's (token, states, whether they are its own) is hashed into its slot, all of them before any is read;
logits and output are drawn from the slots read back through the page table up to the row. A row written with other
states, or in another place, changes every draft after it.

Does not know: drafters, targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import EngineError
from draftproof.rules.host import HostLogits
from draftproof.types import Numerics, StepBatch

States = NDArray[np.float32]


class HashHead:
    """The `Head` protocol; output [n, 2]."""

    min_rows = packed_rows = 1
    numerics: Numerics = "invariant"

    def __init__(self, vocab_size: int, num_pages: int = 400, page_size: int = 4, max_len: int = 300) -> None:
        self.vocab_size, self.num_pages, self.page_size, self.max_len = vocab_size, num_pages, page_size, max_len
        self._pages = np.full((num_pages, page_size), -1, np.int64)

    def draft(self, batch: StepBatch, features: States | None, own: States | None) -> tuple[HostLogits, States]:
        """(logits [n, V], output [n, 2]) of the wanted rows; raises EngineError for states that do not fit the rows."""
        states = features if own is None else own
        if states is None or (features is not None and own is not None) or len(states) != len(batch.input_ids):
            raise EngineError("a head takes one line of states for each row: the target's or its own")
        where: list[tuple[Any, int]] = []  # page table and place of each row
        for seq, table in enumerate(batch.tables):
            for row in range(*batch.offsets[seq : seq + 2].tolist()):
                place = int(batch.past_lens[seq]) + row - int(batch.offsets[seq])
                if batch.positions[row] != place:
                    raise EngineError(f"row {row} has position {batch.positions[row]}, but lies at {place}")
                page, offset = divmod(place, self.page_size)
                self._pages[table[page], offset] = cell(int(batch.input_ids[row]), states[row], features is None)
                where.append((table, place))
        before = [(self._pages[table].ravel(), place) for table, place in (where[row] for row in batch.logit_rows)]
        wanted = [self.answer(cells[: place + 1].tolist()) for cells, place in before]
        logits = np.array([logits for logits, _ in wanted], np.float64).reshape(-1, self.vocab_size)
        return HostLogits(logits), np.array([output for _, output in wanted], np.float32).reshape(-1, 2)

    def answer(self, cells: list[int]) -> tuple[NDArray[np.float64], States]:
        """(logits float64[V], output [2]) after these cells."""
        rng = np.random.default_rng(cells)
        return 3 * rng.standard_normal(self.vocab_size), rng.standard_normal(2).astype(np.float32)

    def verify(self, batch: StepBatch) -> Any:
        """A head is never run without states."""
        raise EngineError("a draft head needs the target's states")

    def move(self, moves: Any) -> None:
        """A chain moves nothing."""
        if moves:
            raise EngineError("a head's rows were to be moved")

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Whole pages (source, own), for branches of trees."""
        for source, own in copies:
            self._pages[own] = self._pages[source]


def cell(token: int, states: States, is_own: bool) -> int:
    """What a row leaves in its slot."""
    key = [token, int(is_own), *np.ascontiguousarray(states, np.float32).view(np.uint32).tolist()]
    return int(np.random.default_rng(key).integers(1 << 40))
