"""Theorem 5: the exact joint law of two coupled races, against its margins, its bound and the production race."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import Warped, race
from draftproof.rules.law import race_acceptance, race_law


def weights(vocab):
    return st.lists(st.integers(0, 6), min_size=vocab, max_size=vocab).filter(any)


def normalised(numbers):
    return [Fraction(x, sum(numbers)) for x in numbers]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5).flatmap(lambda vocab: st.tuples(weights(vocab), weights(vocab))))
def test_margins_are_the_two_laws_and_acceptance_holds_its_bound(pair):
    target, drafted = map(normalised, pair)
    joint = race_law(target, drafted)
    for token in range(len(target)):
        assert sum(m for (y, _), m in joint.items() if y == token) == target[token]
        assert sum(m for (_, x), m in joint.items() if x == token) == drafted[token]
    distance = sum(abs(a - b) for a, b in zip(target, drafted, strict=True)) / 2
    assert (1 - distance) / (1 + distance) <= race_acceptance(target, drafted) <= 1 - distance
    assert {(x, y): m for (y, x), m in joint.items()} == race_law(drafted, target)


def test_two_tokens_by_hand():
    # P(both 0) = 1 / max-sum: 1 / (1 + max((2/5)/(3/5), (1/5)/(4/5))) = 3/5; the target's law gives the rest
    joint = race_law([Fraction(3, 5), Fraction(2, 5)], [Fraction(4, 5), Fraction(1, 5)])
    assert joint == {(0, 0): Fraction(3, 5), (1, 1): Fraction(1, 5), (1, 0): Fraction(1, 5)}


def test_equal_laws_always_agree():
    assert race_acceptance([Fraction(1, 3)] * 3, [Fraction(1, 3)] * 3) == 1


def test_only_ratios_count_and_a_law_without_mass_is_refused():
    assert race_law([3, 2], [8, 2]) == race_law([Fraction(3, 5), Fraction(2, 5)], [Fraction(4, 5), Fraction(1, 5)])
    assert race_law([3, 2, 1], [0, 8, 2]) == race_law(normalised([3, 2, 1]), normalised([0, 8, 2]))
    with pytest.raises(ArithmeticError):
        race_law([0, 0], [1, 0])


def test_production_races_have_the_exact_joint_law():
    target, drafted = normalised([5, 3, 2]), normalised([1, 4, 5])
    joint, noise, trials = race_law(target, drafted), PhiloxNoise(), 20_000
    scores = [Warped(None, np.log(np.array(law, float))) for law in (target, drafted)]
    counts = dict.fromkeys(joint, 0)
    for position in range(trials):
        gumbel = noise.gumbel(11, position, None, 3)
        counts[race(scores[0], gumbel), race(scores[1], gumbel)] += 1  # KeyError: an outcome of probability 0
    chi_square = sum((counts[k] - trials * m) ** 2 / (trials * m) for k, m in joint.items())
    assert chi_square < scipy.stats.chi2.isf(0.001, len(joint) - 1)
