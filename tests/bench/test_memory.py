"""Does memory still grow? The warm-up is left out, and a slope is told in units that a reader can use."""

import pytest
from bench.memory import trend


def _samples(sizes, every=10.0):
    return [{"seconds": every * index, "mib": size} for index, size in enumerate(sizes)]


def test_what_is_filled_once_is_no_growth():
    found = trend(_samples([100, 900, 1000, 1000, 1001, 999, 1000]), warm_up_s=20)
    assert abs(found.mib_per_minute) < 1
    assert (found.begin, found.warm, found.end) == (100, 1000, 1000)
    assert (found.warm_up_s, found.seconds) == (20, 40)


def test_a_leak_is_seen_at_its_speed():
    found = trend(_samples([0, 500, *(1000 + 2 * index for index in range(10))]), warm_up_s=20)
    assert found.mib_per_minute == pytest.approx(12)
    assert found.growth == pytest.approx(18)


def test_one_jump_late_in_the_run_does_not_hide():
    assert trend(_samples([0, *[1000] * 8, *[1064] * 2]), warm_up_s=10).mib_per_minute > 4


def test_too_few_samples_are_no_trend():
    with pytest.raises(ValueError, match="2 samples"):
        trend(_samples([1, 2, 3]), warm_up_s=10)
