"""The fast twin of `decide` over a flat batch, equal to it for every sequence.

All greedy sequences without processors are decided from one argmax over the whole batch, wherever the target keeps its
rows; no row comes to the host and no law is built. Every other sequence goes through `decide`, whose work a node is
vocabulary-wide NumPy already.

Invariant: a verdict depends on its own item, draft and rows only; one broken row is an error value in its own place,
and its batch mates are unchanged.
Does not know: models, scheduling, endings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from draftproof.errors import RowError
from draftproof.protocols import Noise
from draftproof.rules.decide import decide
from draftproof.rules.follow import follow
from draftproof.types import Draft, StepItem, TargetOutput, Verdict


def decide_batch(
    items: Sequence[StepItem], drafts: Sequence[Draft], output: TargetOutput, vocab_size: int, noise: Noise
) -> list[Verdict | RowError | None]:
    """For each item its verdict, a RowError where a row it reached is broken, or None for a prompt chunk."""
    first_rows: list[int] = output.offsets[:-1].tolist()
    best: list[int] = output.logits.argmax().tolist() if any(map(_is_plain_greedy, items)) else []
    verdicts: list[Verdict | RowError | None] = []
    for item, draft, first_row in zip(items, drafts, first_rows, strict=True):
        if not item.decides:
            verdicts.append(None)
            continue
        try:
            if _is_plain_greedy(item):
                verdicts.append(follow(draft, _chooser(best, first_row)))
            else:
                verdicts.append(decide(item, draft, output.logits, first_row, vocab_size, noise))
        except RowError as error:
            verdicts.append(error)
    return verdicts


def _is_plain_greedy(item: StepItem) -> bool:
    return item.decides and item.params.temperature == 0 and not item.params.has_processors


def _chooser(best: list[int], first_row: int) -> Callable[[int], int]:
    """Greedy choices of one sequence out of the batch's argmax."""

    def choose(node: int) -> int:
        token = best[first_row + node]
        if token < 0:
            raise RowError("the model gave a row without a largest logit: its weights or its input are broken")
        return token

    return choose
