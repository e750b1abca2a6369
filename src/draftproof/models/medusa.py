"""Medusa heads: each guesses one of the target's next tokens from the target's last hidden state alone.

Head k (from 0) reads the state after token t, from which the target itself says token t+1, and guesses token t+2+k. A
head is a stack of residual blocks h + silu(W h + b); its outcome meets the target's own output rows, cut to
`draft_ids`, the tokens that are frequent in the target's texts. With W = b = 0 every head says what the target says.

Parameters carry the names of public Medusa checkpoints: {head}.{block}.linear.*, and {head}.{num_layers}.weight where a
head has output rows of its own. `d2t` is the table of draft ids, as of an EAGLE head.

Source: Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads" (2024), section
2.1.
Does not know: sampling, training, where states come from.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from draftproof.models.medusa_config import MedusaConfig


class ResBlock(nn.Module):
    """One residual block; starts as the identity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        return hidden + nn.functional.silu(self.linear(hidden))


class MedusaHeads(nn.ModuleList):
    """All heads: a third of a million parameters each at a hidden size of 576. Output rows come from outside."""

    d2t: Tensor

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(_head(config) for _ in range(config.num_heads))
        self.config = config
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))

    @property
    def draft_ids(self) -> Tensor:
        """int64[Vd], ascending: the target's id of each draft token (`d2t` holds the differences)."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def set_draft_ids(self, ids: Tensor) -> None:
        """ids: int64[Vd], ascending."""
        self.d2t.copy_(ids.to(self.d2t.device) - torch.arange(len(ids), device=self.d2t.device))

    def logits(self, number: int, states: Tensor, output: Tensor) -> Tensor:
        """Of head `number`: [..., H] -> [..., Vd]. output: [Vd, H], the target's output rows of the draft ids."""
        found: Tensor = self[number](states)
        return found if self.config.own_output else nn.functional.linear(found, output)

    def forward(self, states: Tensor, output: Tensor) -> Tensor:
        """Of all heads: [..., H] -> [..., K, Vd]."""
        return torch.stack([self.logits(number, states, output) for number in range(len(self))], -2)


def _head(config: MedusaConfig) -> nn.Sequential:
    blocks: list[nn.Module] = [ResBlock(config.hidden_size) for _ in range(config.num_layers)]
    if config.own_output:
        blocks.append(nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False))
    return nn.Sequential(*blocks)
