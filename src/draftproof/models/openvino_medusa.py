"""Medusa heads on OpenVINO: one small graph, hidden states in, rows of logits out. No cache, no attention.

The number of rows is rounded up to a power of two, at least 2: products of one row go another way than wider ones
(models/flat.py), and a shape that comes again is prepared already.

Invariant: a row's logits do not depend on the rows beside it.
Does not know: drafts, sequences, where the states come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.models.graph import GraphInfo, compile_graph
from draftproof.models.medusa_config import MedusaConfig
from draftproof.types import Numerics


class OpenVINOMedusa:
    """Converted heads (folder with graph.xml and draft_ids.npy). threads: None leaves it to OpenVINO (all cores)."""

    numerics: Numerics = "invariant"

    def __init__(self, folder: Path, config: MedusaConfig, *, threads: int | None = None) -> None:
        self.config, self.vocab_size, self.max_len = config, config.draft_vocab_size, config.max_len
        self.num_heads = config.num_heads
        self.draft_ids: NDArray[np.int32] = np.load(folder / "draft_ids.npy")  # [Vd] target ids, ascending
        self.weight_bytes = (folder / "graph.bin").stat().st_size
        info = GraphInfo((), config.draft_vocab_size, config.max_len)
        self._request: Any = compile_graph(folder, info, "f32", threads).create_infer_request()

    def guess(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits [B, K, Vd] from states [B, H]; a view that is valid until the next call."""
        count, rows = len(states), 2
        while rows < count:
            rows *= 2
        lines = np.zeros((rows, self.config.hidden_size), np.float32)
        lines[:count] = states
        self._request.infer([lines])
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data[:count]
        return logits
