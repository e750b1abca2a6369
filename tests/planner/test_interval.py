"""Intervals of ratios: the formula written the long way, and its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from draftproof.planner.interval import Interval, exactly, ratio_interval, ratio_intervals


def slow(x: np.ndarray, y: np.ndarray, low: float, high: float) -> tuple[float, float, float]:
    """The docstring's formula with the matrix built."""
    clusters, w, v = len(y), y / y.sum(), y**1.4
    mean = x.sum() / y.sum()
    centred = np.eye(clusters) - np.outer(w, np.ones(clusters))
    q = v / np.diag(centred @ np.diag(v) @ centred.T)
    error = math.sqrt(sum(q * ((x - mean * y) / y.sum()) ** 2))
    a = np.diag(np.sqrt(q)) @ centred @ np.diag(v) @ centred.T @ np.diag(np.sqrt(q))
    freedom = max(1.0, np.trace(a) ** 2 / np.trace(a @ a))
    odds = math.log((mean - low) / (high - mean))
    half = stats.t.ppf(0.975, freedom) * error * (high - low) / ((mean - low) * (high - mean))
    ends = (low + (high - low) / (1 + math.exp(-side)) for side in (odds - half, odds + half))
    return mean, *ends


@pytest.mark.parametrize("clusters", [2, 3, 12, 60])
def test_equals_the_formula(clusters: int) -> None:
    rng = np.random.default_rng(clusters)
    y = rng.lognormal(3, 1, (clusters, 5))
    x = y * rng.uniform(0.1, 4.9, y.shape)
    found = ratio_intervals(x, y, np.zeros(5), np.full(5, 5.0))
    for column, interval in enumerate(found):
        wanted = slow(x[:, column], y[:, column], 0.0, 5.0)
        assert (interval.mean, interval.low, interval.high) == pytest.approx(wanted, rel=1e-9)


def test_fewer_than_two_prompts_give_no_interval() -> None:
    assert ratio_interval([5], [10]) == Interval(0.5)
    assert ratio_interval([5, 0, 0], [10, 0, 0]) == Interval(0.5), "a prompt without tests says nothing"
    assert ratio_interval([0, 0], [0, 0]) is None
    assert ratio_interval([], []) is None


def test_a_prompt_without_tests_changes_nothing() -> None:
    assert ratio_interval([3, 0, 4], [10, 0, 5]) == ratio_interval([3, 4], [10, 5])


@pytest.mark.parametrize(("prompts", "unseen"), [(2, 0.842), (12, 0.265), (100, 0.0362)])
def test_agreement_of_all_is_not_certainty(prompts: int, unseen: float) -> None:
    """1 - 0.025^(1/C) of the traffic may be of a kind that C prompts do not show: Clopper and Pearson's bound."""
    y = np.linspace(5, 50, prompts)
    always, never, half = (ratio_interval(share * y, y) for share in (1.0, 0.0, 0.5))
    assert (always.mean, always.high) == (1, 1)
    assert always.low == pytest.approx(1 - unseen, abs=1e-3)
    assert always.low == pytest.approx(stats.beta.ppf(0.025, prompts, 1), rel=1e-9)
    assert (never.mean, never.low) == (0, 0)
    assert never.high == pytest.approx(unseen, abs=1e-3)
    assert (half.low, half.high) == pytest.approx((0.5 - unseen / 2, 0.5 + unseen / 2), abs=1e-3)


def test_full_acceptance_at_other_bounds() -> None:
    tokens = ratio_interval([50, 100], [10, 20], 1, 5)
    assert (tokens.mean, tokens.high) == (5, 5)
    assert tokens.low == pytest.approx(5 - 4 * (1 - 0.025**0.5))


def test_bounds_without_room() -> None:
    assert ratio_interval([10, 20], [10, 20], 1, 1) == exactly(1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e6)), min_size=1, max_size=8))
def test_never_leaves_the_bounds_and_is_finite(prompts: list[tuple[float, float]]) -> None:
    y = np.array([weight for _, weight in prompts])
    found = ratio_interval(np.array([share for share, _ in prompts]) * y, y)
    if found is not None and found.low is not None:
        assert 0 <= found.low <= found.mean <= found.high <= 1


def test_one_long_prompt_weighs_as_the_one_it_is() -> None:
    """Nine short prompts beside one with nearly all tokens: wider than ten equal ones with the same shares."""
    shares = np.array([0.3, 0.5, 0.4, 0.6, 0.5, 0.4, 0.5, 0.6, 0.4, 0.5])
    even, uneven = np.full(10, 100.0), np.array([1.0] * 9 + [991.0])
    even_found, uneven_found = ratio_interval(shares * even, even), ratio_interval(shares * uneven, uneven)
    assert uneven_found.high - uneven_found.low > 2 * (even_found.high - even_found.low)


def test_widened_by_an_independent_error() -> None:
    wide = Interval(2.0, 1.9, 2.2).widened(0.05)
    extra = 1.959963984540054 * 0.1
    assert wide.low == pytest.approx(2 - math.hypot(0.1, extra))
    assert wide.high == pytest.approx(2 + math.hypot(0.2, extra))
    assert Interval(2.0, 1.9, 2.2).widened(0.0) == Interval(2.0, pytest.approx(1.9), pytest.approx(2.2))
    assert Interval(2.0).widened(0.05) == Interval(2.0)
