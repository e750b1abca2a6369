"""Acceptance from sums: equal to the same arithmetic on whole arrays, and covering with clustered tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.rollout.sums import FEWEST, Sums

REQUESTS = st.lists(st.tuples(st.integers(1, 80), st.floats(0, 1)), min_size=1, max_size=60)


def sums_of(requests, cap=16):
    sums = Sums()
    for accepted, tested in requests:
        sums.add(accepted, tested, min(tested, cap))
    return sums


@given(REQUESTS)
def test_sums_say_what_arrays_say(drawn):
    requests = [(round(share * tested), tested) for tested, share in drawn]
    sums = sums_of(requests)
    accepted, tested = np.array(requests).T
    w = np.minimum(tested, 16).astype(float)
    x = accepted / tested
    assert sums.mean == pytest.approx((w * x).sum() / w.sum())
    assert (sums.requests, sums.accepted, sums.tested) == (len(requests), accepted.sum(), tested.sum())
    w2, x2 = np.append(w, [w.mean()] * 2), np.append(x, [0.0, 1.0])
    centre, error = sums.standard_error()
    assert centre == pytest.approx((w2 * x2).sum() / w2.sum())
    residuals = w2 * (x2 - centre)
    assert error**2 == pytest.approx((residuals**2).sum() / w2.sum() ** 2 * len(w2) / (len(w2) - 1))


@given(REQUESTS, REQUESTS)
def test_sums_add_up(first, second):
    lists = [[(round(share * tested), tested) for tested, share in part] for part in (first, second)]
    both = sums_of(lists[0]).plus(sums_of(lists[1]))
    whole = sums_of(lists[0] + lists[1])
    for name in Sums.__slots__:
        assert getattr(both, name) == pytest.approx(getattr(whole, name))


def test_no_interval_without_requests():
    assert Sums().interval(0.05, 200) is None
    few = sums_of([(1, 2)] * (FEWEST - 1)).interval(0.05, 200)
    assert (few.mean, few.low, few.high) == (0.5, None, None)
    assert sums_of([(1, 2)] * FEWEST).interval(0.05, 200).low is not None


@pytest.mark.parametrize("share", [0, 1])
def test_requests_that_all_agree_are_no_certainty(share):
    interval = sums_of([(share * 20, 20)] * 50).interval(0.05, 200)
    assert interval.mean == share
    assert 0.02 < interval.high - interval.low < 0.15
    assert interval.low <= share <= interval.high


def test_a_long_request_does_not_decide_alone():
    short, long = [(2, 16)] * 30, [(10_000, 10_000)]
    assert sums_of(short + long).mean < 0.2


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_clustered_tokens_are_covered_at_all_looks(spread):
    """Tokens of a request share a fate; an interval that took tokens as units would miss most of the time."""
    rng = np.random.default_rng(3)
    size = 0.6 * 0.4 / spread**2 - 1
    missed = naive = 0
    for _ in range(150):
        share = rng.beta(0.6 * size, 0.4 * size, 600)
        tested = rng.integers(5, 120, 600)
        accepted = rng.binomial(tested, share)
        sums, covered, tokens = Sums(), True, True
        for a, t in zip(accepted.tolist(), tested.tolist(), strict=True):
            sums.add(a, t, min(t, 16))
            if sums.requests >= 40:
                interval = sums.interval(0.05, 200)
                covered &= interval.low <= 0.6 <= interval.high
                half = 1.96 * (0.24 / sums.tested) ** 0.5
                tokens &= abs(sums.accepted / sums.tested - 0.6) <= half
        missed += not covered
        naive += not tokens
    assert missed <= 0.07 * 150
    assert naive > 0.5 * 150
