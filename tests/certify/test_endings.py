"""What may not follow the end of a text."""

import pytest

from draftproof.certify import endings
from draftproof.certify.types import Job, Round, Sample
from draftproof.types import SamplingParams


def faults(tokens, finish="length", stops=(9,), **params):
    job = Job(0, (1,), SamplingParams(seed=0, **{"max_new_tokens": 4, **params}), frozenset(stops))
    return endings.check("endings.a", [job], [Sample(tuple(tokens), finish)], 10)


@pytest.mark.parametrize(
    ("tokens", "finish", "more", "words"),
    [
        ([1, 9, 2], "length", {}, "goes on after the stop id 9 at token 1"),
        ([1, 2, 3, 4, 5], "length", {}, "over the cap of 4"),
        ([1, 10], "length", {}, "no id of the vocabulary"),
        ([-1], "length", {}, "no id of the vocabulary"),
        ([9], "stop", {"min_new_tokens": 1}, "before the minimum length"),
        ([], "length", {}, "no token at all"),
        ([1, 9], "length", {}, "said to end with 'length'"),
    ],
)
def test_faults(tokens, finish, more, words):
    result = faults(tokens, finish, **more)
    assert result.failed
    assert words in result.detail["faults"][0]["what"]
    assert result.detail["faults"][0]["tokens"] == tokens


@pytest.mark.parametrize(("tokens", "finish"), [([1, 9], "stop"), ([1, 2, 3, 4], "length"), ([1, 9], None)])
def test_what_is_right(tokens, finish):
    assert not faults(tokens, finish).failed
    assert not faults([9, 1], "length", min_new_tokens=1, stops=(9,), max_new_tokens=4).detail["stopped"]


def test_endings_inside_rounds_are_counted():
    job = Job(0, (1,), SamplingParams(seed=0), frozenset({9}))
    sample = Sample((1, 2, 9), "stop", (Round(1, 0, 0, 0), Round(2, 2, 2, 4)))
    assert endings.check("endings.a", [job], [sample], 10).detail["inside_rounds"] == 1
