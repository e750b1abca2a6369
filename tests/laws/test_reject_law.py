"""Theorems 2 to 4, enumerated in Fractions: the production `reject`, every branch, no tolerance."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, reject
from draftproof.rules.law import outcomes, plain_law, sequence_law, total_variation
from draftproof.rules.rehearse import draw_tree, judge, reject_round
from draftproof.types import chain

SHAPES = [
    ((1,), "iid"),
    ((2,), "iid"),
    ((3,), "iid"),
    ((2,), "distinct"),
    ((3,), "distinct"),
    ((1, 1), "iid"),
    ((1, 1, 1), "iid"),
    ((2, 1), "iid"),
    ((2, 1), "distinct"),
    ((1, 2), "distinct"),
]


def law(*weights):
    """An object array of Fractions that sums to 1."""
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def grid(vocab, total):
    """Every law on `vocab` tokens in steps of 1/total, zeros included."""
    return [law(*w) for w in product(range(total + 1), repeat=vocab) if sum(w) == total]


def varying(laws):
    """A law that is a function of all tokens so far."""
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


@st.composite
def laws(draw, vocab, count):
    weights = st.lists(st.integers(0, 4), min_size=vocab, max_size=vocab).filter(any)
    return [law(*draw(weights)) for _ in range(count)]


def test_worked_example_of_the_mission():
    target, drafted = law(3, 2), law(4, 1)  # (0.6, 0.4) and (0.8, 0.2)

    def run(coins):
        draft = chain([coins.draw(0, drafted)], "iid", np.stack([drafted]))
        verdict = reject(draft, lambda node: target, coins)
        return emitted(draft, verdict)[0], verdict.source, int(draft.tokens[0])

    masses = outcomes(lambda coins: run(coins)[:2])
    assert masses == {(0, "bonus"): Fraction(3, 5), (1, "bonus"): Fraction(1, 5), (1, "correction"): Fraction(1, 5)}
    assert all(token == 1 for (token, source) in masses if source == "correction")  # residual (0, 1)


@pytest.mark.parametrize("vocab", [2, 3])
def test_one_candidate_for_every_pair_of_laws_on_a_grid(vocab):
    for target, drafted in product(grid(vocab, 4), repeat=2):

        def run(coins, target=target, drafted=drafted):
            draft = chain([coins.draw(0, drafted)], "iid", np.stack([drafted]))
            verdict = reject(draft, lambda node: target, coins)
            assert verdict.empty_residuals == 0
            return emitted(draft, verdict)[0], bool(verdict.path)

        masses = outcomes(run)
        emitted_law = [sum(m for (t, _), m in masses.items() if t == token) for token in range(vocab)]
        assert emitted_law == list(target)
        accepted = sum(m for (_, accepted), m in masses.items() if accepted)
        assert accepted == sum(np.minimum(target, drafted))


@pytest.mark.parametrize(("branching", "siblings"), SHAPES)
def test_joint_law_of_two_tokens_over_two_rounds(branching, siblings):
    target = varying([law(1, 2, 0), law(3, 1, 1), law(0, 0, 1), law(1, 1, 2)])
    drafted = varying([law(2, 1, 1), law(0, 1, 3), law(1, 0, 1)])

    def one_round(tokens, coins):
        # the wide trees speculate in the first round only: two such rounds have millions of outcomes
        if tokens and np.prod(branching) * len(branching) > 2:
            return (coins.draw(0, target(tokens)),)
        return reject_round(target, drafted, tokens, branching, siblings, coins)

    assert sequence_law(one_round, 2) == plain_law(target, 2)


@pytest.mark.parametrize("siblings", ["iid", "distinct"])
def test_binary_tree_of_depth_two_joint_law_of_three_tokens(siblings):
    target = varying([law(1, 2), law(3, 1), law(0, 1), law(1, 1)])
    drafted = varying([law(2, 1), law(1, 3), law(1, 1)])

    def one_round(tokens, coins):
        if tokens:
            return (coins.draw(0, target(tokens)),)
        return reject_round(target, drafted, tokens, (2, 2), siblings, coins)

    assert sequence_law(one_round, 3) == plain_law(target, 3)


def test_three_rounds_of_chains_with_a_draft_length_chosen_from_the_past():
    target = varying([law(1, 2), law(3, 1), law(0, 1), law(1, 1)])
    drafted = varying([law(2, 1), law(1, 3), law(1, 0)])

    def one_round(tokens, coins):
        gamma = sum(tokens) % 3
        return reject_round(target, drafted, tokens, (1,) * gamma, "iid", coins)

    assert sequence_law(one_round, 4) == plain_law(target, 4)


@settings(max_examples=40, deadline=None)
@given(laws(4, 6), st.sampled_from([(1,), (2,), (1, 1)]), st.sampled_from(["iid", "distinct"]))
def test_random_laws_on_four_tokens(random_laws, branching, siblings):
    target, drafted = varying(random_laws[:3]), varying(random_laws[3:])
    one = outcomes(lambda coins: reject_round(target, drafted, (), branching, siblings, coins)[:1])
    assert one == plain_law(target, 1)


def test_some_child_is_accepted_more_often_with_more_siblings():
    target, drafted = law(1, 2, 3), law(3, 2, 1)

    def accepted(width, siblings):
        def run(coins):
            draft = draw_tree(lambda _: drafted, (), (width,), siblings, coins)
            return bool(judge(lambda _: target, (), draft, coins).path)

        return outcomes(run)[True]

    assert accepted(1, "iid") < accepted(2, "iid") < accepted(2, "distinct") <= 1


def test_tested_counts_depths_and_source_says_who_spoke_last():
    target = law(1, 1)
    for tokens, taken in (([0, 0], True), ([1, 1], False)):
        draft = chain(tokens, "iid", np.stack([law(1, 0) if taken else law(0, 1)] * 2))
        verdicts = outcomes(lambda coins, draft=draft: reject(draft, lambda node: target, coins))
        for verdict in verdicts:
            refused = verdict.source == "correction"
            assert verdict.tested == len(verdict.path) + refused
            assert refused == (len(verdict.path) < 2)


def test_total_variation_of_a_law_with_itself_is_zero():
    one = plain_law(lambda tokens: law(1, 2, 3), 2)
    assert total_variation(one, one) == 0
    assert total_variation(one, {(0, 0): Fraction(1)}) == Fraction(35, 36)
