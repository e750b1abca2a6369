"""B23: look-ahead pages across a page edge. Kind: pages of refused drafts that stay booked, or are freed too soon."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftproof.kv.ledger import PageLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, fed_only
from draftproof.types import Request, SamplingParams, Verdict, chain


def test_nothing_accepted_across_a_block_edge():
    """Block size 4, cache 6, gamma 4: rows to positions 6..10; afterwards cache 7, two blocks, position 7 is next."""
    ledger = PageLedger(8, 4)
    ledger.reserve(0, 6)
    ledger.commit(0, range(6))
    slots = ledger.reserve(0, 1 + 4)
    positions = range(slots.start, slots.start + slots.rows)
    assert list(positions) == [6, 7, 8, 9, 10]
    assert {position // 4 for position in positions} == {1, 2}
    assert (len(slots.table), ledger.free_pages) == (3, 5)
    ledger.commit(0, range(1))
    assert (ledger.kv_len(0), ledger.pages_held(0), ledger.free_pages) == (7, 2, 6)
    following = ledger.reserve(0, 1)
    assert (following.start, len(following.table)) == (7, 2)
    ledger.release(0)
    assert ledger.free_pages == 8


def refuse_all(scheduler, ledger, plan):
    """A step in which no draft is right."""
    commits = []
    for item in plan.items:
        if item.decides:
            draft = chain([1] * item.budget)
            commits.append(cut(item, draft, Verdict((), 2, "correction", min(1, item.budget)), scheduler.max_len))
        else:
            commits.append(fed_only(item))
    for commit in commits:
        ledger.commit(commit.seq, commit.kept)
    scheduler.apply(commits)
    scheduler.drain()


def test_a_thousand_requests_with_aborts_leave_no_page():
    ledger = PageLedger(16, 4)
    scheduler = BatchScheduler(ledger, Limits(max_len=40, min_rows=2), FixedGamma(4))
    prompt = np.arange(7, dtype=np.int32)
    for number in range(1000):
        seq = scheduler.submit(Request(number, prompt, SamplingParams(seed=0, max_new_tokens=6)))
        for step in range(6):
            plan = scheduler.plan()
            if number % 3 == 0 and step == number % 5:  # in the middle of a step, with its look-ahead reserved
                scheduler.cancel(seq)
                assert ledger.free_pages == 16
                assert scheduler.apply([]) == []
                break
            refuse_all(scheduler, ledger, plan)
        assert ledger.free_pages == 16
        ledger.check()
    assert scheduler.num_running == scheduler.num_waiting == 0


@given(
    page_size=st.integers(1, 9),
    rounds=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=30),
)
def test_what_is_kept_is_what_is_booked(page_size, rounds):
    ledger = PageLedger(400, page_size)
    length = 0
    for rows, kept in rounds:
        slots = ledger.reserve(0, rows)
        written = [(int(slots.table[p // page_size]), p % page_size) for p in range(length, length + rows)]
        assert len(set(written)) == rows
        kept = min(rows, kept)
        ledger.commit(0, range(kept))
        length += kept
        assert ledger.free_pages == 400 - -(-length // page_size)
        ledger.check()
    ledger.release(0)
    assert ledger.free_pages == 400
