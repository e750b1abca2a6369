"""The loss of a draft model: it is to say after every token of a text what the target says there.

A draft of this model depends on the text before it alone, not on where its round began. So each text is run through it
once, and its law after each token is judged by the target's.

Invariant: the figures mean what those of an EAGLE head mean (`unroll`), so drafters of all kinds compare: `match[j]` is
what a greedy round would have at draft j+1 on this text, of the rounds whose drafts before it were right.

Source: Leviathan, Kalman, Matias (2023), section 4.1, and DistillSpec (Zhou et al., 2023), section 4.1: forward KL on
the target's own texts. Does not know: where texts come from, optimisers, files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from draftproof.models.student import Student
from draftproof.train.fused import cross_entropy
from draftproof.train.sights import BUDGET, Glance, Library, Reader, glance, kept_width, seen
from draftproof.train.texts import frequent
from draftproof.train.trainer import Trainer
from draftproof.train.unroll import Sight, Unrolled

DEPTH = 3  # drafts of a round that figures are given for
TAUGHT = 8192  # tokens, frequent in the texts, that laws are kept of
DRAWN = 1024  # of the other tokens, a step


def taught(student: Student, sight: Sight, depth: int = DEPTH) -> Unrolled:
    """The loss, and the figures of rounds of `depth` drafts."""
    log_q, counts = torch.log_softmax(student.logits(sight.tokens).float(), -1), sight.counts
    log_p = sight.scores.float()
    loss = -(log_p.softmax(-1) * log_q).sum(-1)[counts].sum() / counts.sum().clamp(min=1)
    figures: dict[str, list[Tensor]] = {"match": [], "reached": [], "overlap": []}
    with torch.no_grad():
        right, common = log_q.argmax(-1) == sight.best, torch.minimum(log_p, log_q).exp().sum(-1)
        begin = _later(counts, 0)  # roots: a round's first draft is a token of the completion
        alive = begin
        for step in range(depth):
            here = _later(counts, step) & begin
            alive = alive & here
            figures["reached"].append(alive.sum().float())
            figures["match"].append((_later(right, step) & alive).sum() / alive.sum().clamp(min=1))
            figures["overlap"].append((_later(common, step) * here).sum() / here.sum().clamp(min=1))
            alive = alive & _later(right, step)
    return Unrolled(loss, *(torch.stack(figures[name]) for name in ("match", "reached", "overlap")))


def _later(array: Tensor, step: int) -> Tensor:
    """[B, S]: at root t what stands at t + 1 + step; zeros beyond the text."""
    shifted = torch.roll(array, -1 - step, 1)
    shifted[:, array.shape[1] - 1 - step :] = 0
    return shifted


class Rows:
    """The target's output rows [V, H] as the loss from memory sees them: those of the tokens that are frequent in the
    texts, and a few of the others drawn anew for each step, each standing for many.

    So the part of the normaliser that the others make is estimated without bias, for a fifth of what it costs. A
    vocabulary of at most `num` tokens is taken whole.
    """

    def __init__(self, output: Tensor, ids: Tensor, num_drawn: int = DRAWN) -> None:
        """ids: int64[F], ascending, the frequent ones."""
        self._output, self._num = output, num_drawn
        self.frequent = output[ids]  # [F, H]: the tokens that laws are kept of
        rest = torch.ones(len(output), dtype=torch.bool)
        rest[ids] = False
        self._rest = rest.nonzero()[:, 0]

    def of_step(self, seed: int, step: int) -> Tensor:
        """[F + D, H + 1], to be met by hidden states with a 1 behind them: the last column adds the logarithm of how
        many tokens a row stands for."""
        if not len(self._rest):
            return _wider(self.frequent, 0.0)
        rng = torch.Generator().manual_seed(seed * 1_000_003 + step)
        drawn = self._rest[torch.randint(len(self._rest), (self._num,), generator=rng)]
        weight = math.log(len(self._rest) / self._num)
        return torch.cat([_wider(self.frequent, 0.0), _wider(self._output[drawn], weight)])


def _wider(rows: Tensor, value: float) -> Tensor:
    return functional.pad(rows, (0, 1), value=value)


def remembered(student: Student, rows: Tensor, sight: Glance) -> Tensor:
    """The same loss from texts that were read once, of whose laws the likeliest tokens are kept.

    rows: of `Rows.of_step`.
    """
    counts = sight.counts
    hidden = _wider(student(sight.tokens)[counts], 1.0)
    return cross_entropy(hidden, rows, sight.likely[counts], sight.chances[counts]) / max(len(hidden), 1)


class _Bare:
    """A reader without features: a draft model reads the text alone."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As `Reader`."""
        _, last = self._reader.read(tokens)
        return last[:, :0], last


class StudentTrainer(Trainer):
    """A run of the trainer over a draft model."""

    head: Student  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.settings = replace(self.settings, unroll=DEPTH)
        self.head.share(self.model)
        super().__post_init__()
        output = self.model.get_output_embeddings().weight
        self._rows = Rows(output, torch.from_numpy(frequent(self.texts, TAUGHT, len(output))))

    def read(self, reader: Reader, budget: int = BUDGET) -> None:
        """As of the trainer."""
        bare, rows, length = _Bare(reader), self._rows.frequent, self.settings.max_length
        self.library = Library(self.texts, lambda text: seen(text, bare, rows, length), kept_width(0), budget)

    def _loss(self, batch: Sequence[int]) -> Tensor:
        if self.library is None:
            return super()._loss(batch)
        rows = self._rows.of_step(self.settings.seed, self.step)
        return remembered(self.head, rows, glance(self.library.of(batch)))

    def _unrolled(self, sight: Sight) -> Any:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return taught(self.head, sight, self.settings.unroll)
