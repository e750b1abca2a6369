"""A head as it is before its first step.

Hidden states of different depths differ a hundredfold in size, and the layer's own products would be lost beside
them. So each depth's block of `fc` is divided by the depth's typical size; the deepest block starts as the identity,
the others small and random. The last norm starts as the target's, the layer as the target's last one where their shapes
agree: what it reads of hidden states is taken over, what it reads of the token's embedding starts small and random.

Invariant: the same target, texts and seed give the same head.
Does not know: losses, steps, files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig


@torch.no_grad()
def new_head(config: EagleConfig, model: Any, draft_ids: Tensor, sample: Tensor, seed: int) -> EagleHead:
    """draft_ids: int64[Vd], ascending. sample: int64[B, S], texts without padding to take typical sizes from."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = EagleHead(config)
    head = head.to(model.device)
    head.set_draft_ids(draft_ids)
    states = model(input_ids=sample.to(model.device), output_hidden_states=True, use_cache=False).hidden_states
    size, last = config.hidden_size, len(config.feature_layers) - 1
    for index, layer in enumerate(config.feature_layers):
        typical = states[layer].float().pow(2).mean(-1).sqrt().median()
        block = head.fc.weight[:, index * size : (index + 1) * size]
        block.copy_((torch.eye(size, device=block.device) if index == last else block) / typical)
    head.norm.weight.copy_(model.base_model.norm.weight.float())
    _take_over(head, model)
    return head


def _take_over(head: EagleHead, model: Any) -> None:
    """The target's last layer, where it is one of the head's kind; else nothing."""
    ours, theirs = head.midlayer, dict(model.base_model.layers[-1].named_parameters())
    pairs: dict[str, Any] = {
        "input_layernorm.weight": ours.hidden_norm.weight,
        "post_attention_layernorm.weight": ours.post_attention_layernorm.weight,
        "self_attn.o_proj.weight": ours.self_attn.o_proj.weight,
    }
    pairs |= {f"mlp.{name}.weight": part.weight for name, part in ours.mlp.named_children()}
    size = head.config.hidden_size
    for name in ("q_proj", "k_proj", "v_proj"):
        pairs[f"self_attn.{name}.weight"] = getattr(ours.self_attn, name).weight[:, size:]  # meets the hidden state
    if set(pairs) == set(theirs) and all(part.shape == theirs[name].shape for name, part in pairs.items()):
        for name, part in pairs.items():
            part.copy_(theirs[name])
