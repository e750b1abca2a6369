"""The watches of the acceptance: fast on a drop, deaf to a dip, and no more false alarms than promised."""

import numpy as np
import pytest

from draftproof.rollout.acceptance import DriftWatch, MeanWatch
from draftproof.rollout.limits import Limits
from draftproof.rollout.policy import BucketPolicy

LIMITS = Limits(BucketPolicy())


def first_alarm(watch, requests, limits=LIMITS):
    """(place, numbers) of the first alarm; (None, None) without one."""
    for place, (accepted, tested) in enumerate(requests, 1):
        found = watch.observe(accepted, tested, limits)
        if found:
            return place, found
    return None, None


def beta(rng, mean, spread, num, tested=30):
    size = mean * (1 - mean) / spread**2 - 1
    share = rng.beta(mean * size, (1 - mean) * size, num)
    return [(int(a), tested) for a in rng.binomial(tested, share)]


@pytest.mark.parametrize(("after", "most"), [(0.0, 50), (0.2, 100), (0.3, 400)])
def test_a_drop_below_the_floor_is_found(after, most):
    rng = np.random.default_rng(5)
    drops = beta(rng, after, 0.12, 1000) if after else [(0, 30)] * 1000
    place, found = first_alarm(MeanWatch(0.4), beta(rng, 0.7, 0.15, 5000) + drops)
    assert 5000 < place <= 5000 + most
    assert found["acceptance"]["high"] < found["target"] == 0.4
    assert found["evidence"] >= found["threshold"] == pytest.approx(6e6)
    assert found["requests"] <= place - 4990, "what led to it are the requests since the drop, nearly"
    assert found["accepted"] / found["tested"] == pytest.approx(after, abs=0.06)


def test_a_single_dip_is_no_drop():
    rng = np.random.default_rng(6)
    good = beta(rng, 0.7, 0.15, 400)
    dips = [*good, *([(0, 30)] * 15)] * 5 + good
    assert first_alarm(MeanWatch(0.4), dips) == (None, None)


def test_short_requests_count_less():
    place, _ = first_alarm(MeanWatch(0.4), [(0, 16)] * 500)
    later, _ = first_alarm(MeanWatch(0.4), [(0, 4)] * 500)
    assert place < later <= 4 * place + 8
    assert first_alarm(MeanWatch(0.4), [(0, 400)] * 500)[0] == place, "from 16 tokens on they count alike"


def test_an_alarm_needs_an_interval_too():
    """With a high rate the bets are won after a dozen requests, of which no interval can be given."""
    place, found = first_alarm(MeanWatch(0.4), [(0, 30)] * 100, Limits(BucketPolicy(false_alarm_rate=0.01)))
    assert place == found["requests"] == 20
    assert found["evidence"] > 2 * found["threshold"]


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_at_the_floor_there_are_no_more_false_alarms_than_promised(spread):
    rate, num = 0.01, 100_000
    limits = Limits(BucketPolicy(false_alarm_rate=rate))
    watch, alarms = MeanWatch(0.4), 0
    for accepted, tested in beta(np.random.default_rng(7), 0.4, spread, num):
        if found := watch.observe(accepted, tested, limits):
            alarms += 1
            watch = MeanWatch(0.4)
            assert found["acceptance"]["high"] < 0.4, "wealth alone is not enough"
    assert 0 < alarms <= num * rate / 6


def test_above_the_floor_there_are_none():
    assert first_alarm(MeanWatch(0.4), beta(np.random.default_rng(8), 0.45, 0.25, 50_000)) == (None, None)


def drift(requests, limits=LIMITS):
    return first_alarm(DriftWatch(), requests, limits)


@pytest.mark.parametrize(("after", "watch"), [(0.4, "fell"), (0.9, "rose")])
def test_a_change_is_an_alarm_with_its_baseline(after, watch):
    rng = np.random.default_rng(9)
    place, found = drift(beta(rng, 0.65, 0.1, 3000) + beta(rng, after, 0.08, 2000))
    assert 3000 < place < 3600
    assert found.watch == watch
    assert found.reason.startswith(f"acceptance {watch} from 0.6")
    assert found.evidence["baseline"]["requests"] == 200
    interval = found.evidence["acceptance"]
    target = found.evidence["target"]
    assert interval["high"] < target < 0.65 - 0.15 if watch == "fell" else interval["low"] > target > 0.65 + 0.15


def test_a_wander_within_the_tolerance_is_none():
    rng = np.random.default_rng(10)
    waves = [beta(rng, 0.65 + 0.1 * np.sin(hour / 24 * 2 * np.pi), 0.15, 60) for hour in range(240)]
    assert drift([request for wave in waves for request in wave]) == (None, None)


def test_steady_acceptance_gives_no_alarm_whatever_the_baseline_was():
    """The baseline's own error is part of the promise: with a high rate, over many baselines."""
    rng, limits = np.random.default_rng(11), Limits(BucketPolicy(false_alarm_rate=0.01, drift=0.001))
    num = 600
    alarms = sum(drift(beta(rng, 0.6, 0.2, num), limits)[0] is not None for _ in range(100))
    assert alarms <= 100 * num * 0.01 * 2 / 6


def test_where_acceptance_can_not_move_that_far_nothing_is_watched():
    watch = DriftWatch()
    for _ in range(200):
        watch.observe(1, 20, LIMITS)
    assert watch.fell is None
    assert watch.rose is not None
    watch = DriftWatch()
    for _ in range(200):
        watch.observe(20, 20, LIMITS)
    assert watch.rose is None
    assert 0.7 < watch.fell.target < 0.85
