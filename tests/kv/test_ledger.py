"""The ledger by hand: layouts small enough to draw, every refusal, and the speed the hot loop needs."""

import time

import numpy as np
import pytest

from draftproof.errors import EngineError
from draftproof.kv.ledger import PageLedger, SlotLedger


def places(moves):
    return [tuple(map(tuple, side.tolist())) for side in (moves.src, moves.dst)]


def test_reserve_gives_a_table_for_old_and_new_rows():
    ledger = PageLedger(num_pages=4, page_size=4)
    slots = ledger.reserve(7, 6)
    assert (slots.start, slots.rows, slots.copies) == (0, 6, ())
    assert slots.table.dtype == np.int32
    assert slots.table.tolist() == [0, 1]
    assert not ledger.commit(7, range(6))
    assert (ledger.kv_len(7), ledger.free_pages, ledger.pages_held(7)) == (6, 2, 2)
    slots = ledger.reserve(7, 3)  # rows 6, 7, 8: one more page
    assert (slots.start, slots.table.tolist()) == (6, [0, 1, 2])


def test_tables_are_read_only():
    table = PageLedger(2, 4).reserve(0, 1).table
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


def test_no_room_changes_nothing():
    ledger = PageLedger(2, 4)
    ledger.reserve(0, 4)
    ledger.commit(0, range(4))
    assert ledger.reserve(0, 5) is None
    assert ledger.reserve(1, 5) is None
    assert (ledger.kv_len(0), ledger.kv_len(1), ledger.free_pages) == (4, 0, 1)
    ledger.check()
    assert ledger.reserve(0, 4) is not None
    assert ledger.free_pages == 0


def test_keeping_nothing_frees_every_page():
    ledger = PageLedger(2, 4)
    ledger.reserve(0, 8)
    ledger.commit(0, ())
    assert (ledger.kv_len(0), ledger.free_pages) == (0, 2)
    ledger.check()


def test_a_tree_path_moves_rows_across_a_page_edge():
    ledger = PageLedger(8, 4)
    ledger.reserve(0, 3)
    ledger.commit(0, range(3))
    table = ledger.reserve(0, 6).table.tolist()  # positions 3..8
    moves = ledger.commit(0, (0, 2, 5))  # positions 3, 5, 8 become 3, 4, 5
    assert places(moves) == [
        ((table[1], 1), (table[2], 0)),
        ((table[1], 0), (table[1], 1)),
    ]
    assert (ledger.kv_len(0), ledger.pages_held(0)) == (6, 2)
    ledger.check()


@pytest.mark.parametrize("kept", [range(3), (0, 1, 2), [0, 1, 2]])
def test_rows_that_lie_together_move_nothing(kept):
    ledger = PageLedger(4, 2)
    ledger.reserve(0, 4)
    assert not ledger.commit(0, kept)
    assert (ledger.kv_len(0), ledger.free_pages) == (3, 2)


@pytest.mark.parametrize("kept", [range(5), (0, 4), (1, 0), (0, 0), (-1, 0), range(3, 5), range(3, 0, -1)])
def test_kept_rows_must_be_rising_rows_of_the_reserve(kept):
    ledger = PageLedger(4, 2)
    ledger.reserve(0, 4)
    with pytest.raises(EngineError, match=r"keeps|not rising"):
        ledger.commit(0, kept)


def test_a_reserve_needs_its_commit():
    ledger = PageLedger(4, 2)
    with pytest.raises(EngineError, match="no reserved rows"):
        ledger.commit(0, range(1))
    ledger.reserve(0, 1)
    with pytest.raises(EngineError, match="twice"):
        ledger.reserve(0, 1)
    ledger.commit(0, range(1))
    with pytest.raises(EngineError, match="no reserved rows"):
        ledger.commit(0, range(1))
    with pytest.raises(EngineError, match="at least one"):
        ledger.reserve(0, 0)


def test_release_takes_an_open_reserve_along_and_may_be_repeated():
    ledger = PageLedger(4, 2)
    ledger.reserve(0, 5)
    ledger.release(0)
    ledger.release(0)
    assert ledger.free_pages == 4
    ledger.check()


def test_a_fork_shares_until_one_of_the_two_writes():
    ledger = PageLedger(8, 4)
    ledger.reserve(0, 6)
    ledger.commit(0, range(6))
    ledger.fork(0, 1)
    assert (ledger.free_pages, ledger.kv_len(1)) == (6, 6)
    child = ledger.reserve(1, 1)  # writes into the half-filled page 1: its own copy, page 2
    assert (child.table.tolist(), child.copies) == ([0, 2], ((1, 2),))
    parent = ledger.reserve(0, 1)  # page 1 is the parent's alone by now
    assert (parent.table.tolist(), parent.copies) == ([0, 1], ())
    ledger.check()
    ledger.release(0)
    assert ledger.free_pages == 6  # page 0 is the child's too
    ledger.release(1)
    assert ledger.free_pages == 8
    ledger.check()


def test_the_parent_may_be_the_first_to_write():
    ledger = PageLedger(8, 4)
    ledger.reserve(0, 6)
    ledger.commit(0, range(6))
    ledger.fork(0, 1)
    assert ledger.pages_needed(0, 3) == 2  # a copy of page 1, and a page for row 8
    slots = ledger.reserve(0, 3)
    assert slots.copies == ((1, 2),)
    assert slots.table.tolist() == [0, 2, 3]
    assert ledger.reserve(1, 1).copies == ()


def test_full_pages_are_never_copied():
    ledger = PageLedger(4, 4)
    ledger.reserve(0, 8)
    ledger.commit(0, range(8))
    ledger.fork(0, 1)
    assert ledger.reserve(0, 1).copies == ()
    assert ledger.reserve(1, 1).copies == ()
    ledger.check()
    assert ledger.free_pages == 0


def test_a_copy_without_room_is_refused_and_changes_nothing():
    ledger = PageLedger(2, 4)
    ledger.reserve(0, 6)
    ledger.commit(0, range(6))
    ledger.fork(0, 1)
    assert ledger.reserve(1, 1) is None
    ledger.check()
    ledger.release(0)
    assert ledger.reserve(1, 1).copies == ()


def test_fork_refusals():
    ledger = PageLedger(4, 4)
    with pytest.raises(EngineError, match="can't be forked"):
        ledger.fork(0, 1)
    ledger.reserve(0, 1)
    with pytest.raises(EngineError, match="can't be forked"):
        ledger.fork(0, 1)
    ledger.commit(0, range(1))
    ledger.fork(0, 1)
    with pytest.raises(EngineError, match="exists"):
        ledger.fork(0, 1)


def test_a_slot_is_a_page_that_no_sequence_outgrows():
    ledger = SlotLedger(num_slots=2, max_len=10)
    assert ledger.max_rows == 10
    assert ledger.reserve(0, 10).table.tolist() == [0]
    ledger.commit(0, range(9))
    assert ledger.reserve(0, 2) is None  # the other slot is free, but a slot can't be continued elsewhere
    assert ledger.reserve(0, 1).start == 9
    ledger.check()


@pytest.mark.parametrize("arguments", [(0, 4), (4, 0), (4, 4, 0)])
def test_an_empty_ledger_is_refused(arguments):
    with pytest.raises(ValueError, match="at least one page"):
        PageLedger(*arguments)


def test_long_tables_grow():
    ledger = PageLedger(100, 1)
    for length in range(1, 101):
        table = ledger.reserve(0, 1).table
        assert len(set(table.tolist())) == length
        ledger.commit(0, range(1))
        ledger.check()


def _break_references(ledger):
    ledger._references[0] += 1


def _leak(ledger):
    ledger._free.pop()


def _free_twice(ledger):
    ledger._free.append(ledger._free[0])


def _use_twice(ledger):
    ledger._books[1].pages[0] = ledger._books[0].pages[0]


def _hold_too_many(ledger):
    ledger._books[0].append([ledger._take()])


def _lag(ledger):
    ledger._books[0].table[0] += 1


def _write_shared(ledger):
    ledger.fork(0, 2)
    ledger._books[2].open_rows = 1


@pytest.mark.parametrize(
    "fault", [_break_references, _leak, _free_twice, _use_twice, _hold_too_many, _lag, _write_shared]
)
def test_check_finds_each_planted_fault(fault):
    ledger = PageLedger(8, 4)
    for seq in (0, 1):
        ledger.reserve(seq, 6)
        ledger.commit(seq, range(6))
    ledger.check()
    fault(ledger)
    with pytest.raises(EngineError):
        ledger.check()


def test_reserve_and_commit_take_microseconds():
    """Once per sequence and step of 11 ms: under 10 us each. Best of 20 batches: a busy machine is no failure."""
    ledger = PageLedger(1024, 32)
    ledger.reserve(0, 200)
    ledger.commit(0, range(200))
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(100):
            ledger.reserve(0, 9)
            ledger.commit(0, range(1))
        best = min(best, (time.perf_counter() - begin) / 100)
    assert best < 20e-6
