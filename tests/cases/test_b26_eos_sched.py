"""B26: EOS inside an accepted run. Kind: a text that goes on past its stop id, wherever in a round that id falls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.stop import cut
from draftproof.types import SamplingParams, StepItem, Verdict, chain


def generate(prompt, stop_ids, gamma, follow, most=50):
    """A perfect drafter, so every round is accepted whole; `follow(tokens)` is the target. Returns text and commits."""
    tokens, commits = list(prompt), []
    while not commits or commits[-1].finish is None:
        item = StepItem(
            seq=0,
            tokens=np.array(tokens, np.int32),
            prompt_len=len(prompt),
            pending=1,
            feed=1,
            budget=gamma,
            params=SamplingParams(seed=0, max_new_tokens=most),
            round=len(commits),
            stop_ids=frozenset(stop_ids),
        )
        run = list(tokens)
        for _ in range(gamma + 1):
            run.append(follow(run))
        run = run[len(tokens) :]
        verdict = Verdict(tuple(range(1, gamma + 1)), run[-1], "bonus", gamma)
        commit = cut(item, chain(run[:-1]), verdict, max_len=1000)
        assert item.kv_len + len(commit.kept) == len(tokens) + len(commit.tokens) - 1
        tokens += commit.tokens.tolist()
        commits.append(commit)
    return tokens[len(prompt) :], commits


def cycle(tokens):
    return (tokens[-1] + 1) % 8


@pytest.mark.parametrize("gamma", range(7))
def test_the_cycle_stops_at_its_eos(gamma):
    text, commits = generate([0], {3}, gamma, cycle)
    assert text == [1, 2, 3]
    assert [commit.finish for commit in commits if commit.finish] == ["stop"]
    assert sum(len(commit.tokens) for commit in commits) == 3
    assert sum(len(commit.kept) for commit in commits) == 3  # rows of 0, 1, 2: rewound to just before the EOS


@pytest.mark.parametrize(("eos", "where"), [(1, "draft 1"), (4, "last draft"), (5, "bonus")])
def test_wherever_the_eos_falls_in_the_round(eos, where):
    text, commits = generate([0], {eos}, 4, cycle)
    assert text == list(range(1, eos + 1)), where
    assert len(commits) == 1
    assert commits[0].num_accepted == min(eos, 4)
    assert commits[0].finish == "stop"


def test_the_first_of_two_eos_ids_ends_the_text():
    assert generate([0], {5, 2}, 6, cycle)[0] == [1, 2]
    assert generate([0], {2, 3}, 6, cycle)[0] == [1, 2]


@given(
    table=st.lists(st.integers(0, 9), min_size=10, max_size=10),
    stop_ids=st.sets(st.integers(0, 9), max_size=4),
    most=st.integers(1, 20),
)
def test_no_draft_length_moves_the_end(table, stop_ids, most):
    """A target that is any map from the last token and the length; all draft lengths give the plain text and end."""

    def follow(tokens):
        return table[(tokens[-1] + len(tokens)) % 10]

    plain, commits = generate([0], stop_ids, 0, follow, most)
    for gamma in (1, 2, 3, 7):
        text, last = generate([0], stop_ids, gamma, follow, most)
        assert (text, last[-1].finish) == (plain, commits[-1].finish)
        assert not set(text[:-1]) & stop_ids
