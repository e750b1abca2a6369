"""B02: a deterministic proposal scored with a soft draft law; and the match rule, which is exact for any draft."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, follow, reject
from draftproof.rules.law import outcomes
from draftproof.types import chain

TARGET = np.array([Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)], dtype=object)
SOFT = np.array([Fraction(3, 5), Fraction(3, 10), Fraction(1, 10)], dtype=object)
POINT = np.array([Fraction(1), Fraction(0), Fraction(0)], dtype=object)


def judged(reported, target=TARGET, token=0):
    def run(coins):
        draft = chain([token], "iid", reported[None])
        verdict = reject(draft, lambda node: target, coins)
        return emitted(draft, verdict)[0], bool(verdict.path)

    return outcomes(run)


def matched(target=TARGET, token=0):
    def run(coins):
        draft = chain([token])
        verdict = follow(draft, lambda node: coins.draw(node, target))
        return emitted(draft, verdict)[0], bool(verdict.path)

    return outcomes(run)


def test_case_point_mass():
    masses = judged(POINT)
    assert masses == {(0, True): Fraction(1, 2), (1, False): Fraction(3, 10), (2, False): Fraction(1, 5)}
    refused = {token: mass / Fraction(1, 2) for (token, accepted), mass in masses.items() if not accepted}
    assert refused == {1: Fraction(3, 5), 2: Fraction(2, 5)}


def test_the_fault_is_seen():
    assert judged(SOFT) == {(0, True): Fraction(5, 6), (2, False): Fraction(1, 6)}


def test_contrast_the_match_rule_is_exact_and_accepts_the_same():
    assert matched() == judged(POINT)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(any), st.data())
def test_kind_point_mass_and_match_rule_have_one_law(weights, data):
    target = np.array([Fraction(w, sum(weights)) for w in weights], dtype=object)
    token = data.draw(st.integers(0, len(weights) - 1))
    point = np.array([Fraction(i == token) for i in range(len(weights))], dtype=object)
    masses = judged(point, target, token)
    assert masses == matched(target, token)
    assert [masses.get((i, i == token), 0) for i in range(len(weights))] == list(target)
