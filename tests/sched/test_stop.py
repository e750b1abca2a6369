"""Endings: one replayed run, every order of the three tests, the rows that stay, and the counters after the cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.stop import cut, failed, fed_only
from draftproof.types import EMPTY_DRAFT, Draft, SamplingParams, StepItem, Verdict, chain

S = 50  # the stop id of these tests


def item(prompt=3, emitted=0, feed=1, stop_ids=(S,), **params):
    tokens = np.arange(prompt + emitted, dtype=np.int32)
    return StepItem(
        seq=4,
        tokens=tokens,
        prompt_len=prompt,
        pending=feed,
        feed=feed,
        budget=8,
        params=SamplingParams(seed=0, **{"max_new_tokens": None, **params}),
        round=0,
        stop_ids=frozenset(stop_ids),
    )


def accept_all(drafts, bonus):
    return chain(drafts), Verdict(tuple(range(1, len(drafts) + 1)), bonus, "bonus", len(drafts))


def test_a_run_without_an_end_is_emitted_whole():
    commit = cut(item(), *accept_all([10, 11], 12), max_len=64)
    assert commit.tokens.tolist() == [10, 11, 12]
    assert commit.tokens.dtype == np.int32
    assert (commit.seq, commit.finish, commit.kept) == (4, None, range(3))
    assert (commit.num_drafted, commit.num_tested, commit.num_accepted) == (2, 2, 2)


def test_plain_decoding_is_the_same_call():
    commit = cut(item(feed=3), EMPTY_DRAFT, Verdict((), S, "bonus", 0), max_len=64)
    assert (commit.tokens.tolist(), commit.finish, commit.kept) == ([S], "stop", range(3))
    assert (commit.num_drafted, commit.num_tested, commit.num_accepted) == (0, 0, 0)


@pytest.mark.parametrize(("emitted", "minimum", "finish"), [(0, 2, None), (0, 1, "stop"), (1, 3, None), (1, 2, "stop")])
def test_stop_ids_are_not_looked_at_before_the_minimum(emitted, minimum, finish):
    commit = cut(item(emitted=emitted, min_new_tokens=minimum), *accept_all([10, S], 12), max_len=64)
    assert commit.finish == finish
    assert commit.tokens.tolist() == ([10, S] if finish else [10, S, 12])


def test_the_context_limit_is_a_length_and_counts_the_prompt():
    commit = cut(item(prompt=3, emitted=2), *accept_all([10, 11, 12], 13), max_len=7)
    assert (commit.tokens.tolist(), commit.finish) == ([10, 11], "length")


def test_a_tree_path_keeps_the_rows_of_its_nodes():
    draft = Draft(np.array([10, 20, 11, 21, 22], np.int32), np.array([0, 0, 1, 2, 4], np.int32))
    commit = cut(item(feed=2), draft, Verdict((2, 4, 5), 23, "bonus", 3), max_len=64)
    assert commit.tokens.tolist() == [20, 21, 22, 23]
    assert commit.kept == (0, 1, 3, 5, 6)
    assert (commit.num_drafted, commit.num_tested, commit.num_accepted) == (5, 3, 3)
    commit = cut(item(feed=2, max_new_tokens=2), draft, Verdict((2, 4, 5), 23, "bonus", 3), max_len=64)
    assert (commit.tokens.tolist(), commit.kept, commit.finish) == ([20, 21], (0, 1, 3), "length")


def test_a_tree_path_that_lies_together_is_a_range():
    draft = Draft(np.array([10, 11, 20], np.int32), np.array([0, 1, 0], np.int32))
    commit = cut(item(feed=2), draft, Verdict((1, 2), 12, "bonus", 2), max_len=64)
    assert commit.kept == range(4)


def test_a_chunk_and_a_failure_keep_the_fed_rows_only():
    chunk = fed_only(item(feed=3))
    assert (chunk.kept, len(chunk.tokens), chunk.finish, chunk.verdict) == (range(3), 0, None, None)
    failure = failed(item(feed=1), "NaN")
    assert (failure.kept, len(failure.tokens), failure.finish, failure.error) == (range(1), 0, "error", "NaN")


def one_token_loop(run, stop_ids, minimum, cap, room):
    """The plain loop: it sees one token at a time and knows nothing of rounds."""
    text = []
    for token in run:
        text.append(token)
        if token in stop_ids and len(text) > minimum:
            return text, "stop"
        if len(text) == cap or len(text) == room:
            return text, "length"
    return text, None


@st.composite
def trees(draw):
    """A draft tree of 0..7 nodes and a path down it."""
    num_nodes = draw(st.integers(0, 7))
    parents = [draw(st.integers(0, node)) for node in range(num_nodes)]
    tokens = draw(st.lists(st.integers(0, 6), min_size=num_nodes, max_size=num_nodes))
    path, at = [], 0
    while True:
        children = [node + 1 for node, parent in enumerate(parents) if parent == at]
        if not children or draw(st.integers(0, 3)) == 0:
            return Draft(np.array(tokens, np.int32), np.array(parents, np.int32)), tuple(path), bool(children)
        at = draw(st.sampled_from(children))
        path.append(at)


@given(
    tree=trees(),
    next_token=st.integers(0, 6),
    stop_ids=st.sets(st.integers(0, 6), max_size=3),
    minimum=st.integers(0, 4),
    cap=st.none() | st.integers(1, 10),
    room=st.integers(1, 10),
    feed=st.integers(1, 3),
)
def test_every_cut_is_the_one_token_loop(tree, next_token, stop_ids, minimum, cap, room, feed):
    draft, path, refused = tree
    verdict = Verdict(path, next_token, "correction" if refused else "bonus", len(path) + refused)
    start = item(prompt=3, feed=feed, stop_ids=stop_ids, min_new_tokens=minimum, max_new_tokens=cap)
    commit = cut(start, draft, verdict, max_len=3 + room)
    run = [int(draft.tokens[node - 1]) for node in path] + [next_token]
    text, finish = one_token_loop(run, stop_ids, minimum, cap, room)
    assert (commit.tokens.tolist(), commit.finish) == (text, finish)
    # the kept rows are the fed ones and those of every emitted token but the last
    rows = [*range(feed), *(feed - 1 + node for node in path)][: feed + len(text) - 1]
    assert list(commit.kept) == rows
    assert isinstance(commit.kept, range) == (rows == list(range(len(rows))))
    assert start.kv_len + len(commit.kept) == len(start.tokens) + len(text) - 1
    assert 0 <= commit.num_accepted <= commit.num_tested <= commit.num_drafted == len(draft)
    assert commit.num_accepted == min(len(path), len(text))
