"""A second, smaller model as drafter: chains, one token a forward for all sequences together.

One draft is a chain: "fixed" for greedy, `follow` and `coupled`, "iid" with the laws drawn from under `reject`. A
sequence whose budget is reached, whose draft ended with a stop id, or whose drafter is too unsure drops out of the
forwards that follow.

Invariant: a drafted token is fed only when another one is to follow it, so the own cache never runs ahead by more than
the draft without its last token.

Does not know: caches and vocabularies (its base does), laws (`choice` does), what the second model is:
`EarlyExitDrafter` is given the target's own first layers and head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from draftproof.drafters.choice import Choice
from draftproof.drafters.second_model import Run, SecondModelDrafter
from draftproof.errors import UnknownDrafter
from draftproof.protocols import KVCache, Noise, Target
from draftproof.types import TargetOutput


class ModelDrafter(SecondModelDrafter):
    """Chains from a second model; arguments as of the base.

    min_probability: a draft ends where the drafter's best token is less likely than this; 0 never ends one.
    """

    name = "model"

    def __init__(
        self,
        target: Target,
        ledger: KVCache,
        vocab_size: int,
        *,
        mapping: ArrayLike | None = None,
        min_probability: float = 0.0,
        chunk: int = 512,
    ) -> None:
        if not 0 <= min_probability < 1:
            raise UnknownDrafter(f"{self.name} needs min_probability in [0, 1), got {min_probability}")
        super().__init__(target, ledger, vocab_size, mapping=mapping, chunk=chunk)
        self._min_probability = min_probability

    def _fill(self, runs: Sequence[Run], output: TargetOutput, noise: Noise) -> None:
        choices = [self._choice(run, noise, min_probability=self._min_probability) for run in runs]
        growing = list(zip(runs, choices, strict=True))
        while True:
            _extend([choice for _, choice in growing], output)
            growing = [(run, choice) for run, choice in growing if not choice.ended]
            if not growing:
                break
            output = self._cache.forward(
                [self._cache.part(run.rows, np.array(choice.tokens[-1:], np.int32)) for run, choice in growing]
            )
        for run, choice in zip(runs, choices, strict=True):
            run.draft = choice.draft()


def _extend(choices: Sequence[Choice], output: TargetOutput) -> None:
    """One more token each, or the end of its draft. output: one row a choice; whole rows are read where needed only."""
    best: list[int] | None = None
    for index, choice in enumerate(choices):
        if choice.takes_argmax:
            best = output.logits.argmax().tolist() if best is None else best
            if choice.take(best[index]):
                continue
        choice.extend(output.logits.row(index))


class EarlyExitDrafter(ModelDrafter):
    """The target's own first layers with its head: a `ModelDrafter` whose model is the truncated target."""

    name = "early_exit"
