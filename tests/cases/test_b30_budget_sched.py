"""B30: max_tokens off by the run length. Kind: a cap that is compared with anything but the tokens emitted so far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.kv.ledger import PageLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, fed_only
from draftproof.types import Request, SamplingParams, Verdict, chain


def generate(prompt, most, gamma, accepted=None, max_len=40, chunk_rows=16):
    """CYCLE under the real scheduler; `accepted(round)` drafts are right, all when None. Text, finish, budgets."""
    ledger = PageLedger(32, 4)
    scheduler = BatchScheduler(ledger, Limits(max_len, chunk_rows=chunk_rows, min_rows=2), FixedGamma(gamma))
    scheduler.submit(Request(0, np.array(prompt, np.int32), SamplingParams(seed=0, max_new_tokens=most)))
    text, finish, budgets = [], [], []
    while scheduler.has_work:
        commits = []
        for item in scheduler.plan().items:
            if not item.decides:
                commits.append(fed_only(item))
                continue
            budgets.append((item.budget, len(text)))
            right = [(int(item.tokens[-1]) + 1 + step) % 8 for step in range(item.budget + 1)]
            good = item.budget if accepted is None else min(item.budget, accepted(item.round))
            path, refused = tuple(range(1, good + 1)), good < item.budget
            draft = chain([*right[:good], *([7 - right[good]] * (item.budget - good))])
            verdict = Verdict(path, right[good], "correction" if refused else "bonus", good + refused)
            commits.append(cut(item, draft, verdict, scheduler.max_len))
        for commit in commits:
            ledger.commit(commit.seq, commit.kept)
        for event in scheduler.apply(commits) + scheduler.drain():
            text += event.tokens
            finish += [event.finish] if event.finish else []
    assert ledger.free_pages == 32
    return text, finish, budgets


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
@pytest.mark.parametrize("most", range(8))
def test_exactly_the_first_m(most, gamma):
    text, finish, budgets = generate([0], most, gamma)
    assert text == [1, 2, 3, 4, 5, 6, 7][:most]
    assert finish == ["length"]
    assert all(budget <= max(0, most - emitted - 1) for budget, emitted in budgets)


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_unlimited_is_up_to_the_context(gamma):
    text, finish, _ = generate([0], None, gamma, max_len=20)
    assert (text, finish) == ([(1 + step) % 8 for step in range(19)], ["length"])


@given(
    prompt=st.lists(st.integers(0, 7), min_size=1, max_size=12),
    most=st.none() | st.integers(0, 30),
    gamma=st.integers(0, 9),
    accepted=st.lists(st.integers(0, 9), min_size=40, max_size=40),
    chunk_rows=st.integers(1, 13),
)
def test_any_acceptance_any_chunks_same_text(prompt, most, gamma, accepted, chunk_rows):
    text, finish, budgets = generate(prompt, most, gamma, lambda round_: accepted[round_], chunk_rows=chunk_rows)
    length = min(40 - len(prompt), 40 if most is None else most)
    assert text == [(prompt[-1] + 1 + step) % 8 for step in range(length)]
    assert finish == ["length"]
    assert all(budget <= max(0, length - emitted - 1) for budget, emitted in budgets)
