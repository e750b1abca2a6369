"""Races: ties, truncated laws, ranked siblings, noise keyed by position."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import Warped, race, race_top, sample, warp
from draftproof.types import SamplingParams

NOISE = PhiloxNoise()


def test_ties_go_to_the_lowest_id():
    assert race(Warped(None, np.zeros(4)), np.zeros(4)) == 0
    assert race(Warped(np.array([2, 7]), np.zeros(2)), np.zeros(2)) == 2
    assert race_top(Warped(np.array([2, 7, 9]), np.zeros(3)), np.zeros(3), 2).tolist() == [2, 7]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([1.0, 0.8, 0.3]))
def test_race_of_a_truncated_law_is_the_race_of_its_dense_law(seed, k, top_p):
    row = np.random.default_rng(seed).standard_normal(50)
    warped = warp(row, SamplingParams(temperature=0.8, top_k=k, top_p=top_p))
    gumbel = NOISE.gumbel(seed, 3, None, 50)
    with np.errstate(divide="ignore"):
        dense = np.log(warped.law(50)) + gumbel
    ranked = race_top(warped, gumbel[warped.ids], 3).tolist()
    assert ranked == np.argsort(-dense, kind="stable")[: min(3, len(warped.ids))].tolist()
    assert race(warped, gumbel[warped.ids]) == ranked[0] == sample(warped, NOISE, seed, 3, 50)


def test_a_forbidden_token_never_wins():
    scores = np.array([-np.inf, 0.0, -np.inf])
    assert race_top(Warped(None, scores), np.array([9.0, 0.0, 9.0]), 3).tolist() == [1]


def test_one_hot_laws_ask_for_no_noise():
    assert sample(Warped(np.array([4]), np.zeros(1)), None, 1, 1, 9) == 4


def test_seed_and_position_are_the_whole_key():
    warped = Warped(None, np.zeros(1000))
    tokens = [[sample(warped, NOISE, seed, position, 1000) for position in range(20)] for seed in (1, 2, 1)]
    assert tokens[0] == tokens[2] != tokens[1]
    assert len(set(tokens[0])) > 15


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([65, 500, 49_152]), st.sampled_from([0.0, 0.5, 3.0, 12.0]))
def test_leaving_out_hopeless_tokens_changes_no_winner(seed, vocab_size, spread):
    row = (np.random.default_rng(seed).standard_normal(vocab_size) * spread).astype(np.float32)
    warped = warp(row, SamplingParams(temperature=1.0))
    full = NOISE.gumbel(seed, 5, None, vocab_size)
    assert sample(warped, NOISE, seed, 5, vocab_size) == race(warped, full)
    ids = np.arange(0, vocab_size, 2)
    half = Warped(ids, warped.scores[ids] - warped.scores[ids].max())
    assert sample(half, NOISE, seed, 5, vocab_size) == race(half, full[ids])


def test_the_least_likely_winner_is_among_the_contenders():
    """The token with the largest number wins from as far behind as that number reaches, and no farther."""
    vocab_size = 1000
    for seed in range(20):
        full = NOISE.gumbel(seed, 1, None, vocab_size)
        lucky, best = int(full.argmax()), int(full.argmin())
        for gap, winner in ((1e-4, lucky), (-1e-4, best)):
            scores = np.full(vocab_size, -1e4, np.float32)
            scores[best], scores[lucky] = 0.0, full[best] - full[lucky] + gap
            assert sample(Warped(None, scores), NOISE, seed, 1, vocab_size) == winner


def test_peak_is_the_largest_number_of_a_position():
    for seed in range(5):
        assert NOISE.peak(seed, 7, 3000) == NOISE.gumbel(seed, 7, None, 3000).max()
