"""Failed requests: the exact bet against its law, an outage that says nothing, and a drafter that breaks requests."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.rollout.compare import Arm, Block
from draftproof.rollout.failures import ErrorWatch, OddsWatch, factors
from draftproof.rollout.limits import Limits
from draftproof.rollout.policy import BucketPolicy

LIMITS = Limits(BucketPolicy())


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_the_bet_is_fair_under_the_hypergeometric_law(on, off, data):
    failed = data.draw(st.integers(0, on + off))
    whole = math.comb(on + off, failed)
    possible = range(max(0, failed - off), min(failed, on) + 1)
    chances = [math.comb(on, x) * math.comb(off, failed - x) / whole for x in possible]
    each = [factors(x, on, failed - x, off) for x in possible]
    for style in range(3):
        assert math.fsum(c * f[style] for c, f in zip(chances, each, strict=True)) == pytest.approx(1)
        assert all(low[style] <= high[style] * (1 + 1e-12) for low, high in pairwise(each))


@pytest.mark.parametrize(
    "counts", [(500, 1000, 500, 1000), (1000, 1000, 0, 1000), (0, 1000, 1000, 1000), (19, 19, 1, 1)]
)
def test_large_counts_neither_overflow_nor_vanish(counts):
    found = factors(*counts)
    assert all(0 <= factor < math.inf for factor in found)
    if counts[0] == counts[1] and counts[2] == counts[3]:
        assert found == pytest.approx([1.0] * 3), "where all fail nothing is learnt"


def blocks(rng, num, on, off, fails_on, fails_off):
    for _ in range(num):
        arms = [Arm(n, int(rng.binomial(n, p))) for n, p in ((on, fails_on), (off, fails_off))]
        yield Block(0.0, *arms)


def first(watch, values):
    return next(
        ((place, found) for place, value in enumerate(values, 1) if (found := watch.observe(value, LIMITS))), None
    )


@pytest.mark.parametrize(("on", "off"), [(4, 76), (76, 4), (20, 20)])
def test_requests_that_fail_more_often_with_speculation_are_found(on, off):
    rng = np.random.default_rng(1)
    place, found = first(OddsWatch(), blocks(rng, 5000, on, off, 0.2, 0.002))
    assert place * (on + off) < 5000
    assert found.watch == "odds"
    evidence = found.evidence
    assert evidence["failed_on"] / evidence["requests_on"] > evidence["failed_off"] / evidence["requests_off"]


@pytest.mark.parametrize(("on", "off"), [(4, 76), (76, 4)])
def test_an_outage_says_nothing_of_speculation(on, off):
    rng = np.random.default_rng(2)
    watch = OddsWatch()
    for outage in (0.01, 0.5, 1.0, 0.01, 0.9, 0.01):
        assert first(watch, blocks(rng, 150, on, off, outage, outage)) is None


def test_the_odds_have_no_more_false_alarms_than_promised():
    rng, limits = np.random.default_rng(3), Limits(BucketPolicy(false_alarm_rate=0.01))
    watch, alarms = OddsWatch(), 0
    for block in blocks(rng, 20_000, 10, 30, 0.05, 0.05):
        if watch.observe(block, limits):
            alarms, watch = alarms + 1, OddsWatch()
    assert alarms <= 20_000 * 0.01 / 6


def test_at_the_limit_the_bet_on_failures_is_fair():
    wealth = []
    for error in (True, False):
        watch = ErrorWatch()
        watch.bets.wealth = [4.0, 4.0, 4.0]
        watch.observe(error, LIMITS)
        wealth.append(watch.bets.wealth)
    assert [0.05 * bad + 0.95 * good for bad, good in zip(*wealth, strict=True)] == pytest.approx([4.0] * 3)


def test_too_many_failures_are_found_and_some_are_not():
    place, found = first(ErrorWatch(), [True] * 100)
    assert place < 20
    assert found.watch == "errors"
    assert found.evidence["error_rate"]["low"] > found.evidence["max_error_rate"]
    assert found.reason == f"{place} of {place} speculating requests failed"
    rng = np.random.default_rng(4)
    assert first(ErrorWatch(), (rng.random(30_000) < 0.03).tolist()) is None
    place, found = first(ErrorWatch(), (rng.random(3000) < 0.2).tolist())
    assert place < 400
