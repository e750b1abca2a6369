"""warp and processed against slow float64 references, and at their edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import InvalidParams, RowError
from draftproof.rules import History, best_id, processed, warp
from draftproof.types import SamplingParams

NO_STOPS = frozenset()


def history(tokens, prompt_len=0):
    return History(np.array(tokens, np.int32), prompt_len)


def slow_law(row, temperature, top_k, top_p, min_p):
    """The definition, token by token: sort all, keep, renormalise."""
    row = row.astype(np.float64)
    weights = np.exp((row - row.max()) / temperature)
    order = sorted(np.flatnonzero(row > -np.inf), key=lambda i: (-row[i], i))
    order = order[: top_k or len(order)]
    if top_p < 1:
        mass, kept = 0.0, []
        for token in order:
            kept.append(token)
            mass += weights[token]
            if mass >= top_p * weights[order].sum():
                break
        order = kept
    order = [token for token in order if weights[token] >= min_p * weights.max()]
    law = np.zeros(len(row))
    law[order] = weights[order]
    return law / law.sum()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 5, 100, 3000]),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.sampled_from([None, 1, 2, 50, 10_000]),
    st.sampled_from([1.0, 0.95, 0.5, 1e-9]),
    st.sampled_from([0.0, 0.051, 1.0]),
)
def test_law_equals_the_definition(seed, vocab, temperature, top_k, top_p, min_p):
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(vocab) * rng.choice([0.1, 1.0, 5.0])
    row[rng.random(vocab) < 0.1] = -np.inf
    row[rng.integers(vocab)] = 1.0
    law = warp(row, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)).law(vocab)
    np.testing.assert_allclose(law, slow_law(row, temperature, top_k, top_p, min_p), rtol=1e-9, atol=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 1500, 6000]), st.sampled_from([0.02, 0.6, 0.999]))
def test_nucleus_with_ties_is_the_smallest_prefix_and_prefers_low_ids(seed, levels, top_p):
    rng = np.random.default_rng(seed)
    row = (rng.integers(0, levels, 5000) / levels).astype(np.float64)
    ids = warp(row, SamplingParams(temperature=1.0, top_p=top_p)).ids
    order = np.argsort(-row, kind="stable")
    mass = np.cumsum(np.exp(row - row.max())[order])
    assert abs(len(ids) - (np.searchsorted(mass, top_p * mass[-1]) + 1)) <= 1  # the edge itself may round
    assert ids.tolist() == sorted(order[: len(ids)].tolist())


def test_precision_of_the_law_is_that_of_the_logits_and_it_sums_to_one():
    for dtype in (np.float32, np.float64):
        row = np.random.default_rng(0).standard_normal(49152).astype(dtype)
        for params in (SamplingParams(temperature=0.7), SamplingParams(temperature=0.7, top_p=0.9)):
            law = warp(row, params).law(len(row))
            assert law.dtype == dtype
            assert abs(law.sum(dtype=np.float64) - 1) < 1e-6


def test_top_k_keeps_exactly_k_with_ties_to_the_lower_id():
    assert warp(np.array([1.0, 1.0, 0.0, 1.0]), SamplingParams(temperature=1.0, top_k=2)).ids.tolist() == [0, 1]


def test_top_p_is_taken_of_what_top_k_left():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    # of the whole law 0.4 + 0.3 is below 0.75; of the two best it is 4/7 + 3/7, and 4/7 alone is above 0.55
    assert warp(row, SamplingParams(temperature=1.0, top_k=2, top_p=0.55)).ids.tolist() == [0]
    assert warp(row, SamplingParams(temperature=1.0, top_p=0.55)).ids.tolist() == [0, 1]


def test_temperature_zero_is_one_hot_with_ties_to_the_lowest_id():
    warped = warp(np.array([0.0, 2.0, 2.0], np.float32), SamplingParams(temperature=0.0, top_p=0.5))
    assert warped.law(3).tolist() == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-38, 1e-40, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_temperatures_are_greedy_and_share_among_ties(temperature, dtype):
    law = warp(np.array([2, 1, 0, 2], dtype), SamplingParams(temperature=temperature)).law(4)
    assert law.tolist() == [0.5, 0, 0, 0.5]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([np.nan, 1.0], "logit of nan"),
        ([1.0, np.nan], "logit of nan"),
        ([np.inf, 1.0], "logit of inf"),
        ([-np.inf, -np.inf], "no token is possible"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_law_is_an_error(row, says, temperature):
    with pytest.raises(RowError, match=says):
        warp(np.array(row), SamplingParams(temperature=temperature))
    with pytest.raises(RowError):
        best_id(np.array(row))


def test_processed_gives_the_same_array_back_when_nothing_is_asked():
    row = np.zeros(3)
    assert processed(row, SamplingParams(top_p=0.5), history([1]), NO_STOPS) is row


def test_processed_never_edits_the_targets_row():
    row = np.array([1.0, -1.0, 0.5])
    row.setflags(write=False)
    params = SamplingParams(
        repetition_penalty=2.0,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        logit_bias={2: 1.0},
        bad_words=[[0]],
        min_new_tokens=9,
    )
    assert processed(row, params, history([1, 2, 2, 0], prompt_len=1), {1}).tolist() == [
        -np.inf,  # banned
        -np.inf,  # stop id before the minimum length
        0.5 / 2 - (0.25 + 2 * 0.5) + 1.0,
    ]
    assert row.tolist() == [1.0, -1.0, 0.5]


def test_repetition_sees_the_prompt_and_the_other_penalties_do_not():
    tokens = history([0, 1], prompt_len=1)
    row = np.array([1.0, -1.0, 1.0])
    assert processed(row, SamplingParams(repetition_penalty=2.0), tokens, NO_STOPS).tolist() == [0.5, -2.0, 1.0]
    assert processed(row, SamplingParams(presence_penalty=0.5), tokens, NO_STOPS).tolist() == [1.0, -1.5, 1.0]
    assert processed(row, SamplingParams(frequency_penalty=0.5), tokens, NO_STOPS).tolist() == [1.0, -1.5, 1.0]


def test_bad_words_ban_the_last_id_after_their_prefix_only():
    row, params = np.zeros(4), SamplingParams(bad_words=[[1, 2, 3], [0]])
    assert np.flatnonzero(processed(row, params, history([1, 2]), NO_STOPS) == -np.inf).tolist() == [0, 3]
    assert np.flatnonzero(processed(row, params, history([2, 1]), NO_STOPS) == -np.inf).tolist() == [0]
    assert np.flatnonzero(processed(row, params, history([2]), NO_STOPS) == -np.inf).tolist() == [0]


def test_minimum_length_counts_output_tokens():
    params = SamplingParams(min_new_tokens=2)
    assert processed(np.zeros(2), params, history([0, 0, 0], prompt_len=2), {1})[1] == -np.inf
    assert processed(np.zeros(2), params, history([0, 0, 0, 0], prompt_len=2), {1})[1] == 0


@pytest.mark.parametrize(
    ("params", "stop_ids", "name"),
    [
        (SamplingParams(logit_bias={3: 1.0}), (), "logit_bias"),
        (SamplingParams(bad_words=[[3]]), (), "bad_words"),
        (SamplingParams(min_new_tokens=1), (3,), "stop_ids"),
        (SamplingParams(repetition_penalty=2.0), (), "repetition_penalty"),
        (SamplingParams(bad_words=["text"]), (), "bad_words 'text'"),
    ],
)
def test_ids_outside_the_vocabulary_are_named(params, stop_ids, name):
    with pytest.raises(InvalidParams, match=name):
        processed(np.zeros(3), params, history([7] if "repetition" in name else []), frozenset(stop_ids))


def test_a_logit_beyond_the_floats_is_an_error_not_a_warning():
    params = SamplingParams(repetition_penalty=1e-30)
    with pytest.raises(RowError):  # no model means a logit of 1e9
        best_id(processed(np.array([1e9, 0, 0], np.float32), params, history([0]), NO_STOPS))
