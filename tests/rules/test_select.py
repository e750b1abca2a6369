"""best_ids against a full stable sort: ties, groups, -inf, rows shorter than a group."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules.select import best_ids


def sorted_ids(row, k):
    """The slow truth: sort everything, best first, ties to the lower id."""
    order = np.argsort(-row, kind="stable")
    return [int(i) for i in order if row[i] > -np.inf][:k]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 63, 64, 65, 200, 1000]),
    st.sampled_from([1, 2, 3, 16, 17, 64, 5000]),
    st.sampled_from([2, 8, 10**6]),
    st.sampled_from([0.0, 0.5, 0.99]),
)
def test_equals_a_full_sort(seed, vocab, k, levels, banned):
    rng = np.random.default_rng(seed)
    row = rng.integers(0, levels, vocab).astype(np.float32) / 7  # few levels: many ties
    row[rng.random(vocab) < banned] = -np.inf
    assert best_ids(row, k).tolist() == sorted_ids(row, k)


def test_all_equal_and_all_banned():
    assert best_ids(np.zeros(1000), 3).tolist() == [0, 1, 2]
    assert best_ids(np.full(1000, -np.inf), 3).tolist() == []
