"""The float coins of production: exact on dyadic laws over a whole grid of numbers, right on samples of real noise."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, RoundCoins, decide, draw, emitted, reject
from draftproof.types import SamplingParams, StepItem, chain

LIMITS = {1: 10.83, 2: 13.82, 3: 16.27, 15: 37.70}  # chi-square at 0.1 %


class Grid:
    """Noise that gives the numbers it was told."""

    def __init__(self, numbers):
        self.numbers = np.array(numbers)

    def uniform(self, seed, purpose, round_, count):
        assert purpose == "test"
        assert count == len(self.numbers)
        return self.numbers


class Lenient(RoundCoins):
    """The mutant: u * q(x) <= p(x)."""

    def accept(self, node, target_mass, draft_mass):
        return self._numbers[2 * node] * float(draft_mass) <= float(target_mass)


def grid_law(target, drafted, coins_type, size=16):
    """Exact law of one round when u runs over all multiples of 1/size; the laws are dyadic, so no float rounds."""
    target, drafted = np.array(target), np.array(drafted)
    law = [Fraction(0)] * len(target)
    for token, test, last in product(np.flatnonzero(drafted), range(size), range(size)):
        numbers = [0.0, last / size, test / size, last / size]  # node 0 and node 1: a test and a draw each
        coins = coins_type(Grid(numbers), seed=1, round_=0, num_nodes=1)
        draft = chain([token], "iid", drafted[None])
        law[emitted(draft, reject(draft, lambda node: target, coins))[0]] += Fraction(drafted[token]) / size**2
    return law


@pytest.mark.parametrize(
    ("target", "drafted"),
    [
        ([0.75, 0.25], [0.5, 0.5]),
        ([0.625, 0.375, 0.0], [0.5, 0.25, 0.25]),
        ([0.0, 0.5, 0.5], [0.5, 0.25, 0.25]),
        ([0.5, 0.5], [0.5, 0.5]),
    ],
)
def test_grid_is_exact(target, drafted):
    assert grid_law(target, drafted, RoundCoins) == [Fraction(x) for x in target]


def test_accepting_at_equality_is_seen():
    """u = 0 with p(x) = 0, and u = p/q: the wrong comparison emits what the target never says."""
    assert grid_law([0.625, 0.375, 0.0], [0.5, 0.25, 0.25], Lenient)[2] > 0
    assert grid_law([0.75, 0.25], [0.5, 0.5], Lenient) != [Fraction(3, 4), Fraction(1, 4)]


def chi_square(counts, law):
    counts, expected = np.asarray(counts, float), np.asarray(law, float) * np.sum(counts)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    return float(((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum())


TARGET, DRAFTED = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.1, 0.2, 0.3, 0.4])


def sample_rounds(rule, noise, trials):
    """Counts [V] of the first and [V, V] of the first two tokens of rounds with two candidates of an unlike law."""
    rows, laws = HostLogits(np.log(np.tile(TARGET, (3, 1)))), np.tile(DRAFTED, (2, 1))
    first, both = np.zeros(4, int), np.zeros((4, 4), int)
    for seed in range(trials):
        params = SamplingParams(temperature=1.0, rule=rule, seed=seed)
        item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 8, params, round=3)
        draft = chain([draw(DRAFTED, u) for u in noise.uniform(seed, "draft", 3, 2)], "iid", laws)
        tokens = emitted(draft, decide(item, draft, rows, 0, 4, noise))
        first[tokens[0]] += 1
        if len(tokens) > 1:
            both[tokens[0], tokens[1]] += 1
    return first, both


def misfit(rule, noise, trials):
    """Chi-square of the first token (3 df), and of the pairs of rounds that accepted a candidate (15 df)."""
    first, both = sample_rounds(rule, noise, trials)
    accepted = np.minimum(TARGET, DRAFTED) if rule == "reject" else TARGET * DRAFTED
    joint = np.outer(accepted / accepted.sum(), TARGET)
    return chi_square(first, TARGET), chi_square(both.ravel(), joint.ravel())


@pytest.mark.parametrize(("rule", "trials"), [("reject", 20_000), ("follow", 6_000), ("coupled", 6_000)])
def test_samples_have_the_target_law(rule, trials):
    first, both = misfit(rule, PhiloxNoise(), trials)
    assert first < LIMITS[3]
    assert both < LIMITS[15]


def test_one_number_for_all_is_seen():
    class Same(PhiloxNoise):
        def uniform(self, seed, purpose, round_, count):
            return np.full(count, super().uniform(seed, purpose, round_, count)[-1])

    assert max(misfit("reject", Same(), 4_000)) > 10 * LIMITS[15]
