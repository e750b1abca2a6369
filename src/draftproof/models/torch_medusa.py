"""Medusa heads on the torch backend: the training module, on the target's device, in its dtype. No cache.

Invariant: under "invariant" numerics each state runs alone, so a row's logits do not depend on the rows beside it.
Does not know: drafts, sequences, where the states come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.models.hf import to_host
from draftproof.models.medusa import MedusaHeads
from draftproof.models.torch_head import output_rows, weight_bytes
from draftproof.types import FloatArray, Numerics


class TorchMedusa:
    """Heads over a target's module. Implements the drafters' `Heads`.

    heads: in any dtype and place; they are copied to the model's. model: the target's causal language model.
    """

    def __init__(self, heads: MedusaHeads, model: Any, *, numerics: Numerics = "fast") -> None:
        self.config, self.numerics = heads.config, numerics
        self.vocab_size, self.max_len = heads.config.draft_vocab_size, heads.config.max_len
        self.num_heads = heads.config.num_heads
        self._heads = MedusaHeads(heads.config).to(model.device, model.dtype).eval()
        self._heads.load_state_dict(heads.state_dict())
        self._device, self._dtype = model.device, model.dtype
        self.draft_ids: NDArray[np.int32] = self._heads.draft_ids.cpu().numpy().astype(np.int32)  # [Vd] ascending
        self._output = output_rows(model, self._heads.draft_ids)
        self.weight_bytes = weight_bytes(self._heads, *(() if self.config.own_output else (self._output,)))

    @torch.inference_mode()
    def guess(self, states: FloatArray) -> FloatArray:
        """Logits [B, K, Vd] from states [B, H]."""
        lines = torch.from_numpy(np.ascontiguousarray(states)).to(self._device, self._dtype)
        parts = [lines] if self.numerics == "fast" else [lines[row : row + 1] for row in range(len(lines))]
        found: list[Tensor] = [self._heads(part, self._output) for part in parts]
        return to_host(torch.cat(found))
