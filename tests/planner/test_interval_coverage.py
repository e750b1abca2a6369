"""95 % intervals cover the truth in 93 to 97 % of 1000 simulated runs: prompts strongly correlated, of unequal lengths.

Where they don't, it is written here: few prompts of traffic with a rare kind in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from draftproof.planner.cost import CostCurve
from draftproof.planner.interval import ratio_intervals
from draftproof.planner.rates import Drafting, Load, round_cost, speedup_intervals
from draftproof.planner.sums import PromptSums, Starts, prompt_sums

RUNS = 1000
Sample = tuple[np.ndarray, np.ndarray]  # accepted and tested, [prompts, runs]


def _lengths(rng: np.random.Generator, shape: tuple[int, int], spread: float) -> np.ndarray:
    return np.maximum(4, rng.lognormal(4, spread, shape)).astype(int)


def _counted(rng: np.random.Generator, alpha: np.ndarray, spread: float) -> Sample:
    tested = _lengths(rng, alpha.shape, spread)
    return rng.binomial(tested, alpha), tested


def _equal_lengths(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, rng.beta(2, 2, shape), 0.0), 0.5


def _weakly_correlated(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, rng.beta(20, 20, shape), 0.9), 0.5


def _unequal(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, rng.beta(2, 2, shape), 0.9), 0.5


def _high(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, rng.beta(8, 1, shape), 0.6), 8 / 9


def _low(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, rng.beta(0.5, 4, shape), 0.6), 1 / 9


def _expected(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    """No coins: each prompt's acceptance is known, and only prompts differ."""
    tested = _lengths(rng, shape, 0.6)
    return (tested * rng.beta(3, 1, shape), tested), 0.75


def _longer_where_easier(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    def draw(shape: tuple[int, ...]) -> Sample:
        ease = rng.normal(size=shape)
        tested = np.exp(4 + 0.5 * ease)
        return tested / (1 + np.exp(-ease)), tested

    accepted, tested = draw((1_000_000,))
    return draw(shape), float(accepted.sum() / tested.sum())


def _two_kinds(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Sample, float]:
    return _counted(rng, np.where(rng.random(shape) < 0.3, 0.9, 0.2), 0.6), 0.41


KINDS = (_equal_lengths, _weakly_correlated, _unequal, _high, _low, _expected, _longer_where_easier)


def coverage(kind: Callable[..., tuple[Sample, float]], prompts: int, seed: int = 1) -> float:
    (accepted, tested), truth = kind(np.random.default_rng(seed), (prompts, RUNS))
    found = ratio_intervals(accepted.astype(float), tested.astype(float), np.zeros(RUNS), np.ones(RUNS))
    return float(np.mean([one.low <= truth <= one.high for one in found]))


@pytest.mark.parametrize("prompts", [12, 30, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_acceptance_is_covered(kind: Callable[..., tuple[Sample, float]], prompts: int) -> None:
    assert 0.93 <= coverage(kind, prompts) <= 0.97


@pytest.mark.parametrize("kind", KINDS)
def test_four_prompts_are_covered_a_little_worse(kind: Callable[..., tuple[Sample, float]]) -> None:
    assert 0.91 <= coverage(kind, 4) <= 0.98


def test_a_rare_kind_needs_more_prompts() -> None:
    found = {prompts: coverage(_two_kinds, prompts) for prompts in (4, 12, 30, 100)}
    assert found[4] < 0.85, "all four are of the common kind too often: no formula can know"
    assert 0.90 <= found[12] <= 0.97
    assert all(0.93 <= found[prompts] <= 0.97 for prompts in (30, 100))


def test_treating_tokens_as_independent_would_fail() -> None:
    """The negative control: the same data, each token its own cluster."""
    (accepted, tested), truth = _unequal(np.random.default_rng(1), (30, RUNS))
    mean = accepted.sum(axis=0) / tested.sum(axis=0)
    half = 1.96 * np.sqrt(mean * (1 - mean) / tested.sum(axis=0))
    assert np.mean(np.abs(mean - truth) <= half) < 0.5


GAMMA = 4


def _texts(rng: np.random.Generator, number: int, coins: bool) -> PromptSums:
    """Sums of texts whose drafts come and are accepted each in its own measure."""
    lengths = _lengths(rng, (number,), 0.6)
    skill, supply = rng.beta(3, 1.5, number), rng.beta(2, 1, number)
    owner = np.repeat(np.arange(number), lengths)
    left = lengths[owner] - (np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    offered = np.minimum(GAMMA * (rng.random(len(owner)) < supply[owner]), left - 1)
    inside = np.arange(GAMMA) < offered[:, None]
    keep = inside * (rng.random((len(owner), GAMMA)) < skill[owner, None])
    accept = keep if coins else inside * skill[owner, None]
    return prompt_sums(Starts(owner, offered.astype(np.int16), keep.astype(np.float32), accept.astype(np.float32)))


@pytest.mark.parametrize("coins", [True, False])
@pytest.mark.parametrize("prompts", [12, 30])
def test_tokens_per_round_and_speedup_are_covered(prompts: int, coins: bool) -> None:
    rng = np.random.default_rng(2)
    load = Load(CostCurve.constant(10.0, 0.7, 0.06), 1, 100)

    def speedup(sums: PromptSums) -> list:
        drafting = Drafting.of("d", sums)
        return speedup_intervals(drafting, load, [round_cost(drafting, load, gamma) for gamma in range(GAMMA + 1)])

    many = _texts(rng, 30_000, coins)
    tokens = many.tokens.sum(axis=0) / many.rounds.sum(axis=0)
    gains = [interval.mean for interval in speedup(many)]
    sums = _texts(rng, prompts * RUNS, coins)
    hits = np.zeros((2, GAMMA + 1))
    for run in range(RUNS):
        own = sums.take(np.arange(run * prompts, (run + 1) * prompts))
        found = ratio_intervals(own.tokens, own.rounds, np.ones(GAMMA + 1), np.arange(GAMMA + 1) + 1.0)
        hits[0] += [one.low <= truth <= one.high for one, truth in zip(found, tokens, strict=True)]
        hits[1] += [one.low <= truth <= one.high for one, truth in zip(speedup(own), gains, strict=True)]
    assert (hits[:, 1:] >= 0.93 * RUNS).all(), hits
    assert (hits[:, 1:] <= 0.97 * RUNS).all(), hits


if __name__ == "__main__":
    for kind in (*KINDS, _two_kinds):
        print(kind.__name__, [coverage(kind, prompts) for prompts in (4, 12, 30, 100)])
