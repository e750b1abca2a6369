"""The any-time test: a fair game, an error rate that looking does not spend, and faults that it finds."""

import json

import numpy as np
import pytest

from draftproof.certify import Watch
from draftproof.certify.sequential import _SIGNED


def test_every_bet_is_fair():
    """The mean factor over [0, 1] is 1: midpoint sums of whole waves are exact but for rounding."""
    numbers = (np.arange(1200) + 0.5) / 1200
    for wave, bet in _SIGNED:
        factors = 1 + bet * np.cos(wave * np.pi * numbers)
        assert factors.min() > 0
        assert factors.mean() == pytest.approx(1, abs=1e-12)


def test_watched_at_every_step_it_keeps_its_rate():
    rng, alpha, crossed = np.random.default_rng(2), 0.2, 0
    for _ in range(300):
        watch = Watch()
        for number in rng.random(150):
            watch.add("law", number)
        crossed += watch.alarm(alpha)
    assert crossed <= 300 * alpha + 3 * np.sqrt(300 * alpha * (1 - alpha))


def test_a_shift_is_found_and_stays_found():
    rng, watch = np.random.default_rng(3), Watch(("law", "tested"))
    for number in rng.random(2000):
        watch.add("tested", number)
    assert not watch.alarm(1e-3)
    for number in rng.random(2500) ** 1.25:  # a total variation of 0.08
        watch.add("law", number)
    assert watch.alarm(1e-3)
    for number in rng.random(3000):
        watch.add("law", number)
    assert watch.alarm(1e-3)  # an alarm is not taken back


def test_a_watch_goes_on_where_it_was():
    numbers = np.random.default_rng(4).random(100).tolist()
    whole, first = Watch(), Watch()
    for number in numbers:
        whole.add("law", number)
    for number in numbers[:50]:
        first.add("law", number)
    second = Watch.restore(json.loads(json.dumps(first.state())))
    for number in numbers[50:]:
        second.add("law", number)
    assert second.state() == whole.state()
    with pytest.raises(KeyError):
        whole.add("unknown", 0.5)
