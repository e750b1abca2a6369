"""A cascade asks the next drafter only for what the earlier ones left, and keeps all of them informed."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.cascade import Cascade
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.errors import UnknownDrafter
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, StepItem


class Spy(ScriptedDrafter):
    def __init__(self, script, wants=frozenset()):
        super().__init__(script)
        self.wants, self.asked, self.told, self.gone = wants, [], [], []

    def propose(self, items, noise):
        self.asked.append([item.seq for item in items])
        return super().propose(items, noise)

    def observe(self, commits):
        self.told.append([commit.seq for commit in commits])

    def forget(self, seq):
        self.gone.append(seq)


def item(seq, budget=3):
    return StepItem(seq, np.array([seq, 1], np.int32), 1, 1, 1, budget, SamplingParams(seed=1), 0)


def test_the_first_that_has_something_drafts():
    first = Spy(lambda item: [7] if item.seq % 2 else [])
    second = Spy(lambda item: [8, 9] if item.seq != 4 else [], frozenset({"features"}))
    third = Spy(lambda item: [5] * item.budget)
    cascade = Cascade([first, second, third])
    assert cascade.wants == {"features"}
    drafts = cascade.propose([item(1), item(2), item(3), item(4), item(6, 0)], PhiloxNoise())
    assert [draft.tokens.tolist() for draft in drafts] == [[7], [8, 9], [7], [5, 5, 5], []]
    assert [first.asked, second.asked, third.asked] == [[[1, 2, 3, 4, 6]], [[2, 4]], [[4]]]
    cascade.propose([item(1), item(3)], PhiloxNoise())
    assert len(second.asked) == 1  # nothing was left for it
    cascade.observe([Commit(2, np.zeros(0, np.int32), range(1))])
    cascade.forget(3)
    assert all(spy.told == [[2]] and spy.gone == [3] for spy in (first, second, third))


def test_none_is_no_cascade():
    with pytest.raises(UnknownDrafter, match="at least one"):
        Cascade([])
