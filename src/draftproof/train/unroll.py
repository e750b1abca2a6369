"""The loss of an EAGLE head: it is trained on its own outputs, as it will draft (training-time test).

Unroll step j = 0 takes the target's fused hidden states, each later step the head's own output of the step before, at
the same root t; its token is the text's next one. So step j at root t predicts token t+2+j, as the (j+1)-th draft of a
round that began behind token t+1 does. Attention of step j sees the roots up to t of step 0 (true states, which is what
a cache holds) and its own branch: step 1..j at the same root.

Roots are the places whose first draft is a token of the completion: where rounds begin.

Invariant: `match[j]` is the acceptance a greedy round would have at draft j+1 on this text, given that the drafts
before it were the text's own.

Source: EAGLE-3 (2025), section 3.2 and figure 6. Does not know: where texts come from, optimisers, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from draftproof.models.eagle import EagleHead


@dataclass(slots=True, eq=False)
class Sight:
    """What the target said of a batch of texts: everything the loss needs, its logits cut to the draft ids."""

    tokens: Tensor  # int64[B, S]
    features: Tensor  # [B, S, k * H] hidden states of the feature layers, side by side
    scores: Tensor  # [B, S, Vd] log-probabilities of the draft ids after each token; they sum to less than 1
    best: Tensor  # int64[B, S] the target's best token of the whole vocabulary
    counts: Tensor  # bool[B, S]: True where the *next* token belongs to a completion


@dataclass(slots=True, eq=False)
class Unrolled:
    """Figures of one batch, by unroll step."""

    loss: Tensor  # scalar
    match: Tensor  # float[J] share of roots whose draft is the target's best token, of those still on the path
    reached: Tensor  # float[J] roots on the path: every draft before was right
    overlap: Tensor  # float[J] mean of sum(min(p, q)), over all roots


class _Branches:
    """Attention of the unroll steps over one batch."""

    def __init__(self, length: int, device: torch.device) -> None:
        self._past = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[B, S, heads, D] and the step's own key and value [B, S, kv_heads, D], which are kept."""
        groups, scale = query.shape[2] // key.shape[2], query.shape[-1] ** -0.5
        self._keys.append(key.repeat_interleave(groups, 2))
        self._values.append(value.repeat_interleave(groups, 2))
        scores = torch.einsum("bshd,bthd->bhst", query, self._keys[0]) * scale
        scores = scores.masked_fill(~self._past, -torch.inf)
        own = [(query * key).sum(-1).transpose(1, 2)[..., None] * scale for key in self._keys[1:]]  # [B, h, S, 1]
        weights = torch.softmax(torch.cat([scores, *own], -1).float(), -1).to(query.dtype)
        length = scores.shape[-1]
        mixed = torch.einsum("bhst,bthd->bshd", weights[..., :length], self._values[0])
        for index, value in enumerate(self._values[1:]):
            mixed = mixed + weights[..., length + index].transpose(1, 2)[..., None] * value
        return mixed


def unroll(
    head: EagleHead, embedding: Tensor, output: Tensor, sight: Sight, steps: int, decay: float = 0.9
) -> Unrolled:
    """The loss over `steps` unroll steps.

    embedding: [V, H] of the target. output: [Vd, H], the target's output rows of the head's draft ids.
    decay: weight of each step relative to the one before.
    """
    tokens, (_, length) = sight.tokens, sight.tokens.shape
    hidden = head.fc(sight.features[:, :length])
    attend = _Branches(length, tokens.device)
    positions = torch.arange(length, device=tokens.device)[None]
    ids = head.draft_ids
    total = hidden.new_zeros((), dtype=torch.float32)
    figures: dict[str, list[Tensor]] = {"match": [], "reached": [], "overlap": []}
    alive = torch.ones_like(sight.counts)
    for step in range(steps):
        hidden = head(embedding[_later(tokens, step)], hidden, positions + step, attend)
        log_q = torch.log_softmax(functional.linear(head.norm(hidden), output).float(), -1)  # [B, S, Vd]
        judge = _later(sight.scores, step).float()  # of the target after token t+1+step
        counts = _later(sight.counts, step) & _later(sight.counts, 0)
        counts[:, length - 1 - step :] = False
        num = counts.sum().clamp(min=1)
        total = total + decay**step * (-(torch.softmax(judge, -1) * log_q).sum(-1) * counts).sum() / num
        with torch.no_grad():
            right = ids[log_q.argmax(-1)] == _later(sight.best, step)
            alive = alive & counts
            figures["reached"].append(alive.sum().float())
            figures["match"].append((right & alive).sum() / alive.sum().clamp(min=1))
            overlap = torch.minimum(judge, log_q).exp().sum(-1)
            figures["overlap"].append((overlap * counts).sum() / num)
            alive = alive & right
    return Unrolled(total, *(torch.stack(figures[name]) for name in ("match", "reached", "overlap")))


def _later(array: Tensor, step: int) -> Tensor:
    """[B, S, ...]: at root t, what stands at t + 1 + step."""
    return torch.roll(array, -1 - step, 1)


@torch.no_grad()
def see(model: Any, head: EagleHead, tokens: Tensor, counts: Tensor) -> Sight:
    """Runs the target once over texts int64[B, S], padded on the right; nothing is kept on disk."""
    output = model(input_ids=tokens, output_hidden_states=True, use_cache=False)
    features = torch.cat([output.hidden_states[layer] for layer in head.config.feature_layers], -1)
    logits = output.logits
    mass = torch.logsumexp(logits.float(), -1, keepdim=True)
    return Sight(tokens, features, logits[..., head.draft_ids].float() - mass, logits.argmax(-1), counts)
