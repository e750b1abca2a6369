"""Sampling parameters: what is accepted can be computed with, whatever the numbers; the rest is one clear line."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftproof.errors import InvalidParams
from draftproof.rules.warp import History, processed, warp
from draftproof.types import SamplingParams

NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
COUNTS = ("top_k", "min_new_tokens", "max_new_tokens", "seed", "logprobs", "max_draft_tokens")
TINY, HUGE = 5e-324, sys.float_info.max
EXTREMES = [0, TINY, -TINY, 1e-310, 1e-45, 1e-38, 1e-30, 1, 1e30, 1e31, 1e38, 1e39, HUGE, -HUGE, math.inf, -math.inf]
EXTREMES += [math.nan, 10**29, 10**31, 10**400, -(10**400), 10**5000, np.float64(1e-320)]
numbers = st.sampled_from(EXTREMES) | st.floats() | st.integers()
# the largest logits that a model could mean, a zero that times infinity would be NaN, and tokens with no chance
ROW = np.array([1e4, -1e4, 0.0, -0.0, 3.5, -np.inf, 1e-30, -2.0], np.float32)
HISTORY = History(np.array([0, 1, 2, 3, 5, 6, *[2] * 50], np.int32), 1)


def made(fields: dict[str, Any]) -> SamplingParams | str:
    """The parameters, or what is wrong with them."""
    try:
        return SamplingParams(**fields)
    except InvalidParams as error:
        return str(error)


def is_a_law(params: SamplingParams) -> None:
    """The whole way from logits to a law, where a warning is an error."""
    law = warp(processed(ROW, params, HISTORY, {7}), params).law(len(ROW))
    assert np.isfinite(law).all()
    assert (law >= 0).all()
    assert float(law.sum(dtype=np.float64)) == pytest.approx(1, abs=1e-5)


@given(fields=st.dictionaries(st.sampled_from(NUMBERS), numbers), bias=numbers, others=st.booleans())
@example({"repetition_penalty": TINY}, 0, False)
@example({"repetition_penalty": HUGE}, 0, False)
@example({"presence_penalty": HUGE, "frequency_penalty": -HUGE}, 0, False)
@example({"frequency_penalty": 10**29}, 0, False)
@example({"presence_penalty": -1e30, "frequency_penalty": -1e30, "repetition_penalty": 1e-30}, 1e30, True)
@example({"temperature": 1e300}, 0, True)
@example({"temperature": TINY}, 0, True)
@example({}, 1e39, True)
@example({}, -HUGE, True)
def test_what_is_accepted_gives_a_law_and_all_else_is_one_line(
    fields: dict[str, Any], bias: float, others: bool
) -> None:
    more = {"logit_bias": {4: bias, 2: -math.inf}, "bad_words": [(2, 6)], "min_new_tokens": 60} if others else {}
    params = made({"temperature": 1.0, **fields, "logit_bias": {4: bias}, **more})
    if isinstance(params, str):
        assert "\n" not in params
        assert any(params.startswith(f"{name} must be ") for name in (*fields, "logit_bias"))
    else:
        is_a_law(params)


@given(name=st.sampled_from(COUNTS), value=st.sampled_from(EXTREMES) | st.integers())
def test_counts_of_any_size_are_counts_or_one_line(name: str, value: Any) -> None:
    params = made({"temperature": 1.0, name: value})
    if isinstance(params, str):
        assert params.startswith(f"{name} must be ")
    else:
        assert isinstance(value, int)
        is_a_law(params)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"repetition_penalty": TINY}, "repetition_penalty must be a number in [1e-30, 1e+30], got 5e-324"),
        ({"presence_penalty": -1e31}, "presence_penalty must be a number in [-1e+30, 1e+30], got -1e+31"),
        ({"frequency_penalty": math.nan}, "frequency_penalty must be a number in [-1e+30, 1e+30], got nan"),
        ({"temperature": 1e300}, "temperature must be at most 1e+30, got 1e+300"),
        ({"temperature": math.inf}, "temperature must be a finite number >= 0, got inf"),
        ({"temperature": 10**5000}, "temperature must be a finite number >= 0, got an integer of thousands of digits"),
        ({"temperature": True}, "temperature must be a finite number >= 0, got True"),
        ({"logit_bias": {3: 1e39}}, "logit_bias must be a mapping of token id to number, at most 1e+30"),
        ({"logit_bias": {2**31: 0.0}}, "logit_bias must be a mapping of token id"),
        ({"stop_ids": [2**31]}, "stop_ids must be a sequence of token ids"),
        ({"bad_words": [[2**31]]}, "bad_words must be a sequence of"),
        ({"seed": 2**64}, "seed must be None or an integer in [0, 2**64)"),
    ],
)
def test_what_can_t_be_computed_with_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidParams) as error:
        SamplingParams(**fields)
    assert str(error.value).startswith(says)


def test_numbers_are_kept_as_floats_so_that_laws_stay_in_the_precision_of_the_logits() -> None:
    params = SamplingParams(temperature=1, repetition_penalty=np.float64(1.5), frequency_penalty=2)
    assert [type(getattr(params, name)) for name in NUMBERS] == [float] * 6
    assert params == SamplingParams(temperature=1.0, repetition_penalty=1.5, frequency_penalty=2.0)
