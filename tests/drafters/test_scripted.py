"""Drafts on command."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from draftproof.drafters.scripted import LawDrafter, ScriptedDrafter
from draftproof.errors import UnknownDrafter
from draftproof.noise import PhiloxNoise
from draftproof.types import Draft

NOISE = PhiloxNoise()


def test_a_script_by_round_and_nothing_after_its_end(item):
    drafter = ScriptedDrafter([[1, 2, 3], [], [4]])
    for round_, wanted in enumerate([[1, 2], [], [4], [], []]):
        assert drafter.propose([item([0], 2, round_=round_)], NOISE)[0].tokens.tolist() == wanted


def test_a_script_by_item(item):
    drafter = ScriptedDrafter(lambda it: [it.seq] * 4)
    drafts = drafter.propose([item([0], 9, 5), item([0], 0, 6), item([0], 1, 7)], NOISE)
    assert [draft.tokens.tolist() for draft in drafts] == [[5, 5, 5, 5], [], [7]]


def test_a_tree_is_cut_to_its_first_nodes(item):
    tree = Draft(np.array([1, 2, 3, 4], np.int32), np.array([0, 0, 1, 3], np.int32))
    drafter = ScriptedDrafter([tree])
    assert drafter.propose([item([0], 9)], NOISE)[0] is tree
    cut = drafter.propose([item([0], 3)], NOISE)[0]
    assert (cut.tokens.tolist(), cut.parents.tolist()) == ([1, 2, 3], [0, 0, 1])


LAW = np.array([[0.5, 0.3, 0.2, 0.0]])


def draws(drafter, item, count):
    for round_ in range(count):
        yield drafter.propose([item([0], 9, round_=round_, seed=3)], NOISE)[0]


def test_iid_siblings_have_the_law_and_are_independent(item):
    """10 000 pairs; false alarm 1 in 1000."""
    pairs = np.zeros((4, 4))
    for draft in draws(LawDrafter(LAW, "iid", parents=[0, 0], law_row=[0, 0]), item, 10_000):
        pairs[tuple(draft.tokens)] += 1
        assert np.array_equal(draft.laws[draft.law_row[1]], LAW[0])
    expected = 10_000 * np.outer(LAW[0], LAW[0])
    assert pairs[expected == 0].sum() == 0
    assert stats.chisquare(pairs[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_distinct_siblings_are_drawn_without_replacement(item):
    """10 000 pairs: first by the law, second by the law without the first, renormalised; false alarm 1 in 1000."""
    pairs = np.zeros((4, 4))
    for draft in draws(LawDrafter(LAW, "distinct", parents=[0, 0], law_row=[0, 0]), item, 10_000):
        pairs[tuple(draft.tokens)] += 1
    law = LAW[0]
    expected = 10_000 * np.array(
        [[0 if i == j else law[i] * law[j] / (1 - law[i]) for j in range(4)] for i in range(4)]
    )
    assert pairs[expected == 0].sum() == 0
    assert stats.chisquare(pairs[expected > 0], expected[expected > 0]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("siblings", "parents", "law_row", "says"),
    [
        ("fixed", None, None, "distinct"),
        ("iid", [0, 0], [0], "parent and a law row"),
        ("iid", [0, 0], [0, 1], "different laws"),
        ("distinct", [0, 0, 0, 0], [0, 0, 0, 0], "more distinct children"),
    ],
)
def test_trees_that_can_not_be_drawn_are_refused(siblings, parents, law_row, says):
    with pytest.raises(UnknownDrafter, match=says):
        LawDrafter([[0.5, 0.3, 0.2, 0.0], [1, 0, 0, 0]], siblings, parents, law_row)
