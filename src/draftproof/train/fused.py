"""The loss of `unroll`, fused: the same figure for a fraction of the time.

Three things make it cheap on a CPU. Only roots that count run through the layer; of prompts nothing but keys
and values is computed. What the loss needs of the output rows (one logarithm and K scores a root forward, one matrix
backward) is written out instead of left to autograd, with K tokens of the target's law. And each step after the first
may run on some of the roots only, drawn anew for every batch.

Invariant: with every root and the whole law it is `unroll`'s loss, and so is its gradient (tests/train/test_fused.py).

Does not know: where texts come from, optimisers, files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from draftproof.models.eagle import EagleHead, rotary, rotate
from draftproof.train.sights import Glance


class _CrossEntropy(torch.autograd.Function):
    """Sum over rows of -sum_k chances_k * log softmax(hidden @ output.T)[likely_k]; chances of a row sum to 1."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, likely: Tensor, chances: Tensor) -> Tensor:
        """[N, H], [Vd, H], int64[N, K], [N, K] -> scalar."""
        scores = functional.linear(hidden, output)
        mass = scores.logsumexp(-1, keepdim=True)
        loss = mass.sum() - (scores.gather(1, likely) * chances).sum()
        ctx.save_for_backward(scores.sub_(mass).exp_().scatter_add_(1, likely, -chances), output)  # q - p
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Of hidden alone: the output rows are the target's."""
        difference, output = ctx.saved_tensors
        return (difference @ output).mul_(grads[0]), None, None, None


def cross_entropy(hidden: Tensor, output: Tensor, likely: Tensor, chances: Tensor) -> Tensor:
    """As of `_CrossEntropy`: [N, H], [Vd, H], int64[N, K], [N, K] -> scalar."""
    loss: Tensor = _CrossEntropy.apply(hidden, output, likely, chances)  # type: ignore[no-untyped-call]
    return loss


class _Branches:
    """Attention of the unroll steps. keys, values: [B, heads, S, D] of the first step at every place of the texts."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values
        self._own: list[tuple[Tensor, Tensor]] = []
        self.places: Tensor | None = None  # int64[B, M] of the queries

    def first(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[B, M, heads, D]: each sees the places up to its own, itself included; the rows' own keys are among those."""
        mask = self._past()
        mixed = functional.scaled_dot_product_attention(query.transpose(1, 2), self._keys, self._values, mask)
        return mixed.transpose(1, 2)

    def later(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The same, and its branch: what this and earlier calls were given, [B, M, kv_heads, D]."""
        query, scale = query.transpose(1, 2), query.shape[-1] ** -0.5
        self._own.append((_wide(key, query.shape[1]), _wide(value, query.shape[1])))
        scores = (query @ self._keys.transpose(2, 3) * scale).masked_fill(~self._past(), -torch.inf)
        own = [(query * each).sum(-1, keepdim=True) * scale for each, _ in self._own]
        weights = torch.softmax(torch.cat([scores, *own], -1), -1)
        length = self._keys.shape[2]
        mixed = weights[..., :length] @ self._values
        for index, (_, each) in enumerate(self._own):
            mixed = mixed + weights[..., length + index, None] * each
        return mixed.transpose(1, 2)

    def _past(self) -> Tensor:
        assert self.places is not None
        return torch.arange(self._keys.shape[2], device=self._keys.device) <= self.places[:, None, :, None]


def _wide(side: Tensor, heads: int) -> Tensor:
    """[B, S, kv_heads, D] -> [B, heads, S, D]."""
    return side.repeat_interleave(heads // side.shape[2], 2).transpose(1, 2)


def _past(head: EagleHead, embedded: Tensor, hidden: Tensor) -> _Branches:
    """Keys and values of the first step at every place [B, S, H], as `Attention` makes them."""
    layer, config, shape = head.midlayer, head.config, (*hidden.shape[:2], head.config.num_kv_heads, -1)
    joined = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], -1)
    key, value = (part(joined).reshape(shape) for part in (layer.self_attn.k_proj, layer.self_attn.v_proj))
    places = torch.arange(hidden.shape[1], device=hidden.device)[None]
    key = rotate(key, *rotary(places, config.head_dim, config.rope_theta, config.rope_scaling))
    return _Branches(_wide(key, config.num_heads), _wide(value, config.num_heads))


def fused(
    head: EagleHead, rows: tuple[Tensor, Tensor], sight: Glance, steps: int, decay: float, columns: Tensor
) -> Tensor:
    """The loss over `steps` unroll steps.

    rows: the target's embedding [V, H] and its output rows of the head's draft ids [Vd, H].
    columns: int64[B, M] of `sight.roots`, where the steps after the first are learned.
    """
    (embedding, output), length, places = rows, sight.tokens.shape[1], sight.roots
    states = head.fc(sight.features)
    attend = _past(head, functional.embedding(torch.roll(sight.tokens, -1, 1), embedding), states)
    hidden = _at(states, places)
    total: Tensor = states.new_zeros(())
    for step in range(steps):
        if step == 1:
            places, hidden = places.gather(1, columns), _at(hidden, columns)
        attend.places = places
        judge = places + 1 + step  # whose law is to be foreseen; the last ones are beyond the text
        inside = judge < length
        judge = judge.clamp(max=length - 1)
        embedded = functional.embedding(sight.tokens.gather(1, judge), embedding)
        hidden = head(embedded, hidden, places + step, attend.later if step else attend.first)
        lines, which = (sight.counts.gather(1, judge) & inside).nonzero(as_tuple=True)
        if len(lines):
            chosen = judge[lines, which]
            law = sight.likely[lines, chosen], sight.chances[lines, chosen]
            loss = cross_entropy(head.norm(hidden[lines, which]), output, *law)
            total = total + decay**step * loss / len(lines)
    return total


def _at(states: Tensor, places: Tensor) -> Tensor:
    """[B, S, H] at int64[B, M] -> [B, M, H]."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))


def some_columns(sight: Glance, share: float, seed: tuple[int, int]) -> Tensor:
    """int64[B, M] ascending: a share of each text's roots, those with a second draft first; all of them at 1.

    seed: of the run and of the step.
    """
    batch, num = sight.roots.shape
    if share >= 1:
        return torch.arange(num).expand(batch, num)
    rng = torch.Generator().manual_seed(seed[0] * 1_000_003 + seed[1])
    judge = sight.roots + 2
    alive = sight.counts.gather(1, judge.clamp(max=sight.counts.shape[1] - 1)) & (judge < sight.counts.shape[1])
    order = torch.rand(batch, num, generator=rng) + alive
    return order.topk(max(1, round(share * num)), 1).indices.sort(1).values
