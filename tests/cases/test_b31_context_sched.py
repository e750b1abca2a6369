"""B31: look-ahead past the context limit. Kind: a row, a position or a draft token beyond the room that is left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.errors import PromptTooLong
from draftproof.kv.ledger import PageLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, fed_only
from draftproof.types import Request, SamplingParams, Verdict, chain


class Run:
    """Requests that count upwards, every draft right; remembers all budgets by request."""

    def __init__(self, lengths, gamma, num_pages=64, **limits):
        self.ledger = PageLedger(num_pages, 4)
        self.limits = Limits(**{"max_len": 16, "min_rows": 2, **limits})
        self.scheduler = BatchScheduler(self.ledger, self.limits, FixedGamma(gamma))
        self.texts, self.finish, self.budgets = {}, {}, {}
        for number, length in enumerate(lengths):
            params = SamplingParams(seed=0, max_new_tokens=100)
            self.scheduler.submit(Request(number, np.arange(length, dtype=np.int32), params, arrival=number))
        while self.scheduler.has_work:
            self.step()
        assert self.ledger.free_pages == num_pages

    def step(self):
        plan = self.scheduler.plan()
        commits = []
        for item, slots in zip(plan.items, plan.slots, strict=True):
            assert slots.start + slots.rows <= min(self.limits.max_len, self.ledger.max_rows)  # padding rows too
            self.budgets.setdefault(item.seq, []).append((len(item.tokens), item.budget))
            run = list(range(len(item.tokens), len(item.tokens) + item.budget + 1))
            verdict = Verdict(tuple(range(1, item.budget + 1)), run[-1], "bonus", item.budget)
            draft = chain(run[:-1])
            commits.append(cut(item, draft, verdict, self.scheduler.max_len) if item.decides else fed_only(item))
        for commit in commits:
            self.ledger.commit(commit.seq, commit.kept)
        for event in self.scheduler.apply(commits):
            self.texts.setdefault(event.request_id, []).extend(event.tokens)
            if event.finish:
                self.finish[event.request_id] = event.finish


@pytest.mark.parametrize("gamma", [0, 1, 8])
def test_prompt_of_twelve_gives_four_tokens(gamma):
    run = Run([12], gamma)
    assert run.texts == {0: [12, 13, 14, 15]}
    assert run.finish == {0: "length"}


def test_gamma_is_cut_to_the_room_of_each_request():
    run = Run([12, 3], 8, max_len=16)
    assert run.budgets[0] == [(12, 0), (13, 2)]  # room 3: two drafts and one token more
    assert run.budgets[1] == [(3, 0), (4, 8), (13, 2)]  # its mate keeps its gamma


def test_fifteen_gives_one_token_and_sixteen_is_refused():
    assert Run([15], 8).texts == {0: [15]}
    with pytest.raises(PromptTooLong, match="context limit is 16"):
        Run([16], 8)


def test_a_small_memory_is_a_context_limit_too():
    run = Run([5], 8, num_pages=2, max_len=100)
    assert (run.texts, run.finish) == ({0: [5, 6, 7]}, {0: "length"})
    with pytest.raises(PromptTooLong, match="raise the memory budget"):
        Run([8], 8, num_pages=2, max_len=100)


@given(
    max_len=st.integers(3, 40),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    gamma=st.integers(0, 10),
    chunk_rows=st.integers(1, 20),
    num_pages=st.integers(1, 30),
    min_rows=st.integers(1, 4),
)
def test_every_text_ends_at_the_limit(max_len, lengths, gamma, chunk_rows, num_pages, min_rows):
    limit = min(max_len, 4 * num_pages) - max(0, min_rows - 2)
    lengths = [min(length, limit - 1) for length in lengths]
    if limit < 2:
        return
    run = Run(lengths, gamma, num_pages, max_len=max_len, chunk_rows=chunk_rows, min_rows=min_rows)
    for number, length in enumerate(lengths):
        assert run.texts[number] == list(range(length, limit))
        assert run.finish[number] == "length"
        assert all(budget <= max(0, limit - known - 1) for known, budget in run.budgets[number])
