"""Estimates by gamma: what is in them, and expected against counted."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.planner.acceptance import Rounds, Starts, counted, estimate
from draftproof.planner.interval import Interval, exactly, ratio_interval
from draftproof.planner.price import tokens_per_round


def _constant(alpha: float, prompts: int = 20, length: int = 50, gamma: int = 4) -> Starts:
    """Drafts accepted with one chance everywhere; texts are long enough for ends to matter little."""
    rng = np.random.default_rng(0)
    rows = prompts * length
    offered = np.minimum(gamma, np.tile(np.arange(length)[::-1], prompts)).astype(np.int16)
    inside = np.arange(gamma) < offered[:, None]
    keep = inside * (rng.random((rows, gamma)) < alpha)
    return Starts(np.repeat(np.arange(prompts), length), offered, keep.astype(np.float32), inside * np.float32(alpha))


def test_constant_acceptance_gives_the_textbook_tokens_per_round() -> None:
    starts = _constant(0.6, prompts=50, length=400)
    for found in estimate(starts):
        assert found.tokens_per_round.mean == pytest.approx(tokens_per_round(0.6, found.gamma), rel=0.01)
        assert [one.mean for one in found.by_position] == pytest.approx([0.6] * found.gamma, abs=1e-6)
        assert found.drafted == pytest.approx(found.gamma, rel=0.02)


def test_counts_and_histogram() -> None:
    found = estimate(_constant(0.5), gammas=[0, 3])
    assert [one.gamma for one in found] == [0, 3]
    plain, three = found
    assert (plain.tokens, plain.prompts, plain.rounds) == (1000, 20, pytest.approx(1000))
    assert (plain.tokens_per_round, plain.acceptance, plain.by_position) == (exactly(1.0), None, ())
    assert plain.drafted_histogram == (1.0,)
    assert sum(three.drafted_histogram) == pytest.approx(1)
    assert three.drafted == pytest.approx(sum(n * share for n, share in enumerate(three.drafted_histogram)))
    assert three.rounds * three.tokens_per_round.mean == pytest.approx(1000, rel=0.1)


def test_a_depth_that_is_never_tested_has_no_acceptance() -> None:
    keep = np.array([[0.0, 0.0], [0.0, 0.0]], np.float32)
    found = estimate(Starts(np.array([0, 1]), np.array([1, 1], np.int16), keep, keep), [2])[0]
    assert found.by_position[1] is None
    assert found.by_position[0].mean == 0


def test_one_prompt_has_means_and_no_intervals() -> None:
    for found in estimate(_constant(0.5, prompts=1), [1, 2]):
        assert found.tokens_per_round.low is None
        assert found.acceptance.high is None


def test_intervals_take_prompts_as_what_is_independent() -> None:
    starts = _constant(0.5)
    starts.accept[starts.prompt < 10] *= 0.5
    found = estimate(starts, [1])[0]
    tested, accepted = [], []
    for prompt in range(20):
        rows = starts.prompt == prompt
        alone = estimate(
            Starts(*(array[rows] for array in (starts.prompt, starts.offered, starts.keep, starts.accept)))
        )
        share = alone[1].drafted_histogram[1] * alone[1].rounds
        tested.append(share)
        accepted.append(share * alone[1].acceptance.mean)
    assert found.acceptance.mean == pytest.approx(np.sum(accepted) / np.sum(tested))
    wanted = ratio_interval(accepted, tested)
    assert (found.acceptance.low, found.acceptance.high) == pytest.approx((wanted.low, wanted.high), rel=1e-6)


ROUNDS = Rounds(
    prompt=np.array([0, 0, 0, 1, 1]),
    drafted=np.array([3, 3, 0, 2, 3]),
    accepted=np.array([3, 1, 0, 0, 2]),
    tested=np.array([3, 2, 0, 1, 2]),
    emitted=np.array([4, 2, 1, 1, 2]),  # the last round was closed by an accepted end id
)


def test_counted_rounds_at_their_own_gamma() -> None:
    found = counted(ROUNDS, 3)[3]
    assert found.tokens_per_round.mean == pytest.approx(10 / 5)
    assert found.acceptance.mean == pytest.approx(6 / 8)
    assert [one.mean for one in found.by_position] == pytest.approx([3 / 4, 2 / 3, 1 / 1])
    assert found.drafted_histogram == pytest.approx((1 / 5, 0, 1 / 5, 3 / 5))
    assert (found.rounds, found.tokens, found.prompts) == (5, 10, 2)
    assert found.drafted == pytest.approx(11 / 5)


def test_counted_rounds_cut_to_a_smaller_gamma() -> None:
    found = counted(ROUNDS, 3, [1])[0]
    assert found.tokens_per_round.mean == pytest.approx((2 + 2 + 1 + 1 + 2) / 5)
    assert found.acceptance.mean == pytest.approx(3 / 4)
    assert found.drafted_histogram == pytest.approx((1 / 5, 4 / 5))


def test_expected_equals_counted_where_nothing_is_random() -> None:
    """Deterministic drafts: the rounds that were run are the only ones possible."""
    rng = np.random.default_rng(2)
    lengths, gamma = rng.integers(5, 60, 30), 4
    owner = np.repeat(np.arange(30), lengths)
    left = np.concatenate([np.arange(length, 0, -1) for length in lengths])
    offered = np.minimum(rng.integers(0, gamma + 1, len(owner)), left - 1)
    kept = (rng.random((len(owner), gamma)) < 0.6) & (np.arange(gamma) < offered[:, None])
    keep = np.logical_and.accumulate(kept, axis=1).astype(np.float32)
    rounds, start = [], 0
    while start < len(owner):
        accepted = int(keep[start].sum())
        rounds.append((owner[start], offered[start], accepted, min(accepted + 1, offered[start]), accepted + 1))
        start += accepted + 1
    walked = Rounds(*np.array(rounds).T)
    expected = estimate(Starts(owner, offered.astype(np.int16), keep, keep), [gamma])[0]
    assert _flat(expected) == pytest.approx(_flat(counted(walked, gamma, [gamma])[0]))


def _flat(found: object) -> list[float]:
    intervals = [found.tokens_per_round, found.acceptance, *found.by_position]
    ends = [end for one in intervals if isinstance(one, Interval) for end in (one.mean, one.low, one.high)]
    return [*ends, *found.drafted_histogram, found.rounds, found.tokens, found.prompts, found.drafted]


def test_no_rounds_at_all() -> None:
    nothing = Rounds(*(np.zeros(0, np.int64) for _ in range(5)))
    found = counted(nothing, 2)[2]
    assert (found.rounds, found.prompts, found.acceptance) == (0, 0, None)
    assert found.drafted_histogram == (1.0, 0.0, 0.0)
