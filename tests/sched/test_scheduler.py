"""Continuous batching by hand: who runs, with how many rows, and who gives way."""

import numpy as np
import pytest

from draftproof.errors import EngineError, InvalidParams, InvalidPrompt, PromptTooLong
from draftproof.kv.ledger import PageLedger, SlotLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, failed, fed_only
from draftproof.types import EMPTY_DRAFT, Request, SamplingParams, Verdict


def shape(plan):
    return [(item.seq, item.feed, item.budget) for item in plan.items]


def test_a_prompt_is_fed_in_chunks_then_decodes(loop):
    engine = loop(chunk_rows=4, gamma=3)
    engine.submit(range(10), max_new_tokens=6)
    assert shape(engine.step()) == [(0, 4, 0)]
    assert shape(engine.step()) == [(0, 4, 0)]
    assert shape(engine.step()) == [(0, 2, 0)]  # decides the first token: no drafts before it
    assert engine.texts[0]
    assert shape(engine.step()) == [(0, 1, 3)]


def test_a_last_chunk_of_one_row_does_not_draft_before_the_first_token(loop):
    engine = loop(chunk_rows=4)
    engine.submit(range(9))
    assert [shape(engine.step()) for _ in range(3)] == [[(0, 4, 0)], [(0, 4, 0)], [(0, 1, 0)]]


def test_decoding_sequences_come_before_chunks_in_the_same_step(loop):
    engine = loop(chunk_rows=8, max_step_rows=64, gamma=3)
    first = engine.submit(range(5))
    engine.step()
    engine.submit(range(20))
    plan = engine.step()
    assert shape(plan) == [(engine.seq_of[first], 1, 3), (1, 8, 0)]
    assert [slots.rows for slots in plan.slots] == [4, 8]


def test_rows_left_bound_the_chunks_and_drafts_leave_room_for_them(loop):
    engine = loop(chunk_rows=8, max_step_rows=16, max_sequences=4, gamma=8)
    for _ in range(2):
        engine.submit(range(3))
    engine.step()
    engine.submit(range(40))
    plan = engine.step()  # 16 - 8 for the chunk leave 8: 4 rows each, 3 of them drafts
    assert shape(plan) == [(0, 1, 3), (1, 1, 3), (2, 8, 0)]


def test_the_padding_row_carries_a_draft_when_rows_are_short(loop):
    engine = loop(chunk_rows=8, max_step_rows=8, max_sequences=4, gamma=8)
    for _ in range(4):
        engine.submit(range(2))
    engine.run(200)
    assert all(engine.finish[number] == "length" for number in range(4))


def test_waiting_sequences_are_admitted_in_order_of_arrival(loop):
    engine = loop(max_sequences=2)
    engine.submit([1, 2], arrival=5, max_new_tokens=2)
    engine.submit([1, 2], arrival=3, max_new_tokens=2)
    engine.submit([1, 2], arrival=4, max_new_tokens=2)
    plan = engine.step()
    assert [item.seq for item in plan.items] == [1, 2]
    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (2, 1)


def test_the_youngest_gives_its_pages_back_and_goes_on_later(loop, plain):
    engine = loop(num_pages=6, page_size=4, max_len=24, gamma=0, min_rows=1)
    for number in range(2):
        engine.submit([number, 1, 2, 3, 4], max_new_tokens=12)
    evicted_at = None
    for step in range(60):
        plan = engine.step()
        if evicted_at is None and [item.seq for item in plan.items] == [0]:
            evicted_at = step
            assert engine.scheduler.num_waiting == 1
            state = engine.scheduler.sequence(1)
            assert (state.kv_len, state.num_emitted, state.round) == (0, step, step)
    assert evicted_at is not None
    assert engine.finish == {0: "length", 1: "length"}
    for number in range(2):
        assert (engine.texts[number], "length") == plain([number, 1, 2, 3, 4], 12)


def test_look_ahead_is_given_up_before_a_sequence_is(loop):
    engine = loop(num_pages=4, page_size=4, max_len=16, gamma=8)
    for _ in range(2):
        engine.submit(range(4), max_new_tokens=3)
    engine.step()
    plan = engine.step()  # rows 4 and 5 of each fit into its second page; 8 drafts would need a third
    assert shape(plan) == [(0, 1, 1), (1, 1, 1)]  # 3 - 1 emitted leave room for 2: one draft
    engine = loop(num_pages=4, page_size=4, max_len=16, gamma=8)
    for _ in range(2):
        engine.submit(range(4), max_new_tokens=8)
    engine.step()
    assert shape(engine.step()) == [(0, 1, 0), (1, 1, 0)]
    assert engine.scheduler.num_waiting == 0


def test_look_ahead_never_takes_the_pages_a_prompt_needs(loop):
    """One decodes with 8 wrong drafts a round (2 pages more than it needs); 9 pages hold both without them."""
    engine = loop(num_pages=9, page_size=4, max_len=32, gamma=8, chunk_rows=4, right=0.0)
    engine.submit(range(4), max_new_tokens=20)
    engine.step()
    engine.submit(range(21), max_new_tokens=2)
    plans = []
    while 1 not in engine.finish:
        plans.append(engine.step())
        assert engine.scheduler.num_waiting == 0
    assert all(plan.items[0].budget == 0 for plan in plans)
    assert engine.step().items[0].budget == 8


def test_a_new_one_waits_until_all_of_its_tokens_have_pages(loop):
    engine = loop(num_pages=8, page_size=4, max_len=32, chunk_rows=4)
    engine.submit(range(18), max_new_tokens=4)
    engine.step()
    engine.submit(range(16), max_new_tokens=4)
    engine.step()
    assert engine.scheduler.num_waiting == 1  # 5 pages are promised to the first, 3 are left, it needs 5
    engine.run()


@pytest.mark.parametrize("min_rows", [1, 2, 3, 5])
def test_a_lone_sequence_may_fill_the_whole_memory(loop, plain, min_rows):
    engine = loop(num_pages=4, page_size=4, max_len=64, min_rows=min_rows)
    limit = engine.scheduler.max_len
    assert limit == 16 - max(0, min_rows - 2)
    engine.submit([1, 2, 3])
    engine.submit(list(range(limit - 1)))
    engine.run()
    assert (engine.texts[0], engine.finish[0]) == plain([1, 2, 3], max_len=limit)
    assert len(engine.texts[1]) == 1


def test_cancel_frees_the_pages_before_it_returns(loop):
    engine = loop(max_sequences=1, gamma=3)
    running, waiting = engine.submit(range(9)), engine.submit(range(9))
    engine.step()
    assert engine.ledger.free_pages < engine.ledger.num_pages
    for number in (running, waiting):
        engine.scheduler.cancel(engine.seq_of[number])
        assert engine.ledger.free_pages == engine.ledger.num_pages
    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (0, 0)
    assert engine.scheduler.has_work  # two events to deliver
    events = engine.scheduler.drain()
    assert [(e.request_id, e.finish, e.tokens, e.decided) for e in events] == [
        (running, "cancelled", (), False),
        (waiting, "cancelled", (), False),
    ]
    assert not engine.scheduler.has_work
    engine.scheduler.cancel(engine.seq_of[running])  # ended already: no second event
    assert engine.scheduler.drain() == []
    with pytest.raises(KeyError):
        engine.scheduler.sequence(engine.seq_of[running])


def test_no_token_asked_for_ends_at_once(loop):
    engine = loop()
    number = engine.submit([1, 2], max_new_tokens=0)
    assert engine.scheduler.has_work
    assert engine.step().items == ()
    assert (engine.finish[number], engine.texts[number], engine.passes[number]) == ("length", [], 0)


def test_refusals_name_the_numbers_and_the_way_out(loop):
    engine = loop(num_pages=4, page_size=4, max_len=64)
    with pytest.raises(InvalidPrompt, match="empty"):
        engine.submit([])
    with pytest.raises(PromptTooLong, match=r"16 tokens .* holds 16 tokens.* limit is 64.* raise the memory budget"):
        engine.submit(range(16))
    engine = loop(num_pages=64, page_size=4, max_len=16)
    with pytest.raises(PromptTooLong, match=r"16 tokens .* context limit is 16 tokens; shorten the prompt"):
        engine.submit(range(16))
    assert not engine.scheduler.has_work


@pytest.mark.parametrize("name", ["max_len", "max_sequences", "max_step_rows", "chunk_rows", "min_rows"])
def test_limits_are_checked(name):
    with pytest.raises(InvalidParams, match=name):
        Limits(**{"max_len": 16, name: 0})


def test_limits_let_every_running_sequence_run():
    Limits(max_len=16, max_sequences=8, min_rows=2, max_step_rows=16)
    with pytest.raises(InvalidParams, match="16, so that every running sequence can run"):
        Limits(max_len=16, max_sequences=8, min_rows=2, max_step_rows=15)


def test_the_request_caps_its_own_drafts(loop):
    engine = loop(gamma=5)
    engine.submit([1], max_draft_tokens=2)
    engine.submit([1], max_draft_tokens=0)
    engine.submit([1])
    engine.step()
    assert [item.budget for item in engine.step().items] == [2, 0, 5]


def one(min_rows=1, **params):
    """A scheduler with one request in its first step."""
    ledger = PageLedger(8, 4)
    scheduler = BatchScheduler(ledger, Limits(max_len=16, min_rows=min_rows, chunk_rows=2), FixedGamma(0))
    scheduler.submit(Request(7, np.array([1, 2, 3], np.int32), SamplingParams(seed=0, **params)))
    return scheduler, ledger, scheduler.plan().items[0]


def test_a_failed_sequence_ends_with_its_message_and_frees_its_pages():
    scheduler, ledger, item = one()
    commit = failed(item, "the target gave NaN")
    ledger.commit(commit.seq, commit.kept)
    (event,) = scheduler.apply([commit])
    assert (event.request_id, event.finish, event.error, event.tokens) == (7, "error", "the target gave NaN", ())
    assert not event.decided
    assert ledger.free_pages == 8


def test_a_chunk_makes_no_event():
    scheduler, ledger, item = one()
    commit = fed_only(item)
    ledger.commit(commit.seq, commit.kept)
    assert scheduler.apply([commit]) == []
    state = scheduler.sequence(0)
    assert (state.kv_len, state.pending, state.round) == (2, 1, 0)


def test_a_commit_the_ledger_has_not_heard_of_is_refused():
    scheduler, _, item = one()
    with pytest.raises(EngineError, match="not given to the ledger"):
        scheduler.apply([fed_only(item)])


def test_a_decided_round_must_leave_one_token_pending():
    scheduler, ledger, item = one()
    verdict = Verdict((), 5, "bonus", 0)
    commit = cut(item, EMPTY_DRAFT, verdict, 16)  # of a chunk: rows are missing
    ledger.commit(commit.seq, commit.kept)
    with pytest.raises(EngineError, match="2 tokens pending"):
        scheduler.apply([commit])


def test_a_commit_for_a_sequence_cancelled_in_the_step_is_ignored():
    scheduler, ledger, item = one()
    scheduler.cancel(item.seq)
    assert scheduler.apply([fed_only(item)]) == []
    ledger.check()
    assert ledger.free_pages == 8


def test_tokens_of_a_plan_are_read_only_and_stay_as_they_were(loop):
    engine = loop(max_len=200, num_pages=64)
    engine.submit([1, 2, 3])
    seen = []
    while 0 not in engine.finish:
        (item,) = engine.step().items
        with pytest.raises(ValueError, match="read-only"):
            item.tokens[0] = 0
        seen.append((item.tokens, item.tokens.copy()))
    assert len(seen[-1][0]) > 150  # beyond the first buffer
    assert seen[-1][0].tolist() == [1, 2, 3, *engine.texts[0]][: len(seen[-1][0])]
    assert all((view == copy).all() for view, copy in seen)


def test_slots_serve_the_scheduler_as_pages_do(loop, plain):
    for ledger in (SlotLedger(3, 24), PageLedger(12, 6)):
        engine = loop(max_len=24, chunk_rows=3, max_sequences=8)
        engine.ledger = ledger
        engine.scheduler = BatchScheduler(ledger, engine.limits, FixedGamma(3))
        for number in range(6):
            engine.submit(range(number + 1), max_new_tokens=15)
        engine.run()
        for number in range(6):
            assert engine.texts[number] == plain(range(number + 1), 15, max_len=24)[0]


def test_features_travel_from_a_commit_to_the_next_item():
    scheduler, ledger, item = one()
    commit = fed_only(item)
    features = np.ones((2, 3), np.float32)
    object.__setattr__(commit, "features", features)
    ledger.commit(commit.seq, commit.kept)
    scheduler.apply([commit])
    assert scheduler.plan().items[0].features is features


def test_events_carry_the_counts_of_the_commit(loop):
    engine = loop(gamma=3, right=1.0)
    engine.submit([1], max_new_tokens=5)
    engine.step()
    plan = engine.scheduler.plan()
    commits = [engine.commit(item) for item in plan.items]
    engine.ledger.commit(0, commits[0].kept)
    (event,) = engine.scheduler.apply(commits)
    assert (event.num_drafted, event.num_tested, event.num_accepted, len(event.tokens)) == (3, 3, 3, 4)
    assert (event.finish, event.decided) == ("length", True)


def test_sequence_numbers_are_never_used_twice(loop):
    engine = loop()
    for _ in range(3):
        engine.submit([1], max_new_tokens=1)
        engine.run()
    assert sorted(engine.seq_of.values()) == [0, 1, 2]


class Recorder(FixedGamma):
    """A policy that remembers what it was told."""

    def __init__(self):
        super().__init__(2)
        self.seen, self.forgotten = [], []

    def observe(self, commits):
        self.seen += [commit.seq for commit in commits]

    def forget(self, seq):
        self.forgotten.append(seq)


def test_the_policy_hears_of_each_commit_and_of_each_end(loop):
    policy = Recorder()
    engine = loop(policy=policy, chunk_rows=2)
    finishing, cancelled = engine.submit([1, 2, 3], max_new_tokens=1), engine.submit([1, 2, 3])
    engine.step()
    engine.step()
    assert policy.seen == [0, 1, 0, 1]
    assert policy.forgotten == [engine.seq_of[finishing]]
    engine.scheduler.cancel(engine.seq_of[cancelled])
    assert policy.forgotten == [0, 1]
