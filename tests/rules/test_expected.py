"""Chances of acceptance, against exact oracles: enumeration of the ratio rule, the joint law of two races."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import expected
from draftproof.rules.coupled import race
from draftproof.rules.law import outcomes, race_acceptance, race_law
from draftproof.rules.reject import reject
from draftproof.rules.warp import Warped
from draftproof.types import chain


def law_of(weights):
    return np.array([Fraction(weight, sum(weights)) for weight in weights], object)


weights = st.lists(st.integers(0, 6), min_size=2, max_size=6)


@st.composite
def pairs(draw):
    p = draw(weights.filter(any))
    q = draw(st.lists(st.integers(0, 6), min_size=len(p), max_size=len(p)).filter(any))
    return law_of(p), law_of(q)


@settings(deadline=None)
@given(pairs())
def test_meeting_masses_are_the_diagonal_of_the_joint_law_of_both_races(laws):
    p, q = laws
    joint = race_law(p.tolist(), q.tolist())
    found = expected.meet(p, q)
    assert found.tolist() == [joint.get((y, y), 0) for y in range(len(p))]
    assert sum(found) == race_acceptance(p.tolist(), q.tolist())


@settings(deadline=None)
@given(pairs())
def test_accept_is_the_mean_of_keep_over_the_target_law(laws):
    p, q = (law.astype(np.float64) for law in laws)
    for rule in (expected.reject, expected.coupled):
        chances = [rule(p, q, token) for token in range(len(p))]
        assert len({chance.accept for chance in chances}) == 1
        mean = sum(p[token] * chance.keep for token, chance in enumerate(chances))
        assert mean == pytest.approx(chances[0].accept, abs=1e-12)
        assert all(0 <= chance.keep <= 1 for chance in chances)
    for draft in range(len(p)):
        fixed = [expected.fixed(p, draft, token) for token in range(len(p))]
        assert sum(p[token] * chance.keep for token, chance in enumerate(fixed)) == pytest.approx(fixed[0].accept)


@settings(deadline=None)
@given(pairs())
def test_acceptance_lies_between_the_bounds_of_total_variation(laws):
    p, q = laws
    distance = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    met = sum(expected.meet(p, q))
    assert (1 - distance) / (1 + distance) <= met <= 1 - distance
    assert expected.reject(p, q, 0).accept == float(1 - distance)


@settings(deadline=None, max_examples=40)
@given(pairs())
def test_the_ratio_rule_itself_accepts_and_keeps_so(laws):
    """Runs the production rule once for each outcome of its coins, the draft's own draw included."""
    p, q = laws

    def one_round(coins):
        draft = coins.draw(-1, q)
        verdict = reject(chain([draft], "iid", q[None]), lambda node: p, coins)
        return bool(verdict.path), draft if verdict.path else verdict.next_token

    joint: dict[tuple[bool, int], Fraction] = {}
    for outcome, mass in outcomes(one_round).items():
        joint[outcome] = joint.get(outcome, Fraction(0)) + mass
    for token in range(len(p)):
        chance = expected.reject(p, q, token)
        accepted = joint.get((True, token), Fraction(0))
        assert chance.accept == pytest.approx(float(sum(m for (kept, _), m in joint.items() if kept)), abs=1e-12)
        if p[token]:
            emitted = accepted + joint.get((False, token), Fraction(0))
            assert chance.keep == pytest.approx(float(accepted / emitted), abs=1e-12)


def test_races_with_production_noise_meet_as_often():
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.full(12, 0.5)), rng.dirichlet(np.full(12, 0.5))
    noise, rounds = PhiloxNoise(), 20_000
    both = np.zeros(12)
    for seed in range(rounds):
        gumbel = noise.gumbel(seed, 0, None, 12)
        first, second = (race(Warped(None, np.log(law)), gumbel) for law in (p, q))
        both[first] += first == second
    masses = expected.meet(p, q)
    sigma = np.sqrt(masses * (1 - masses) * rounds)
    assert (np.abs(both - masses * rounds) < 4.5 * sigma + 1).all()
    total = masses.sum()
    assert abs(both.sum() - total * rounds) < 4 * np.sqrt(total * (1 - total) * rounds)


def test_laws_that_share_no_token_never_meet():
    p, q = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.25, 0.75])
    assert expected.meet(p, q).tolist() == [0, 0, 0, 0]
    assert expected.coupled(p, q, 0) == (0.0, 0.0)
    assert expected.reject(p, q, 1) == (0.0, 0.0)


def test_a_token_that_the_target_excludes_was_no_draft():
    p, q = np.array([1.0, 0.0]), np.array([0.25, 0.75])
    assert expected.reject(p, q, 1).keep == 0
    assert expected.coupled(p, q, 1).keep == 0
    assert expected.fixed(p, 1, 1) == (0.0, 1.0)  # the log says that it came; the law says that it could not


@pytest.mark.parametrize("size", [3, 1000, 60_000])
def test_equal_laws_are_always_accepted_also_in_float32(size):
    law = np.exp(np.random.default_rng(size).normal(size=size) * 4).astype(np.float32)
    law /= law.sum()
    for rule in (expected.reject, expected.coupled):
        chance = rule(law, law.copy(), 1)
        assert 1 - 1e-5 < chance.accept <= 1
        assert 1 - 1e-5 < chance.keep <= 1


def test_float32_laws_of_a_whole_vocabulary_lose_nothing():
    """Against the sum over all pairs, in float64, on the tokens that carry the mass."""
    rng = np.random.default_rng(3)
    logits = 5 * rng.normal(size=50_000)
    p, q = (np.exp(values - values.max()) for values in (logits, logits + rng.normal(size=50_000)))
    p, q = (p / p.sum()).astype(np.float32), (q / q.sum()).astype(np.float32)
    masses = expected.meet(p, q)
    wide_p, wide_q = p.astype(np.float64), q.astype(np.float64)
    for token in np.argsort(-p)[:20].tolist() + rng.integers(0, 50_000, 20).tolist():
        slow = 1 / np.maximum(wide_p / wide_p[token], wide_q / wide_q[token]).sum()
        assert masses[token] == pytest.approx(slow, rel=1e-9)
