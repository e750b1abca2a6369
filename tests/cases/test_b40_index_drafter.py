"""B40: edge cases of drafters that look into the past; the kind: an index that holds what is not committed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, StepItem

NOISE = PhiloxNoise()
MAKERS = [lambda: NgramDrafter(2, 2), NgramDrafter, lambda: NgramDrafter(4, 1), SuffixDrafter]
TABLE = [
    ([1, 2, 3, 1, 2], [3, 1, 2]),
    ([1, 2], []),
    ([4], []),
    ([], []),
    ([1, 2, 9, 1, 2, 7, 1, 2], [7, 1, 2]),  # the most recent occurrence is continued
]
pytestmark = pytest.mark.parametrize("make", MAKERS, ids=["n=2", "ngram", "n=1..4", "suffix"])


def propose(drafter, tokens, budget=3, stop_ids=(), seq=0):
    item = StepItem(seq, np.array(tokens, np.int32), 0, 1, 1, budget, SamplingParams(seed=1), 0, frozenset(stop_ids))
    return drafter.propose([item], NOISE)[0].tokens.tolist()


@pytest.mark.parametrize(("tokens", "wanted"), TABLE)
def test_the_table(make, tokens, wanted):
    assert propose(make(), tokens) == wanted


def test_the_table_by_one_drafter_one_request_after_another(make):
    """Two requests in a row, forgotten or not, and beside each other."""
    drafter = make()
    for forgets in (True, False):
        for tokens, wanted in [*TABLE, *TABLE[::-1]]:
            assert propose(drafter, tokens) == wanted
            if forgets:
                drafter.forget(0)
    for seq, (tokens, wanted) in enumerate(TABLE * 2):
        assert propose(drafter, tokens, seq=seq) == wanted


def test_a_stop_id_inside_the_copy_ends_it(make):
    tokens = [1, 2, 3, 4, 5, 1, 2]
    assert propose(make(), tokens, 5, stop_ids=[4])[:2] == [3, 4]
    assert len(propose(make(), tokens, 5, stop_ids=[4])) == 2
    assert propose(make(), tokens, 5, stop_ids=[3, 99]) == [3]
    assert propose(make(), tokens, 3, stop_ids=()) == [3, 4, 5]  # no stop id configured


def test_a_history_that_was_cut(make):
    """A context shift: the front goes; the length may even come back to what it was."""
    drafter = make()
    propose(drafter, [1, 2, 3, 1, 2, 3, 1, 2])
    assert propose(drafter, [1, 2, 9]) == []
    assert propose(drafter, [1, 2, 9, 5, 5, 6, 1, 2], 1) == [9]
    assert propose(drafter, [3, 8, 4, 6, 7, 0, 3, 8], 1) == [4]


def test_refused_tokens_never_enter(make):
    drafter = make()
    assert propose(drafter, [1, 2, 3, 1, 2], 1) == [3]
    drafter.observe([Commit(0, np.array([8], np.int32), range(1), num_drafted=1)])
    assert propose(drafter, [1, 2, 3, 1, 2, 8, 1, 2], 1) == [8]


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(0, 7),
    st.frozensets(st.integers(0, 4), max_size=2),
)
def test_any_history_drafts_as_a_fresh_drafter_does(make, histories, budget, stop_ids):
    """Grown token by token, replaced, shrunk: real ids, at most the budget, nothing after a stop id, no trace left."""
    drafter = make()
    for tokens in histories:
        for length in range(1, len(tokens) + 1):
            draft = propose(drafter, tokens[:length], budget, stop_ids)
            assert draft == propose(make(), tokens[:length], budget, stop_ids)
            assert len(draft) <= budget
            assert set(draft) <= set(tokens[:length])
            assert not set(draft[:-1]) & stop_ids
