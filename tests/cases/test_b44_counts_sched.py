"""B44: impossible acceptance numbers. Kind: counters taken before the cut, or a bonus counted as an accepted draft."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.stop import cut
from draftproof.types import SamplingParams, StepItem, Verdict, chain

EOS = 99


def commit_of(drafts, accepted, next_token=7, cap=None):
    item = StepItem(
        seq=0,
        tokens=np.array([1, 2], np.int32),
        prompt_len=2,
        pending=1,
        feed=1,
        budget=len(drafts),
        params=SamplingParams(seed=0, max_new_tokens=cap),
        round=0,
        stop_ids=frozenset({EOS}),
    )
    refused = accepted < len(drafts)
    verdict = Verdict(
        tuple(range(1, accepted + 1)), next_token, "correction" if refused else "bonus", accepted + refused
    )
    return cut(item, chain(drafts), verdict, 1000)


def test_three_rounds():
    commits = [commit_of([3, 4, 5, 6], 4), commit_of([3, 4, 5, 6], 1), commit_of([], 0)]
    drafted = sum(commit.num_drafted for commit in commits)
    accepted = sum(commit.num_accepted for commit in commits)
    assert (drafted, accepted, Fraction(accepted, drafted)) == (8, 5, Fraction(5, 8))
    assert Fraction(sum(len(commit.tokens) for commit in commits), len(commits)) == Fraction(8, 3)
    rounds = [commit for commit in commits if commit.num_drafted]
    rates = [Fraction(sum(commit.num_accepted > place for commit in rounds), len(rounds)) for place in range(4)]
    assert rates == [1, Fraction(1, 2), Fraction(1, 2), Fraction(1, 2)]
    assert [commit.num_tested for commit in commits] == [4, 2, 0]


def test_a_last_round_that_the_eos_cuts():
    commit = commit_of([3, 4, EOS, 5, 6], 5)
    assert commit.tokens.tolist() == [3, 4, EOS]
    assert (commit.num_drafted, commit.num_tested, commit.num_accepted) == (5, 3, 3)
    assert commit.finish == "stop"


@pytest.mark.parametrize(("accepted", "counts"), [(0, (2, 1, 0)), (1, (2, 2, 1)), (2, (2, 2, 2))])
def test_an_eos_that_the_target_decides_is_no_accepted_draft(accepted, counts):
    commit = commit_of([3, 4], accepted, next_token=EOS)
    assert (commit.num_drafted, commit.num_tested, commit.num_accepted) == counts
    assert len(commit.tokens) == accepted + 1


@given(
    drafts=st.lists(st.sampled_from([3, 4, EOS]), max_size=8),
    accepted=st.integers(0, 8),
    next_token=st.sampled_from([3, EOS]),
    cap=st.none() | st.integers(1, 10),
)
def test_counts_are_always_possible(drafts, accepted, next_token, cap):
    commit = commit_of(drafts, min(accepted, len(drafts)), next_token, cap)
    emitted = len(commit.tokens)
    assert 0 <= commit.num_accepted <= commit.num_tested <= commit.num_drafted == len(drafts)
    assert commit.num_tested <= emitted
    assert emitted - commit.num_accepted in (0, 1)  # at most the one token that the target decided
    assert commit.tokens.tolist()[: commit.num_accepted] == drafts[: commit.num_accepted]
    assert emitted - commit.num_accepted == 1 or commit.finish is not None
