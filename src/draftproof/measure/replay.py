"""A drafter asked again at every place of a text where a round could begin, not only where rounds happened to begin.

At each start the drafter sees the tokens before it, as in a running engine, and proposes with the budget a round would
have there; then one token of the text is committed. So one pass over a text tells every draft length up to the cap.

A drafter whose draft at depth k depends on the text before it only (a model, an early exit: *consistent*) is asked for
one token at each place: what it would draft at depth k after k-1 accepted tokens is what it drafts there. The others
are asked for whole drafts: n-gram and suffix, and heads, which draft on with their own output. A head also hears the
target's hidden states: of a prompt before its first draft, of each later row with the commit of the token it decided.

Invariant: several texts advance together, and a text's drafts do not depend on the others (contract D5).
Does not know: laws of the target, what is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from draftproof.drafters.told import told
from draftproof.errors import UnknownDrafter
from draftproof.measure.texts import Text
from draftproof.protocols import Drafter, Noise
from draftproof.types import EMPTY_IDS, Commit, Draft, FloatArray, Ids, StepItem, Verdict

_FIRST_SEQ = 1 << 40  # no scheduler counts that far
_NO_TOKEN = -1


class Replay:
    """One drafter on its way through several texts. `at` is called for each position from 1 on, in order.

    laws: a drafter that draws is asked to report the laws it draws from, which rule `coupled` does not need otherwise.
    """

    def __init__(self, drafter: Drafter, texts: Sequence[Text], noise: Noise, *, laws: bool = False) -> None:
        self._drafter, self._texts, self._noise = drafter, texts, noise
        self._params = [replace(text.params, rule="reject") if laws else text.params for text in texts]
        self._states: dict[int, tuple[int, FloatArray]] = {}  # by text: position of the first, [n, F]

    def hear(self, index: int, start: int, states: FloatArray) -> None:
        """The target's states [n, F] of the rows from position `start` on: of the prompt, or of the rows after it."""
        text = self._texts[index]
        if start >= text.prompt_len:
            self._states[index] = (start, states)
        elif text.length > 1:  # a text of one token has no start, and is never asked about
            fed = Commit(_FIRST_SEQ + index, EMPTY_IDS, range(len(states)), start=start, features=states)
            self._drafter.observe([fed])

    def along(self, position: int, gamma: int) -> list[tuple[int, Draft]]:
        """As `at`; drafts that are drawn are those whose tokens were the text's, as far as that can be."""
        with told(self._drafter, self._rest):
            return self.at(position, gamma)

    def _rest(self, item: StepItem) -> Ids:
        return self._texts[item.seq - _FIRST_SEQ].tokens[len(item.tokens) :]

    def at(self, position: int, gamma: int) -> list[tuple[int, Draft]]:
        """(text, its draft) of the texts that go on at this position; then their token there is committed."""
        going = [index for index, text in enumerate(self._texts) if position < text.length]
        items = [
            self._texts[i].item(_FIRST_SEQ + i, position, self._texts[i].budget(position, gamma), self._params[i])
            for i in going
        ]
        drafts = self._drafter.propose(items, self._noise)
        commits = [self._commit(i, position, len(draft)) for i, draft in zip(going, drafts, strict=True)]
        self._drafter.observe(commits)
        for i in going:
            if position + 1 == self._texts[i].length:
                self._drafter.forget(_FIRST_SEQ + i)
        return list(zip(going, drafts, strict=True))

    def _commit(self, index: int, position: int, num_drafted: int) -> Commit:
        token = self._texts[index].completion[position : position + 1]
        tested = min(1, num_drafted)
        verdict = Verdict((), int(token[0]), "correction" if tested else "bonus", tested)
        commit = Commit(
            _FIRST_SEQ + index, token, range(1), verdict=verdict, num_drafted=num_drafted, num_tested=tested
        )
        if index not in self._states:
            return commit
        first, states = self._states[index]
        row = self._texts[index].prompt_len + position - 1  # the row that decided this token
        return replace(commit, start=row, features=states[row - first : row - first + 1])


def all_drafts(replay: Replay, texts: Sequence[Text], gamma: int) -> list[NDArray[np.int32]]:
    """For each text the drafts int32[T, gamma] of every start, -1 behind their ends; row 0 is empty.

    Raises UnknownDrafter for a draft that is a tree or was drawn: only a consistent drafter may draw.
    """
    drafts = [np.full((text.length, gamma), _NO_TOKEN, np.int32) for text in texts]
    for position in range(1, max((text.length for text in texts), default=0)):
        for index, draft in replay.at(position, gamma):
            if draft.laws is not None or (draft.parents != np.arange(len(draft))).any():
                raise UnknownDrafter("only chains that are not drawn can be replayed as whole drafts")
            drafts[index][position, : len(draft)] = draft.tokens
    return drafts
