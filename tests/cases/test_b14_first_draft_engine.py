"""B14: the first draft token is verified too; gamma drafts need gamma + 1 target rows, row 0 after the last token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.models.toy import HashTarget, TableTarget, ToyOptions
from draftproof.types import SamplingParams


def test_the_case(engine_of, play):
    table = np.eye(4)[[0, 2, 3, 0]]  # the argmax after 1 is 2
    engine = engine_of(TableTarget(table), NgramDrafter(3, 1))
    run = play(engine, [([1, 1, 1], SamplingParams(max_new_tokens=2))])[0]
    assert run.tokens == [2, 3]
    assert sum(event.num_accepted for event in run.events) == 0


@given(drafts=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_whatever_is_drafted_first_the_text_is_plain(drafts, seed, engine_of, play, truth):
    options = ToyOptions(min_rows=2)
    params = SamplingParams(max_new_tokens=9, seed=seed, temperature=0.9)
    engine = engine_of(HashTarget(5, options=options), ScriptedDrafter(lambda item: drafts), gamma=6)
    run = play(engine, [([1, 1], params)])[0]
    assert run.tokens == truth(HashTarget(5, options=options), [1, 1], params)[0]


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_rows_of_a_round_are_gamma_plus_one(gamma, engine_of, play):
    target = TableTarget(np.eye(4), ToyOptions())
    engine = engine_of(target, ScriptedDrafter(lambda item: [0] * 9), gamma=gamma)
    play(engine, [([0, 0], SamplingParams(max_new_tokens=1 + (gamma + 1)))])
    assert target.num_rows == 2 + (gamma + 1)  # the prompt, then one full round
