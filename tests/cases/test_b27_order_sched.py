"""B27: stop and cap in one run. Kind: an order of the stop tests that depends on how many tokens came at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.stop import cut
from draftproof.types import SamplingParams, StepItem, Verdict, chain

S = 9


def commit_of(run, text, cap, max_len=100, minimum=0):
    """One round that decides `run` behind the text so far (the prompt is one token)."""
    item = StepItem(
        seq=0,
        tokens=np.array([0, *text], np.int32),
        prompt_len=1,
        pending=1,
        feed=1,
        budget=len(run) - 1,
        params=SamplingParams(seed=0, max_new_tokens=cap, min_new_tokens=minimum),
        round=0,
        stop_ids=frozenset({S}),
    )
    path = tuple(range(1, len(run)))
    return cut(item, chain(run[:-1]), Verdict(path, run[-1], "bonus", len(path)), max_len)


@pytest.mark.parametrize(
    ("cap", "tokens", "finish"), [(5, [10, 11, S], "stop"), (3, [10, 11, S], "stop"), (2, [10, 11], "length")]
)
def test_the_run_of_the_case(cap, tokens, finish):
    commit = commit_of([10, 11, S, 20, 21, 22], [], cap)
    assert (commit.tokens.tolist(), commit.finish) == (tokens, finish)
    assert len(commit.kept) == len(tokens)  # the fed row, and one for each token but the last
    plain = []
    for token in [10, 11, S, 20, 21, 22]:  # the plain loop gives the same text and the same reason
        step = commit_of([token], plain, cap)
        plain += step.tokens.tolist()
        if step.finish:
            break
    assert (plain, step.finish) == (tokens, finish)


@given(
    stream=st.lists(st.sampled_from([1, 2, 3, S]), min_size=31, max_size=31),
    splits=st.lists(st.integers(1, 6), min_size=31, max_size=31),
    cap=st.none() | st.integers(1, 12),
    room=st.integers(1, 12),
    minimum=st.integers(0, 5),
)
def test_the_end_does_not_depend_on_the_rounds(stream, splits, cap, room, minimum):
    """The same stream of decided tokens, one at a time and in runs of any lengths: same text, same reason."""

    def play(sizes):
        text, at = [], 0
        for size in sizes:
            commit = commit_of(stream[at : at + size], text, cap, max_len=1 + room, minimum=minimum)
            text += commit.tokens.tolist()
            at += size
            if commit.finish:
                return text, commit.finish
        raise AssertionError("the context limit ends every text")

    assert play(splits) == play([1] * 31)
