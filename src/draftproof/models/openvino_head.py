"""An EAGLE head on OpenVINO: paged attention over pages of its own, rows from the target's states or its own output.

Drafts are judged, not trusted: numerics are "fast", the last bit is free.

Does not know: drafts, sequences, where the states come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftproof.models.eagle_config import EagleConfig
from draftproof.models.openvino import Lines, OpenVINOTarget
from draftproof.rules.host import HostLogits
from draftproof.types import StepBatch

# Compiled copies. The first forward of a round has a row for each token kept since, the ones after it have one row a
# sequence; in a single copy, padded, all of them are faster than in several that each hold the weights (docs/LOG.md).
_LANES = 1
_SHAPE_ROWS = 8.0  # what another width costs, in rows: 0.35 ms, where a row more costs next to nothing


class OpenVINOHead(OpenVINOTarget):
    """A converted head (folder with graph.xml, attention.json and draft_ids.npy)."""

    def __init__(self, folder: Path, config: EagleConfig, *, kv_bytes: int, threads: int | None = None) -> None:
        self._config = config
        super().__init__(folder, kv_bytes=kv_bytes, numerics="fast", threads=threads, lanes=_LANES)
        self.draft_ids: NDArray[np.int32] = np.load(folder / "draft_ids.npy")  # [Vd] target ids, ascending
        self.hidden_width = config.hidden_size
        self.feature_width = config.hidden_size * len(config.feature_layers)

    def _bytes_read(self, stored: int) -> int:
        """Without the target's embedding: of four fifths of the file one row is read."""
        config = self._config
        size, inner, wide = config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim
        attention = 2 * size * (wide + 2 * config.num_kv_heads * config.head_dim) + wide * size
        read = size * (len(config.feature_layers) * size + 3 * inner + config.draft_vocab_size) + attention
        return round(stored * read / (read + config.vocab_size * size))

    def _rows_of_a_shape(self) -> float:
        return _SHAPE_ROWS

    def _more_inputs(self) -> Mapping[str, Lines]:
        return {"features": (None, self.feature_width), "own": (None, self.hidden_width)}

    def draft(
        self, batch: StepBatch, features: NDArray[np.float32] | None, own: NDArray[np.float32] | None
    ) -> tuple[HostLogits, NDArray[np.float32]]:
        """One forward over R rows -> logits [n, Vd] (valid until the next call) and output [n, H] of the wanted rows.

        features: [R, k * H] of the target, or None; own: [R, H] outputs of rows before, or None. One of them is given.
        """
        wanted = len(batch.logit_rows)
        request, _ = self.infer(batch, {"features": (features, self.feature_width), "own": (own, self.hidden_width)})
        hidden: NDArray[np.float32] = request.get_output_tensor(1).data[:wanted].copy()
        return HostLogits(request.get_output_tensor(0).data[:wanted]), hidden
