"""Intervals for all looks at once: their closed form, and that they cover when one looks after every observation."""

import math

import numpy as np
import pytest

from draftproof.rollout.interval import boundary, rounded, share_interval


def test_the_boundary_is_the_mixtures():
    """Where the mixture of exp(x S - x^2 n / 2) over x ~ N(0, 1/rho) is 1/alpha, integrated by hand."""
    num, alpha, tuned = 50.0, 0.05, 200.0
    doubt = -2 * math.log(alpha)
    rho = tuned / (doubt + math.log(1 + doubt))
    s = boundary(num, alpha, tuned) * math.sqrt(num)
    x = np.linspace(-5, 5, 200_001)
    mixture = np.exp(x * s - x**2 * num / 2 - x**2 * rho / 2) * math.sqrt(rho / (2 * math.pi))
    assert np.trapezoid(mixture, x) == pytest.approx(1 / alpha, rel=1e-6)


def test_the_boundary_is_tightest_where_it_is_tuned():
    at = [boundary(200, 0.05, tuned) for tuned in (20, 100, 200, 400, 2000)]
    assert min(at) == pytest.approx(at[2], rel=1e-3)
    assert 1.96 < at[2] < 3.1
    assert boundary(200, 0.01, 200) > at[2]


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_a_random_walk_stays_inside_at_all_looks(alpha):
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.standard_normal((2000, 2000)), axis=1)
    num = np.arange(1, 2001)
    edge = np.array([boundary(n, alpha, 200) for n in num]) * np.sqrt(num)
    missed = (np.abs(walks) > edge).any(axis=1).mean()
    assert missed <= alpha
    fixed = (np.abs(walks) > 1.96 * np.sqrt(num)).any(axis=1).mean()
    assert fixed > 0.5, "an interval for one look does not do for many"


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_a_share_is_covered_at_all_looks(rate):
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(200):
        counts = np.cumsum(rng.random(600) < rate)
        intervals = [share_interval(int(c), n, 0.05, 200) for n, c in enumerate(counts, 1) if n >= 20]
        missed += any(not interval.low <= rate <= interval.high for interval in intervals)
    assert missed <= 0.05 * 200


def test_a_share_keeps_its_bounds():
    assert share_interval(0, 0, 0.05, 200) is None
    none, every = share_interval(0, 200, 0.05, 200), share_interval(200, 200, 0.05, 200)
    assert (none.mean, none.low) == (0, 0)
    assert 0 < none.high < 0.05, "two hundred requests without a failure are enough for the default gate"
    assert every.high == pytest.approx(1)
    assert every.low == pytest.approx(1 - none.high)


def test_evidence_is_rounded_in_depth():
    evidence = {"a": 1 / 3, "b": {"c": [2 / 3, {"d": 1e9 / 7}]}, "n": 12345678, "none": None, "yes": True}
    assert rounded(evidence) == {
        "a": 0.333333,
        "b": {"c": [0.666667, {"d": 142857000.0}]},
        "n": 12345678,
        "none": None,
        "yes": True,
    }
