"""The loss of Medusa heads: each is to say, from one state, what the target said some tokens later.

Head j at root t reads the target's last hidden state after token t and predicts token t+2+j, as the (j+1)-th draft of a
round that begins behind token t+1 does; it is judged by the target's law after token t+1+j of the text, which the head
has not seen. The best it can learn is the mean of these laws over the texts that go on from its state.

Invariant: the figures mean what those of an EAGLE head mean (`unroll`), so heads of both kinds compare.

Source: Cai et al. (2024), section 2.2.1, with the target's whole law in the place of one token. Does not know: where
texts come from, optimisers, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig
from draftproof.train.sights import BUDGET, Glance, Library, Reader, glance, kept_width, seen
from draftproof.train.trainer import Trainer
from draftproof.train.unroll import Sight, Unrolled

DECAY = 0.8  # weight of each head relative to the one before


def foresee(heads: MedusaHeads, output: Tensor, sight: Sight, steps: int, decay: float = DECAY) -> Unrolled:
    """The loss over the first `steps` heads. output: [Vd, H], the target's output rows of the heads' draft ids."""
    states, scores = sight.features.flatten(0, 1), sight.scores.flatten(0, 1)  # [N, H], [N, Vd]; N = batch * length
    best, ids = sight.best.flatten(), heads.draft_ids
    total = scores.new_zeros((), dtype=torch.float32)
    figures: dict[str, list[Tensor]] = {"match": [], "reached": [], "overlap": []}
    alive = torch.ones(len(states), dtype=torch.bool, device=states.device)
    for step in range(steps):
        roots = _roots(sight.counts, step)  # of their rows alone anything is computed
        counts = torch.zeros_like(alive)
        counts[roots] = True
        judge = scores[roots + 1 + step].float()
        log_q = torch.log_softmax(heads.logits(step, states[roots], output).float(), -1)
        num = max(len(roots), 1)
        total = total + decay**step * -(torch.softmax(judge, -1) * log_q).sum() / num
        with torch.no_grad():
            right = torch.zeros_like(alive)
            right[roots] = ids[log_q.argmax(-1)] == best[roots + 1 + step]
            alive = alive & counts
            figures["reached"].append(alive.sum().float())
            figures["match"].append((right & alive).sum() / alive.sum().clamp(min=1))
            figures["overlap"].append(torch.minimum(judge, log_q).exp().sum() / num)
            alive = alive & right
    return Unrolled(total, *(torch.stack(figures[name]) for name in ("match", "reached", "overlap")))


def remembered(heads: MedusaHeads, output: Tensor, sight: Glance, steps: int, decay: float = DECAY) -> Tensor:
    """The same loss from texts that were read once, of whose laws the likeliest tokens are kept."""
    states, likely, chances = (part.flatten(0, 1) for part in (sight.features, sight.likely, sight.chances))
    total = states.new_zeros(())
    for step in range(steps):
        roots = _roots(sight.counts, step)
        if len(roots):
            judge = roots + 1 + step
            scores = heads.logits(step, states[roots], output)
            said = (scores.gather(1, likely[judge]) * chances[judge]).sum()
            total = total + decay**step * (scores.logsumexp(-1).sum() - said) / len(roots)
    return total


def _roots(counts: Tensor, step: int) -> Tensor:
    """int64[n]: places, in the flattened batch, whose head `step` foresees a token of a completion."""
    later = torch.roll(counts, -1 - step, 1)
    later[:, counts.shape[1] - 1 - step :] = False
    return later.flatten().nonzero()[:, 0]


class _Last:
    """A reader whose features are the last states."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As `Reader`."""
        _, last = self._reader.read(tokens)
        return last, last


def new_heads(config: MedusaConfig, model: Any, draft_ids: Tensor) -> MedusaHeads:
    """Heads before their first step: each says what the target says. draft_ids: int64[Vd], ascending."""
    heads = MedusaHeads(config).to(model.device)
    heads.set_draft_ids(draft_ids)
    return heads


class MedusaTrainer(Trainer):
    """A run of the trainer over Medusa heads."""

    head: MedusaHeads  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.settings = replace(self.settings, unroll=self.head.config.num_heads)
        super().__post_init__()

    def read(self, reader: Reader, budget: int = BUDGET) -> None:
        """As of the trainer."""
        config, last = self.head.config, _Last(reader)
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        width = kept_width(config.hidden_size)
        self.library = Library(
            self.texts, lambda text: seen(text, last, output, self.settings.max_length), width, budget
        )

    def _loss(self, batch: Sequence[int]) -> Tensor:
        if self.library is None:
            return super()._loss(batch)
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        return remembered(self.head, output, glance(self.library.of(batch)), self.settings.unroll)

    def _unrolled(self, sight: Sight) -> Any:
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return foresee(self.head, output, sight, self.settings.unroll)
