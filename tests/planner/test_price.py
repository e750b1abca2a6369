"""Textbook prices, to the printed digit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.errors import InputError
from draftproof.planner import price


@pytest.mark.parametrize(
    ("t_target", "t_draft", "gamma", "tokens", "itl", "speedup"),
    [
        (100, 8, 4, 3.0, "44.0", "2.27"),
        (100, 8, 4, 3.5, "37.7", "2.65"),
        (100, 8, 8, 6.0, "27.3", "3.66"),
        (80, 7, 6, 3.5, "34.9", "2.30"),
        (80, 7, 6, 1.5, "81.3", "0.98"),
        (80, 6, 5, 3.5, "31.4", "2.55"),
        (80, 6, 5, 2.0, "55.0", "1.45"),
    ],
)
def test_the_table(t_target: float, t_draft: float, gamma: int, tokens: float, itl: str, speedup: str) -> None:
    found = price.itl_ms(gamma, t_draft, price.verify_ms(t_target, gamma), tokens)
    assert f"{found:.1f}" == itl
    assert f"{t_target / found:.2f}" == speedup
    same = price.calculate(price.round_costs(t_target, t_draft), gamma=gamma, tokens=tokens)
    assert (same.itl_ms, same.speedup) == pytest.approx((found, t_target / found))


def test_constant_acceptance() -> None:
    costs = price.round_costs(100, 8)
    gains = price.speedups(0.2, costs)
    assert f"{gains[1]:.2f}" == "1.11"
    assert f"{gains[16]:.2f}" == "0.55"
    assert price.best_gamma(0.2, costs) == 1


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.9, 0.999999, 1.0])
def test_tokens_per_round(alpha: float) -> None:
    for gamma in range(9):
        closed = gamma + 1 if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)
        assert price.tokens_per_round(alpha, gamma) == pytest.approx(closed, rel=1e-9)


@given(st.floats(0, 1), st.integers(1, 16))
def test_alpha_of_is_the_inverse(alpha: float, gamma: int) -> None:
    tokens = price.tokens_per_round(alpha, gamma)
    assert price.tokens_per_round(price.alpha_of(tokens, gamma), gamma) == pytest.approx(tokens, rel=1e-12)


def test_wins_iff_alpha_exceeds_the_cost_of_a_draft() -> None:
    """T_d / T_t, and with a verify slope as much more: on either side of it, every gamma."""
    for t_draft, slope in ((8, 0.0), (8, 0.05), (0, 0.3), (50, 0.0)):
        costs = price.round_costs(100, t_draft, slope)
        edge = price.break_even_alpha(costs)
        assert edge == pytest.approx(t_draft / 100 + slope)
        assert max(price.speedups(edge + 1e-6, costs)[1:]) > 1
        assert max(price.speedups(edge - 1e-6, costs)[1:]) < 1
        assert price.best_gamma(edge - 1e-6, costs) == 0


def test_break_even_where_none_or_every_acceptance_wins() -> None:
    assert price.break_even_alpha(price.round_costs(100, 100)) is None
    assert price.break_even_alpha(price.round_costs(100, 120)) is None
    assert price.break_even_alpha(price.round_costs(100, 0)) == 0


def test_a_step_in_the_verify_cost_moves_the_break_even_to_a_longer_draft() -> None:
    costs = [100, 150, 152, 154]  # two rows cost half a step more, further ones nothing
    edge = price.break_even_alpha(costs)
    assert edge == pytest.approx(price.alpha_of(1.54, 3))
    assert edge < 0.5


def test_calculator_takes_the_best_gamma_where_none_is_given() -> None:
    costs = price.round_costs(100, 8)
    found = price.calculate(costs, alpha=0.8)
    assert found.gamma == found.best_gamma == price.best_gamma(0.8, costs)
    assert found.speedup == found.best_speedup == max(price.speedups(0.8, costs))
    plain = price.calculate(costs, gamma=0, tokens=1)
    assert (plain.speedup, plain.alpha, plain.best_gamma) == (1, None, None)


def test_money() -> None:
    assert price.price_per_million(3.6, 100) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: price.tokens_per_round(1.1, 2),
        lambda: price.tokens_per_round(0.5, -1),
        lambda: price.alpha_of(4, 2),
        lambda: price.alpha_of(1, 0),
        lambda: price.itl_ms(2, 1, 10, 0.5),
        lambda: price.round_costs(0, 8),
        lambda: price.round_costs(float("nan"), 8),
        lambda: price.round_costs(100, -1),
        lambda: price.round_costs(100, 8, -0.1),
        lambda: price.calculate([1.0, 2.0], gamma=0, tokens=2),
    ],
)
def test_what_can_not_be_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()
