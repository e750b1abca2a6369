"""The bound on false alarms, by counting out every outcome; and that bets begin again."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.rollout.cusum import _MOST, STYLES, Bets


def chance_of_alarm(values, chances, target, steps, threshold):
    """That M reaches the threshold within so many steps, over all sequences of x and their chances."""
    found = 0.0
    for drawn in itertools.product(range(len(values)), repeat=steps):
        bets = Bets()
        evidence = [bets.step((target - values[i]) / (1 - target)) for i in drawn]
        if max(evidence) >= threshold:
            found += math.prod(chances[i] for i in drawn)
    return found


@pytest.mark.parametrize(
    ("values", "chances", "target"),
    [
        ((0.0, 1.0), (0.6, 0.4), 0.4),  # a coin that lies on its target
        ((0.0, 1.0), (0.95, 0.05), 0.05),
        ((0.0, 0.5, 1.0), (0.25, 0.5, 0.25), 0.5),
        ((0.2, 0.6, 0.9), (0.5, 0.3, 0.2), 0.46),
    ],
)
@pytest.mark.parametrize("threshold", [1.5, 3.0, 8.0])
def test_false_alarms_stay_below_the_bound(values, chances, target, threshold):
    assert math.isclose(sum(v * c for v, c in zip(values, chances, strict=True)), target)
    for steps in (1, 3, 8):
        assert chance_of_alarm(values, chances, target, steps, threshold) <= steps / threshold


def test_the_bound_is_not_empty():
    """With the same mean, seven steps give an alarm at 3 with a chance that is a good part of what is allowed."""
    assert chance_of_alarm((0.0, 1.0), (0.6, 0.4), 0.4, 7, 3.0) > 0.2


def test_one_style_bets_fairly_at_the_target():
    for style in STYLES:
        factors = [1 + style * (0.4 - x) / 0.6 for x in (0.0, 1.0)]
        assert math.isclose(0.6 * factors[0] + 0.4 * factors[1], 1.0)
        assert min(factors) > 0


@given(st.lists(st.floats(-1, 50), max_size=80))
def test_wealth_stays_finite_and_both_ways_to_step_agree(stakes):
    one, other = Bets(), Bets()
    for stake in stakes:
        evidence = one.step(stake)
        assert evidence == pytest.approx(other.multiply([1 + style * stake for style in STYLES]))
        assert evidence == 0 or 1 <= evidence <= _MOST * 50
        assert all(0 <= wealth <= 3.1 * _MOST for wealth in one.wealth)
        assert one.evidence >= 1


def test_a_loss_begins_anew_and_a_gain_does_not():
    bets = Bets()
    assert bets.step(0.5) > 1
    assert bets.step(0.5) > 1.5
    assert bets.step(-1.0) == 0
    assert bets.wealth == [1.0] * len(STYLES)
