"""An EAGLE-3 head: one decoder layer that guesses a target's next tokens from the target's own hidden states.

Row t of a text takes the target's hidden states after token t (several depths, fused) and the embedding of token t+1,
and predicts token t+2. Where the target has not run yet, the head's own output takes the place of the fused states:
that is how it drafts further. Embedding and output rows are the target's own; the output is cut to `draft_ids`, the
tokens that are frequent in the target's texts.

Parameters carry the names of public EAGLE-3 checkpoints (fc, midlayer.*, norm, d2t), so a state dict is one.

Source: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test" (2025),
sections 3.1 and 3.2.
Does not know: caches, sampling, training; attention is handed in by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from draftproof.models.eagle_config import EagleConfig, RopeScaling

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # [..., T, heads, D], [..., T, kv_heads, D] twice -> as the first


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Projections and rotary angles; the mixing is the caller's."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        width, heads, kv = 2 * config.hidden_size, config.num_heads, config.num_kv_heads
        self.q_proj = nn.Linear(width, heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv * config.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv * config.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[..., T, 2H], [..., T] -> [..., T, H]."""
        config, shape = self.config, x.shape[:-1]
        query = self.q_proj(x).reshape(*shape, config.num_heads, config.head_dim)
        key = self.k_proj(x).reshape(*shape, config.num_kv_heads, config.head_dim)
        value = self.v_proj(x).reshape(*shape, config.num_kv_heads, config.head_dim)
        cos, sin = rotary(positions, config.head_dim, config.rope_theta, config.rope_scaling)
        mixed = attend(rotate(query, cos, sin), rotate(key, cos, sin), value)
        out: Tensor = self.o_proj(mixed.reshape(*shape, config.num_heads * config.head_dim))
        return out


def rotary(positions: Tensor, dim: int, theta: float, scaling: RopeScaling | None = None) -> tuple[Tensor, Tensor]:
    """Cosine and sine [..., T, 1, dim] of rotary angles, in float32; theta, scaling: as of the head's `EagleConfig`."""
    frequencies = 1.0 / theta ** (torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32) / dim)
    if scaling is not None:
        frequencies = stretched(frequencies, scaling)
    angles = positions[..., None, None].float() * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def stretched(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Frequencies [dim / 2] of plain angles -> those of type "llama3", in the order of operations of transformers."""
    low, high, length = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_len
    waves = 2 * math.pi / frequencies
    long = torch.where(waves > length / low, frequencies / scaling.factor, frequencies)
    share = (length / waves - low) / (high - low)  # 0 where the stretch is whole, 1 where there is none
    between = (1 - share) * long / scaling.factor + share * long
    return torch.where((waves < length / high) | (waves > length / low), long, between)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[..., T, heads, dim] turned by the angles of its positions."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return (x * cos + turned * sin).to(x.dtype)


class MLP(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """The decoder layer over a token's embedding and a hidden state."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.norm_eps
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(size, eps)
        self.hidden_norm = RMSNorm(size, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.mlp = MLP(config)

    def forward(self, embedded: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[..., T, H] twice and positions [..., T] -> [..., T, H]."""
        normed = self.hidden_norm(hidden)
        joined = torch.cat([self.input_layernorm(embedded), normed], -1)
        hidden = (normed if self.norm_before_residual else hidden) + self.self_attn(joined, positions, attend)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class EagleHead(nn.Module):
    """The trainable part: 5 million parameters at a hidden size of 576.

    Embedding and output rows come from outside, but for a head that brings its own (`embed_tokens`, `lm_head`).
    """

    d2t: Tensor

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.fc = nn.Linear(len(config.feature_layers) * size, size, bias=False)
        self.midlayer = Layer(config)
        self.norm = RMSNorm(size, config.norm_eps)
        if config.own_output:
            self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, size)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))

    @property
    def draft_ids(self) -> Tensor:
        """int64[Vd], ascending: the target's id of each draft token (`d2t` holds the differences)."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def set_draft_ids(self, ids: Tensor) -> None:
        """ids: int64[Vd], ascending."""
        self.d2t.copy_(ids.to(self.d2t.device) - torch.arange(len(ids), device=self.d2t.device))

    def forward(self, embedded: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The hidden state to draft on with, [..., T, H]; `norm` of it meets the output rows."""
        out: Tensor = self.midlayer(embedded, hidden, positions, attend)
        return out
