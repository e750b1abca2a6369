"""The walk: rows asked for, siblings, sources, counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import children_of, emitted, follow
from draftproof.types import EMPTY_DRAFT, Draft, chain

TREE = Draft(np.array([5, 6, 7, 8, 8], np.int32), np.array([0, 0, 1, 2, 2], np.int32))  # two equal siblings 8 under 6


@pytest.mark.parametrize(
    ("choices", "path", "next_token", "source", "tested"),
    [
        ({0: 9}, (), 9, "correction", 1),
        ({0: 5, 1: 7, 3: 1}, (1, 3), 1, "bonus", 2),
        ({0: 6, 2: 8, 4: 2}, (2, 4), 2, "bonus", 2),
        ({0: 6, 2: 7}, (2,), 7, "correction", 2),
    ],
)
def test_tree(choices, path, next_token, source, tested):
    verdict = follow(TREE, choices.__getitem__)  # a KeyError would be a row that was not reached
    assert (verdict.path, verdict.next_token, verdict.source, verdict.tested) == (path, next_token, source, tested)


def test_empty_draft_is_plain_decoding():
    verdict = follow(EMPTY_DRAFT, lambda node: 4)
    assert (verdict.path, verdict.next_token, verdict.source, verdict.tested) == ((), 4, "bonus", 0)


def test_children_are_in_node_order():
    assert children_of(TREE) == [[1, 2], [3], [4, 5], [], [], []]


def test_first_draft_is_judged_by_the_root_row():
    asked = []
    follow(chain([1, 1]), lambda node: asked.append(node) or 2)
    assert asked == [0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), min_size=9, max_size=9))
def test_emits_the_choices_up_to_the_first_difference(drafted, chosen):
    verdict = follow(chain(drafted), chosen.__getitem__)
    agreeing = next((i for i, token in enumerate(drafted) if token != chosen[i]), len(drafted))
    assert emitted(chain(drafted), verdict) == tuple(chosen[: agreeing + 1])
    assert verdict.path == tuple(range(1, agreeing + 1))
