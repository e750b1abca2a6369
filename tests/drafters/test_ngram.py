"""Prompt lookup against a search over the whole text."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.ngram import NgramDrafter
from draftproof.errors import UnknownDrafter


def searched(tokens, budget, sizes, stop_ids):
    """The same draft by looking at every position, latest first; the text grows by its own copy."""
    for size in sizes:
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[-size:]:
                text = list(tokens)
                for index in range(budget):
                    text.append(text[end + index])
                    if text[-1] in stop_ids:
                        break
                return text[len(tokens) :]
    return []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(0, 2),
    st.frozensets(st.integers(0, 3), max_size=1),
)
def test_equals_a_search_at_every_length_of_the_text(drafted, tokens, budget, low, more, stop_ids):
    drafter = NgramDrafter(low + more, low)
    for length in range(1, len(tokens) + 1):
        wanted = searched(tokens[:length], budget, range(low + more, low - 1, -1), stop_ids)
        assert drafted(drafter, tokens[:length], budget, stop_ids=stop_ids) == wanted


def test_a_loop_is_drafted_around(drafted):
    assert drafted(NgramDrafter(), [7, 1, 2, 1, 2], 6) == [1, 2, 1, 2, 1, 2]
    assert drafted(NgramDrafter(), [5, 5, 5], 4) == [5, 5, 5, 5]


def test_the_longest_suffix_wins_over_the_latest(drafted):
    assert drafted(NgramDrafter(3, 1), [1, 2, 3, 4, 9, 3, 5, 1, 2, 3], 1) == [4]


def test_a_call_costs_tens_of_microseconds_however_long_the_text(item):
    tokens = np.random.default_rng(0).integers(0, 50_000, 40_000)
    drafter, spent = NgramDrafter(), []
    for length in range(39_900, 40_000):
        items = [item(tokens[:length], 8)]
        begin = time.perf_counter()
        drafter.propose(items, None)
        spent.append(time.perf_counter() - begin)
    assert np.median(spent[1:]) < 500e-6  # the machine is shared: measured 20e-6; a rebuild costs 50e-3


@pytest.mark.parametrize("sizes", [(0, 0), (1, 2), (3, 0)])
def test_sizes_that_mean_nothing_are_refused(sizes):
    with pytest.raises(UnknownDrafter, match="min_ngram"):
        NgramDrafter(*sizes)
