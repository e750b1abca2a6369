"""Trains a head on texts, in a run that can be killed at any time.

The order of texts, the learning rate, the depth of the unroll and the number of steps follow from the settings, the
seed and the step alone; a checkpoint holds the head, the optimiser and the step. So a resumed run ends in the same head
as an unbroken one (to the bit on a CPU with the same number of threads).

A run that was told to `read` sees each text once and trains on what it kept (`sights`, `fused`); else the target runs
anew over every batch (`unroll`).

Invariant: a checkpoint is written whole beside the old one and put in its place; a full disk leaves the old one.

Does not know: where texts come from, what the figures are for, command lines.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftproof.errors import CorruptModel
from draftproof.models.eagle import EagleHead
from draftproof.train.fused import fused, some_columns
from draftproof.train.sights import BUDGET, Library, Reader, glance, kept_width, seen
from draftproof.train.texts import Text, shortened
from draftproof.train.unroll import Sight, see, unroll

__all__ = ["Score", "Settings", "Text", "Trainer", "padded", "rate"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a head is trained."""

    steps: int
    batch_tokens: int = 4096  # positions of a batch, padding included
    max_length: int = 512  # a longer text is cut (`texts.shortened`)
    unroll: int = 4
    decay: float = 0.9
    learning_rate: float = 1e-3
    warmup: float = 0.04  # share of the steps
    final: float = 0.02  # of the learning rate, at the end
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    deepen: float = 0.0  # share of the steps that look one draft ahead only; those after it unroll wholly
    roots: float = 1.0  # share of a text's places that the drafts after the first are learned at


@dataclass(frozen=True, slots=True)
class Score:
    """A head's figures on texts it was not trained on. Position j is draft j + 1 of a round."""

    texts: int
    match: tuple[float, ...]  # greedy acceptance at each position, of the rounds that reach it
    overlap: tuple[float, ...]  # mean of sum(min(p, q)) at each position, every root

    @property
    def tokens_per_round(self) -> float:
        """Greedy, at a draft length of len(match)."""
        return 1.0 + float(np.cumprod(self.match).sum())


@dataclass(slots=True, eq=False)
class Trainer:
    """One run. `model` is the target (transformers, frozen), on the device where everything happens."""

    model: Any
    head: EagleHead
    texts: Sequence[Text]
    settings: Settings
    step: int = 0
    losses: list[float] = field(default_factory=list)
    library: Library | None = None
    _optimiser: Any = None

    def __post_init__(self) -> None:
        self.model.requires_grad_(False)
        self.texts = [shortened(text, self.settings.max_length) for text in self.texts]
        self._optimiser = torch.optim.AdamW(
            self.head.parameters(), self.settings.learning_rate, (0.9, 0.95), weight_decay=self.settings.weight_decay
        )

    @property
    def device(self) -> torch.device:
        """Where the target is."""
        return torch.device(self.model.device)

    def read(self, reader: Reader, budget: int = BUDGET) -> None:
        """Lets the run read each text once, in windows that fit into the budget (bytes), not anew for every batch."""
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        width = kept_width(self.head.fc.in_features)
        self.library = Library(
            self.texts, lambda text: seen(text, reader, output, self.settings.max_length), width, budget
        )

    def run(self, until: int | None = None, watch: Callable[[Trainer], None] | None = None) -> None:
        """Trains up to step `until` (the settings' end by default); `watch` is called after each step."""
        last = self.settings.steps if until is None else min(until, self.settings.steps)
        for batch in islice(self._batches(), self.step, last):
            self._one(batch)
            self.step += 1
            if watch is not None:
                watch(self)

    def score(self, texts: Sequence[Text]) -> Score:
        """The head's figures on these texts; changes nothing."""
        right, reached, overlap = np.zeros((3, self.settings.unroll))
        texts = [shortened(text, self.settings.max_length) for text in texts]
        with torch.no_grad():
            for batch in _packed(texts, range(len(texts)), self.settings):
                found = self._unrolled(self._see([texts[i] for i in batch]))
                here = found.reached.cpu().numpy().astype(np.float64)
                right += found.match.cpu().numpy() * here
                reached += here
                overlap += found.overlap.cpu().numpy() * here[0]
        shares = right / np.maximum(reached, 1), overlap / max(reached[0], 1.0)
        return Score(len(texts), *(tuple(share.tolist()) for share in shares))

    def save(self, path: Path) -> None:
        """The whole state of the run. Raises OSError; the old file stays then."""
        state = {
            "step": self.step,
            "losses": self.losses,
            "head": self.head.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        beside = path.with_name(path.name + ".part")
        try:
            with beside.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def load(self, path: Path) -> None:
        """Goes on where `save` stopped. Raises CorruptModel where the file is not what it wrote."""
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
            self.head.load_state_dict(state["head"])
            self._optimiser.load_state_dict(state["optimiser"])
            self.step, self.losses = int(state["step"]), list(state["losses"])
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
            raise CorruptModel(
                f"{path} can't be read: delete it and give the same command again (texts stay, steps begin anew)"
            ) from error

    # -- one step ------------------------------------------------------------------------------------------------------

    def _one(self, batch: Sequence[int]) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * rate(self.step, self.settings)
        loss = self._loss(batch)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.clip)
        self._optimiser.step()
        self.losses.append(float(loss.detach()))

    def _loss(self, batch: Sequence[int]) -> Tensor:
        if self.library is None:
            loss: Tensor = self._unrolled(self._see([self.texts[i] for i in batch])).loss
            return loss
        settings, sight = self.settings, glance(self.library.of(batch))
        depth = settings.unroll if self.step >= settings.deepen * settings.steps else 1
        columns = some_columns(sight, settings.roots, (settings.seed, self.step))
        embedding = self.model.get_input_embeddings().weight
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        return fused(self.head, (embedding, output), sight, depth, settings.decay, columns)

    def _unrolled(self, sight: Sight) -> Any:
        embedding = self.model.get_input_embeddings().weight
        output = self.model.get_output_embeddings().weight[self.head.draft_ids]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return unroll(self.head, embedding, output, sight, self.settings.unroll, self.settings.decay)

    def _see(self, texts: Sequence[Text]) -> Sight:
        tokens, counts = padded(texts, self.settings.max_length)
        return see(self.model, self.head, tokens.to(self.device), counts.to(self.device))

    def _batches(self) -> Iterator[list[int]]:
        """Texts of each step from the first on."""
        steps = self.settings.steps
        shares = [(range(len(self.texts)), steps)] if self.library is None else self.library.shares(steps)
        for window, num in shares:
            yield from islice(self._passes(window), num)

    def _passes(self, window: range) -> Iterator[list[int]]:
        """Batches of these texts without end: every pass has an order of its own, from the seed."""
        for number in count():
            rng = np.random.default_rng([self.settings.seed, number, window.start])
            order = [window[i] for i in rng.permutation(len(window)).tolist()]
            batches = list(_packed(self.texts, order, self.settings))
            yield from (batches[i] for i in rng.permutation(len(batches)))


def rate(step: int, settings: Settings) -> float:
    """Share of the learning rate: a linear rise, then half a cosine."""
    rise = max(1, round(settings.warmup * settings.steps))
    if step < rise:
        return (step + 1) / rise
    done = (step - rise) / max(1, settings.steps - rise)
    return settings.final + (1 - settings.final) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def padded(texts: Sequence[Text], max_length: int) -> tuple[Tensor, Tensor]:
    """int64[B, S] tokens and bool[B, S] `counts` (the next token is one of the completion), padded on the right."""
    length = min(max_length, max(len(text.tokens) for text in texts))
    tokens = np.zeros((len(texts), length), np.int64)
    counts = np.zeros((len(texts), length), np.bool_)
    for row, text in enumerate(texts):
        part = text.tokens[:length]
        tokens[row, : len(part)] = part
        counts[row, text.prompt_len - 1 : len(part) - 1] = True
    return torch.from_numpy(tokens), torch.from_numpy(counts)


def _packed(texts: Sequence[Text], order: Sequence[int], settings: Settings) -> Iterator[list[int]]:
    """Batches of texts of like length, each of about `batch_tokens` positions; sorted within windows of the order."""
    window = 2048
    for start in range(0, len(order), window):
        part = sorted(order[start : start + window], key=lambda i: (len(texts[i].tokens), i))
        batch: list[int] = []
        for index in part:
            length = min(settings.max_length, len(texts[index].tokens))
            if batch and (len(batch) + 1) * length > settings.batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch
