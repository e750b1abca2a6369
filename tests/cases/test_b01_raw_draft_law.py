"""B01: the draft law in the ratio is not the law that was sampled from (raw against truncated)."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, reject, warp
from draftproof.rules.law import outcomes
from draftproof.types import SamplingParams, chain


def law(*numbers):
    return np.array([Fraction(x) for x in numbers], dtype=object)


def exact(floats):
    """A float law as Fractions that sum to exactly 1."""
    fractions = np.array([Fraction(float(x)) for x in floats], dtype=object)
    return fractions / fractions.sum()


def run_of(target, drawn_from, reported):
    def run(coins):
        token = coins.draw(0, drawn_from)
        draft = chain([token], "iid", reported[None])
        verdict = reject(draft, lambda node: target, coins)
        return token, bool(verdict.path), emitted(draft, verdict)[0]

    return outcomes(run)


def emitted_law(masses, vocab):
    return [sum(m for (_, _, token), m in masses.items() if token == i) for i in range(vocab)]


TARGET = law("2/5", "3/5", 0)
RAW, TRUNCATED = law("1/2", "3/10", "1/5"), law("5/8", "3/8", 0)


def test_the_truncated_law_is_the_one_reported():
    row = np.log(RAW.astype(float))
    np.testing.assert_allclose(
        warp(row, SamplingParams(temperature=1.0, top_k=2)).law(3), TRUNCATED.astype(float), rtol=1e-14
    )


def test_case():
    masses = run_of(TARGET, TRUNCATED, TRUNCATED)
    assert emitted_law(masses, 3) == list(TARGET)
    assert masses[0, True, 0] / TRUNCATED[0] == Fraction(16, 25)
    assert masses[1, True, 1] / TRUNCATED[1] == 1


def test_the_fault_is_seen():
    masses = run_of(TARGET, TRUNCATED, RAW)
    assert masses[0, True, 0] / TRUNCATED[0] == Fraction(4, 5)
    assert emitted_law(masses, 3) == [Fraction(1, 2), Fraction(1, 2), 0]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.6, 1.7]),
        top_k=st.sampled_from([None, 1, 2, 3]),
        top_p=st.sampled_from([1.0, 0.6]),
        min_p=st.sampled_from([0.0, 0.3]),
    ),
)
def test_kind_any_law_that_warp_reports_can_be_drawn_from_and_judged(seed, params):
    rng = np.random.default_rng(seed)
    reported = exact(warp(rng.standard_normal(4), params).law(4))
    target = exact(warp(rng.standard_normal(4), params).law(4))
    assert emitted_law(run_of(target, reported, reported), 4) == list(target)
