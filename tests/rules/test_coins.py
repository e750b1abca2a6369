"""The inverse CDF at its edges, and the keys of the numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import RowError
from draftproof.noise import PhiloxNoise
from draftproof.rules import RoundCoins, draw

JUST_BELOW_ONE = 1 - 2.0**-53


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-20, 0.1, 1 / 3, 1.0, 7.0]), min_size=1, max_size=9).filter(any),
    st.one_of(st.sampled_from([0.0, 0.5, JUST_BELOW_ONE]), st.floats(0, 1, exclude_max=True)),
    st.sampled_from([np.float32, np.float64]),
)
def test_draw_never_leaves_the_support(weights, uniform, dtype):
    row = np.array(weights, dtype)
    if row.sum() == 0:  # 1e-300 is 0 in float32
        return
    assert row[draw(row, uniform)] > 0


def test_draw_takes_slices_in_id_order():
    assert [draw(np.array([0, 0.25, 0, 0.75, 0]), u) for u in (0.0, 0.2499, 0.25, JUST_BELOW_ONE)] == [1, 1, 3, 3]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_without_a_sum_are_an_error(weights):
    with pytest.raises(RowError, match="sum to"):
        draw(np.array(weights), 0.5)


def test_numbers_do_not_depend_on_order_or_on_the_size_of_the_draft():
    law, noise = np.full(1000, 0.001), PhiloxNoise()
    small, large = RoundCoins(noise, 3, 5, num_nodes=2), RoundCoins(noise, 3, 5, num_nodes=9)
    assert [small.draw(node, law) for node in (2, 0, 1)] == [large.draw(node, law) for node in (2, 0, 1)]
    assert len({large.draw(node, law) for node in range(10)}) > 5
    assert RoundCoins(noise, 3, 6, 2).draw(0, law) != small.draw(0, law)
    assert RoundCoins(noise, 4, 5, 2).draw(0, law) != small.draw(0, law)


def test_every_question_of_a_round_has_its_own_number():
    asked = []

    class Recorder:
        def uniform(self, seed, purpose, round_, count):
            asked.append((seed, purpose, round_, count))
            return np.arange(count) / count

    coins = RoundCoins(Recorder(), 1, 2, num_nodes=3)
    assert asked == [(1, "test", 2, 8)]
    draws = [coins.draw(node, np.ones(8)) for node in range(4)]
    # a test passes at mass ratio just above its number and fails at the number itself
    tests = [next(k for k in range(8) if coins.accept(node, (k + 0.5) / 8, 1.0)) for node in range(4)]
    assert sorted(draws + tests) == list(range(8))
    assert not coins.accept(0, 0.0, 1.0)  # u = 0 and p(x) = 0


def test_a_float32_product_can_not_round_the_number_up_to_one():
    class Last:
        def uniform(self, seed, purpose, round_, count):
            return np.full(count, JUST_BELOW_ONE)

    mass = np.float32(0.3)
    assert RoundCoins(Last(), 1, 0, 1).accept(1, mass, mass)  # u * q < p for p = q and every u < 1
