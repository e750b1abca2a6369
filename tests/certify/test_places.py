"""The claim of `places`, enumerated: given that a round reaches its k-th token, that token has the target's law."""

from fractions import Fraction

import numpy as np
import pytest

from draftproof.certify.places import observe
from draftproof.certify.types import Depth, Round, Sample
from draftproof.rules import emitted, follow
from draftproof.rules.law import outcomes
from draftproof.rules.rehearse import draw_tree, path_tokens, reject_round


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def varying(laws):
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


TARGET = varying([law(1, 4, 5), law(1, 1, 8), law(2, 5, 3), law(4, 4, 2)])
DRAFTED = varying([law(6, 3, 1), law(3, 4, 3), law(1, 7, 2)])


def follow_round(coins):
    draft = draw_tree(DRAFTED, (), (1, 1), "iid", coins)
    return emitted(draft, follow(draft, lambda node: coins.draw(node, TARGET(path_tokens(draft, node)))))


def block_round(coins, gamma=2):
    """Block verification (Sun et al. 2024, algorithm 2)."""
    tokens, weight, weights = (), Fraction(1), [Fraction(1)]
    for _ in range(gamma):
        drawn = coins.draw(0, DRAFTED(tokens))
        weight = min(Fraction(1), weight * TARGET(tokens)[drawn] / DRAFTED(tokens)[drawn])
        tokens, weights = (*tokens, drawn), [*weights, weight]
    kept = 0
    for length in range(1, gamma + 1):
        prefix, so_far = tokens[:length], weights[length]
        if length == gamma:
            chance = so_far
        else:
            rest = np.maximum(so_far * TARGET(prefix) - DRAFTED(prefix), 0).sum()
            chance = rest / (rest + 1 - so_far) if rest + 1 - so_far else Fraction(1)
        if coins.accept(length, chance, Fraction(1)):
            kept = length
    prefix = tokens[:kept]
    if kept == gamma:
        return (*prefix, coins.draw(0, TARGET(prefix)))
    return (*prefix, coins.draw(0, np.maximum(weights[kept] * TARGET(prefix) - DRAFTED(prefix), 0)))


ROUNDS = {
    "follow": follow_round,
    "reject": lambda coins: reject_round(TARGET, DRAFTED, (), (1, 1), "iid", coins),
    "siblings": lambda coins: reject_round(TARGET, DRAFTED, (), (2, 1), "iid", coins),
    "distinct": lambda coins: reject_round(TARGET, DRAFTED, (), (2, 1), "distinct", coins),
    "block": block_round,
}


@pytest.mark.parametrize("rule", ROUNDS)
def test_a_reached_place_has_the_targets_law(rule):
    runs = outcomes(ROUNDS[rule])
    reached = {}
    for tokens, mass in runs.items():
        for place in range(len(tokens)):
            here = reached.setdefault(tokens[:place], [Fraction(0)] * 3)
            here[tokens[place]] += mass
    assert max(map(len, reached)) == 2  # the bonus is reached too
    for prefix, masses in reached.items():
        assert [mass / sum(masses) for mass in masses] == list(TARGET(prefix)), prefix


def test_accepted_tokens_alone_do_not_have_it():
    """Why tokens are not sorted by whether they were accepted."""
    target, draft = law(3, 2), law(4, 1)
    runs = outcomes(lambda coins: reject_round(lambda _: target, lambda _: draft, (), (1,), "iid", coins))
    accepted = [sum(m for t, m in runs.items() if len(t) == 2 and t[0] == token) for token in (0, 1)]
    assert [mass / sum(accepted) for mass in accepted] == [Fraction(3, 4), Fraction(1, 4)]
    assert list(target) == [Fraction(3, 5), Fraction(2, 5)]


P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


def names(sample):
    return [seen.test for seen in observe(sample, iter([P] * len(sample.tokens)), np.random.default_rng(0))]


def test_each_token_is_filed_under_its_place():
    depths = (Depth((0,), "iid", Q, 0), Depth((2,), "iid", Q, None))
    sample = Sample((0, 1, 2), "length", (Round(2, 1, 2, 3, depths), Round(1, 0, 0, 0)))
    # p(0) > q(0): that coin has one side and is no number; p(2) < q(2): the refusal is one
    assert names(sample) == [
        *("law", "tested", "tested@1", "draft"),
        *("law", "tested", "tested@2", "draft", "accept@2", "correction"),
        *("law", "plain"),
    ]


def test_without_rounds_only_the_law_is_tested():
    assert names(Sample((0, 1))) == ["law", "law"]


def test_candidates_that_know_the_noise_choose_nothing():
    informed = Round(1, 0, 1, 1, (Depth((0,), "fixed", None, None, informed=True),))
    assert names(Sample((1,), None, (informed,))) == ["law", "tested", "tested@1"]
    free = Round(1, 0, 1, 1, (Depth((0,), "fixed", None, None),))
    assert names(Sample((1,), None, (free,))) == ["law", "tested", "tested@1", "correction"]


def test_what_cannot_happen_is_told_apart():
    excluded = np.array([0.0, 0.6, 0.4])
    refused = Round(1, 0, 1, 1, (Depth((1,), "iid", np.array([0.5, 0.5, 0.0]), None),))
    seen = observe(Sample((0,), None, (refused,)), iter([excluded]), np.random.default_rng(0))
    assert {"support", "coin_sides"} <= {each.test for each in seen}
