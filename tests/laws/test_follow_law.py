"""Theorem 1 enumerated: the production `follow` emits the target's joint law, whatever the tree holds."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, follow
from draftproof.rules.law import plain_law, sequence_law
from draftproof.rules.rehearse import path_tokens
from draftproof.types import Draft


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def varying(laws):
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


TARGET = varying([law(1, 2, 0), law(3, 1, 1), law(0, 0, 1), law(1, 1, 2)])


@st.composite
def trees(draw, vocab=3, most=6):
    parents = [draw(st.integers(0, i)) for i in range(draw(st.integers(0, most)))]
    tokens = [draw(st.integers(0, vocab - 1)) for _ in parents]
    return Draft(np.array(tokens, np.int32), np.array(parents, np.int32))


def follow_round(draft, tokens, coins):
    return emitted(draft, follow(draft, lambda node: coins.draw(node, TARGET((*tokens, *path_tokens(draft, node))))))


@settings(max_examples=50, deadline=None)
@given(trees(), trees())
def test_joint_law_of_three_tokens_for_any_trees(one, other):
    def one_round(tokens, coins):
        return follow_round(other if sum(tokens) % 2 else one, tokens, coins)

    assert sequence_law(one_round, 3) == plain_law(TARGET, 3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2))
def test_a_drawn_draft_is_followed_exactly_too(constant):
    drafted = law(1, constant, 2)

    def one_round(tokens, coins):
        drawn = [coins.draw(0, drafted), coins.draw(0, drafted)]
        return follow_round(Draft(np.array(drawn, np.int32), np.array([0, 1], np.int32)), tokens, coins)

    assert sequence_law(one_round, 2) == plain_law(TARGET, 2)


def test_a_walk_that_reads_the_wrong_row_is_seen():
    draft = Draft(np.array([0, 1], np.int32), np.array([0, 1], np.int32))

    def one_round(tokens, coins):
        return emitted(draft, follow(draft, lambda node: coins.draw(node, TARGET(tokens))))

    assert sequence_law(one_round, 2) != plain_law(TARGET, 2)
