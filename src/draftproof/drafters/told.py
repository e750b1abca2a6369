"""Drafts that follow a text that is there already: what would be drafted, were each of its tokens a draft that is kept.
And drafts that are as long as they may be, for whoever wants to know what a length costs.

Who measures acceptance asks, at every place of a text, which laws a round would draw its drafts from. Where a law
depends on the drafts before it (a head drafts on with its own output), only drafts that were kept matter, and these are
the text's own tokens. So the chain grows as ever, law for law, and takes the text's token in the place of the drawn
one. Behind the first token that its law gives no chance, or the end of the text, it goes on with what it draws.

Invariant: laws, ends and caches are those of a round whose drafts were these tokens; nothing is changed for drafts that
are not drawn.
Does not know: targets, what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from draftproof.drafters.cascade import Cascade
from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.second_model import SecondModelDrafter
from draftproof.protocols import Drafter, Noise
from draftproof.rules.warp import Warped
from draftproof.types import Ids, StepItem

Follow = Callable[[StepItem], Ids]  # the tokens that come after the item's


class ToldChoice(Choice):
    """A chain that takes the tokens of `follow(item)`; other arguments as of `Choice`."""

    def __init__(
        self, follow: Follow, item: StepItem, noise: Noise, vocab: DraftVocab, length: int, **limits: float
    ) -> None:
        super().__init__(item, noise, vocab, length, **limits)
        self._told, self._left = follow(item), False

    def _draw(self, warped: Warped) -> int:
        drawn, node = super()._draw(warped), len(self.tokens)
        assert self._laws is not None
        self._left = self._left or node >= len(self._told) or not self._laws[node, self._told[node]] > 0
        return drawn if self._left else int(self._told[node])


def told(drafter: Drafter, follow: Follow) -> AbstractContextManager[None]:
    """While it lasts, what the drafter (or a drafter of its cascade) would draw follows the text.

    Raises TypeError for a drafter that chooses no tokens from laws.
    """
    return _choosing(drafter, partial(ToldChoice, follow))


def unlimited(drafter: Drafter) -> AbstractContextManager[None]:
    """While it lasts, a draft has as many tokens as it may have, however unlikely they are. Raises as `told`."""
    return _choosing(drafter, _whole)


def _whole(item: StepItem, noise: Noise, vocab: DraftVocab, length: int, **limits: float) -> Choice:
    return Choice(item, noise, vocab, length)


@contextmanager
def _choosing(drafter: Drafter, how: Callable[..., Choice]) -> Iterator[None]:
    parts = drafter.parts if isinstance(drafter, Cascade) else (drafter,)
    choosing = [part for part in parts if isinstance(part, SecondModelDrafter | MedusaDrafter)]
    if not choosing:
        raise TypeError(f"drafter {drafter.name} chooses no tokens from laws")
    for part in choosing:
        part.choosing = how
    try:
        yield
    finally:
        for part in choosing:
            part.choosing = Choice
