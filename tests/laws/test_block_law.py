"""Theorem 6, enumerated in Fractions: the production `block`, every branch, no tolerance; and its planted mutants."""

import importlib
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import RoundCoins, emitted, reject
from draftproof.rules.block import block, is_chain
from draftproof.rules.law import outcomes, plain_law, sequence_law
from draftproof.rules.rehearse import draw_tree, path_tokens
from draftproof.types import Draft, chain

module = importlib.import_module("draftproof.rules.block")


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def grid(vocab, total):
    return [law(*w) for w in product(range(total + 1), repeat=vocab) if sum(w) == total]


def varying(laws):
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


TARGET = varying([law(1, 4, 5), law(1, 1, 8), law(2, 5, 3), law(4, 4, 2)])
DRAFTED = varying([law(6, 3, 1), law(3, 4, 3), law(1, 7, 2)])


def one_round(target, drafted, prefix, gamma, coins, rule=block):
    """(draft, verdict) of one round behind `prefix`."""
    draft = draw_tree(drafted, prefix, (1,) * gamma, "iid", coins)
    return draft, rule(draft, lambda node: target((*prefix, *path_tokens(draft, node))), coins)


def texts(target, drafted, gamma, rule=block):
    return lambda prefix, coins: emitted(*one_round(target, drafted, prefix, gamma, coins, rule))


def test_the_papers_example():
    """Target (1/3, 2/3), draft (2/3, 1/3), two tokens: 11/9 accepted, 10/9 token by token (Sun et al., 3)."""
    target, drafted = (lambda _: law(1, 2)), (lambda _: law(2, 1))

    def accepted(rule):
        found = outcomes(lambda coins: len(one_round(target, drafted, (), 2, coins, rule)[1].path))
        return sum(count * mass for count, mass in found.items())

    assert accepted(block) == Fraction(11, 9)
    assert accepted(reject) == Fraction(10, 9)


@pytest.mark.parametrize(("vocab", "total"), [(2, 3), (3, 2)])
def test_one_token_is_theorem_two(vocab, total):
    for target, drafted in product(grid(vocab, total), repeat=2):
        p, q = varying([target]), varying([drafted])
        both = [outcomes(lambda c, r=rule, p=p, q=q: one_round(p, q, (), 1, c, r)[1]) for rule in (block, reject)]
        assert both[0] == both[1]


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_joint_law_of_a_round_and_what_follows(gamma):
    """The target goes on after the round, so that what a round leaves out shows as well."""

    def texts_of(prefix, coins):
        return texts(TARGET, DRAFTED, gamma)(prefix, coins) if not prefix else (coins.draw(0, TARGET(prefix)),)

    assert sequence_law(texts_of, gamma + 1) == plain_law(TARGET, gamma + 1)


def test_two_rounds_with_a_length_chosen_from_the_past():
    target = varying([law(1, 2), law(3, 1), law(0, 1), law(1, 1)])
    drafted = varying([law(2, 1), law(1, 3), law(1, 0)])
    found = sequence_law(lambda prefix, coins: texts(target, drafted, 1 + sum(prefix) % 2)(prefix, coins), 4)
    assert found == plain_law(target, 4)


def test_every_pair_of_laws_on_a_grid_with_zeros():
    laws = grid(2, 2)
    for first, second, drafted, further in product(laws, repeat=4):
        target, draft = varying([first, second]), varying([drafted, further])

        def texts_of(prefix, coins, target=target, draft=draft):
            return texts(target, draft, 2)(prefix, coins) if not prefix else (coins.draw(0, target(prefix)),)

        assert sequence_law(texts_of, 3) == plain_law(target, 3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any), min_size=5, max_size=5))
def test_random_laws_on_three_tokens(weights):
    target, drafted = varying([law(*w) for w in weights[:3]]), varying([law(*w) for w in weights[3:]])

    def texts_of(prefix, coins):
        return texts(target, drafted, 2)(prefix, coins) if not prefix else (coins.draw(0, target(prefix)),)

    assert sequence_law(texts_of, 3) == plain_law(target, 3)


def reached(rule, gamma=3):
    """For each path of i drafts: the chance that it was drawn and accepted at least so far."""

    def run(coins):
        draft, verdict = one_round(TARGET, DRAFTED, (), gamma, coins, rule)
        return tuple(draft.tokens.tolist()), len(verdict.path)

    found = Counter()
    for (tokens, length), mass in outcomes(run).items():
        for i in range(1, length + 1):
            found[tokens[:i]] += mass
    return found


def test_acceptance_is_the_weight_and_never_below_theorem_two():
    """A path is drawn and accepted with Q w; token by token with Q times the product of the ratios, less or as much."""
    whole, single = reached(block), reached(reject)
    gained = 0
    for path in (path for i in (1, 2, 3) for path in product(range(3), repeat=i)):
        drawn = weight = plain = Fraction(1)
        for i, token in enumerate(path):
            ratio = TARGET(path[:i])[token] / DRAFTED(path[:i])[token]
            drawn *= DRAFTED(path[:i])[token]
            weight, plain = min(weight * ratio, Fraction(1)), plain * min(ratio, Fraction(1))
        assert (whole[path], single[path]) == (drawn * weight, drawn * plain)
        assert weight >= plain
        gained += weight > plain
    assert gained > 5


def test_counts_and_sources():
    draft = chain([0, 1], "iid", np.stack([DRAFTED(()), DRAFTED((0,))]))
    for verdict in outcomes(lambda coins: block(draft, lambda node: TARGET(tuple([0, 1][:node])), coins)):
        assert verdict.tested == min(len(verdict.path) + 1, 2)
        assert verdict.source == ("bonus" if len(verdict.path) == 2 else "correction")
        assert verdict.empty_residuals == 0


def test_a_draft_law_that_is_no_law_ends_the_chain_and_is_counted():
    broken = np.stack([np.array([0.5, 0.5]), np.array([3.0, 4.0])])
    for first, law_row in ((0, (0, 1)), (1, (1, 0))):
        draft = Draft(
            np.array([0, 1], np.int32), np.array([0, 1], np.int32), "iid", broken, np.array(law_row, np.int32)
        )
        verdicts = {block(draft, lambda _: np.array([0.5, 0.5]), RoundCoins(PhiloxNoise(), s, 0, 2)) for s in range(9)}
        assert {verdict.path for verdict in verdicts} == {(1,) if first == 0 else ()}
        assert {(verdict.source, verdict.empty_residuals) for verdict in verdicts} == {("correction", 1)}


def test_only_chains_of_drawn_tokens_are_its_business():
    laws = np.stack([DRAFTED(())] * 2)
    assert is_chain(chain([0, 1], "iid", laws))
    assert not is_chain(chain([0, 1]))
    assert not is_chain(
        Draft(np.array([0, 1], np.int32), np.array([0, 0], np.int32), "iid", laws, np.zeros(2, np.int32))
    )


def test_production_floats_and_numbers_give_the_same_law():
    """12 000 rounds on float32 laws with numbers keyed by seed, against the exact law of the first token."""
    noise, count = PhiloxNoise(), 12_000
    exact = outcomes(lambda coins: emitted(*one_round(TARGET, DRAFTED, (), 2, coins))[:1])

    class Drawn:
        """Draft draws from their own purpose, tests from theirs."""

        def __init__(self, seed):
            self._draws = iter(noise.uniform(seed, "draft", 0, 3).tolist())

        def draw(self, node, weights):
            return int(np.searchsorted(np.cumsum(np.asarray(weights, np.float64)), next(self._draws), side="right"))

    found = Counter()
    for seed in range(count):
        draft = draw_tree(lambda t: DRAFTED(t).astype(np.float32), (), (1, 1), "iid", Drawn(seed))
        coins = RoundCoins(noise, seed, 0, 2)
        verdict = block(draft, lambda node, d=draft: TARGET(path_tokens(d, node)).astype(np.float32), coins)
        found[emitted(draft, verdict)[:1]] += 1
    for token, mass in exact.items():
        spread = (float(mass * (1 - mass)) / count) ** 0.5
        assert abs(found[token] / count - float(mass)) < 4.5 * spread


def control():
    return sequence_law(
        lambda p, c: texts(TARGET, DRAFTED, 2)(p, c) if not p else (c.draw(0, TARGET(p)),), 3
    ) == plain_law(TARGET, 3)


def test_mutant_residual_without_the_weight():
    def mutant(draft, target_law, coins):
        found = block(draft, target_law, coins)
        node = len(found.path)
        if node == len(draft):
            return found
        left = np.maximum(target_law(node) - draft.laws[node], 0)
        token = coins.draw(node, left if left.sum() > 0 else target_law(node))
        return type(found)(found.path, token, found.source, found.tested)

    target, drafted = varying([law(40, 15, 20, 25)]), varying([law(70, 10, 10, 10)])
    for rule, right in ((block, True), (mutant, False)):
        found = sequence_law(
            lambda p, c, r=rule: texts(target, drafted, 2, r)(p, c) if not p else (c.draw(0, target(p)),), 3
        )
        assert (found == plain_law(target, 3)) == right


def test_the_control_passes():
    assert control()


def test_mutant_weight_that_is_not_cut_at_one(monkeypatch):
    def weights(tokens, laws, draft_laws):
        found = [Fraction(1)]
        for token, target, drafted in zip(tokens, laws, draft_laws, strict=False):
            found.append(found[-1] * target[token] / drafted[token])
        return [min(weight, Fraction(1)) if i == len(found) - 1 else weight for i, weight in enumerate(found)]

    monkeypatch.setattr(module, "_weights", weights)
    with pytest.raises((AssertionError, ArithmeticError)):
        assert control()


def test_mutant_weight_of_the_last_ratio_alone(monkeypatch):
    def weights(tokens, laws, draft_laws):
        rows = zip(tokens, laws, draft_laws, strict=False)
        return [Fraction(1), *(min(target[token] / drafted[token], Fraction(1)) for token, target, drafted in rows)]

    monkeypatch.setattr(module, "_weights", weights)
    assert not control()


def test_mutant_shallowest_node_that_passes(monkeypatch):
    def accepted(weights, laws, draft_laws, coins):
        for node in range(1, len(draft_laws) + 1):
            left = (
                np.maximum(weights[node] * laws[node] - draft_laws[node], 0).sum() if node < len(draft_laws) else None
            )
            if left is None:
                return node if coins.accept(node, weights[node], Fraction(1)) else 0
            if coins.accept(node, left, left + 1 - weights[node]):
                return node
        return 0

    monkeypatch.setattr(module, "_accepted", accepted)
    assert not control()


def test_mutant_last_node_tested_like_the_others(monkeypatch):
    def accepted(weights, laws, draft_laws, coins):
        for node in range(len(draft_laws), 0, -1):
            left = np.maximum(weights[node] * laws[node] - draft_laws[node - 1], 0).sum()
            if coins.accept(node, left, left + 1 - weights[node]):
                return node
        return 0

    monkeypatch.setattr(module, "_accepted", accepted)
    assert not control()
