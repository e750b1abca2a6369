"""Drafts of a drafter that reads the target's hidden states, judged while the target passes over the texts.

What is measured, for a round that could begin at each place: the head reads the target's states of everything before
(teacher-forced, from the forward that scores the text) and drafts as in a running engine, the first token from these
states, each later one from its own output along its own draft; where it is too unsure, it ends. The draft at depth k is
judged only where the text has the k-1 tokens before it, so at temperature 0 and under rule `follow` its chain *is* the
engine's. Where drafts are drawn, the laws are those along the text (`drafters.told`): the exact chance that draft k is
accepted, given that those before it were.

Not known of a drawn draft is what it would hold behind its first refusal; it is taken to be as long as the one along
the text. That enters the number of drafts a round pays for, and no acceptance.

A head's own arithmetic may be "fast": then its last bits, and a tie of its two best tokens, can depend on the texts
beside and on how many rows it catches up with at once; with the same settings a run gives the same rows all the same.

Invariant: no law is held longer than its draft can still be judged.
Does not know: how laws come about, drafters by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.measure.lists import Lists, listed
from draftproof.measure.replay import Replay
from draftproof.measure.texts import Text
from draftproof.rules import expected
from draftproof.types import Draft, FloatArray


class Along:
    """The drafts of one such drafter on all texts. rule: by which those it draws are judged; None: it draws none."""

    def __init__(self, replay: Replay, texts: Sequence[Text], gamma: int, rule: str | None) -> None:
        self._replay, self._texts, self._gamma, self._draws = replay, texts, gamma, rule is not None
        self._chance = expected.coupled if rule == "coupled" else expected.reject
        self._offered = [np.zeros(text.length, np.int64) for text in texts]
        self._accept = [np.zeros((text.length, gamma)) for text in texts]
        self._keep = [np.zeros((text.length, gamma)) for text in texts]
        self._open: list[dict[int, Draft]] = [{} for _ in texts]  # by start: drafts the text has followed so far

    def hear(self, index: int, start: int, states: FloatArray) -> None:
        """As of `Replay`."""
        self._replay.hear(index, start, states)

    def advance(self, position: int) -> None:
        """Asks for the drafts of the rounds that would begin here."""
        ask = self._replay.along if self._draws else self._replay.at
        for index, draft in ask(position, self._gamma):
            self._offered[index][position] = len(draft)
            if len(draft):
                self._open[index][position] = draft

    def judge(self, index: int, position: int, law: FloatArray | None) -> None:
        """The target's law float[V] at a position of text `index`; None: it is one-hot at the text's token."""
        drafts, token = self._open[index], int(self._texts[index].completion[position])
        for start, draft in list(drafts.items()):
            depth = position - start
            accept, keep = self._chances(draft, depth, law, token)
            self._accept[index][start, depth], self._keep[index][start, depth] = accept, keep
            if keep == 0 or depth + 1 == len(draft):
                del drafts[start]

    def _chances(self, draft: Draft, depth: int, law: FloatArray | None, token: int) -> tuple[float, float]:
        drafted = int(draft.tokens[depth])
        if law is None:
            return float(drafted == token), float(drafted == token)
        if draft.laws is None:  # of a cascade's lookup, or not drawn
            return expected.fixed(law, drafted, token)
        return self._chance(law, draft.laws[depth], token)

    def lists(self, index: int) -> Lists:
        """What came of text `index`."""
        keep = self._keep[index]
        return listed(self._texts[index], self._offered[index], keep > 0, keep, self._accept[index])
