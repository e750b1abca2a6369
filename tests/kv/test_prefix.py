"""Published prompts: who adopts what, when pages are given back, and that an adopted row is the row it stands for."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from draftproof.errors import EngineError
from draftproof.kv.ledger import PageLedger
from draftproof.kv.prefix import PrefixIndex


def ids(*tokens):
    return np.array(tokens, np.int32)


def fill(ledger, seq, prompt):
    """A prompt that is read whole, and published."""
    missing = len(prompt) - ledger.adopt(seq, prompt[:-1])
    ledger.reserve(seq, missing)
    ledger.commit(seq, range(missing))
    ledger.publish(seq, prompt)
    return missing


def test_a_prompt_that_begins_alike_takes_over_whole_pages():
    ledger = PageLedger(8, 4)
    assert fill(ledger, 0, ids(*range(10))) == 10
    assert ledger.adopt(1, ids(*range(10))) == 8
    assert (ledger.kv_len(1), ledger.pages_held(1), ledger.free_pages) == (8, 2, 5)
    ledger.check()
    slots = ledger.reserve(1, 2)
    assert (slots.start, slots.table.tolist()[:2], slots.copies) == (8, [0, 1], ())
    assert slots.table[2] != 2
    ledger.check()


@pytest.mark.parametrize(
    ("prompt", "rows"),
    [
        (ids(0, 1, 2, 3, 4, 5, 6), 4),
        (ids(0, 1, 2), 0),
        (ids(0, 1, 2, 9, 4, 5, 6, 7), 0),
        (ids(0, 1, 2, 3, 9, 5, 6, 7), 4),
        (ids(4, 5, 6, 7), 0),  # the second page's tokens, but not after the first page's
    ],
)
def test_no_page_whose_tokens_or_past_differ(prompt, rows):
    ledger = PageLedger(8, 4)
    fill(ledger, 0, ids(0, 1, 2, 3, 4, 5, 6, 7))
    assert ledger.adopt(1, prompt) == rows
    ledger.check()


def test_published_pages_outlive_their_sequence_until_the_room_is_needed():
    ledger = PageLedger(4, 4)
    fill(ledger, 0, ids(*range(9)))
    ledger.release(0)
    assert (ledger.free_pages, ledger.idle_pages) == (4, 2)
    ledger.check()
    assert fill(ledger, 1, ids(*range(9))) == 1
    ledger.release(1)
    ledger.reserve(2, 12)  # takes one of the two: the later page, so that the first is still found
    ledger.check()
    assert (ledger.free_pages, ledger.idle_pages) == (1, 1)
    assert ledger.adopt(3, ids(*range(9))) == 4
    assert ledger.free_pages == 0
    assert ledger.reserve(3, 1) is None  # a page that is read is not given back
    ledger.check()


def test_the_prompt_used_longest_ago_goes_first():
    ledger = PageLedger(4, 2)
    for seq, prompt in enumerate((ids(1, 1), ids(2, 2), ids(3, 3))):
        ledger.reserve(seq, 2)
        ledger.commit(seq, range(2))
        ledger.publish(seq, prompt)
        ledger.release(seq)
    ledger.adopt(7, ids(1, 1))
    ledger.release(7)
    ledger.reserve(8, 4)  # one free page, and the one of 2 2
    assert [ledger.adopt(9 + i, prompt) for i, prompt in enumerate((ids(1, 1), ids(2, 2), ids(3, 3)))] == [2, 0, 2]
    ledger.check()


def test_two_who_read_the_same_prompt_at_once_publish_it_once():
    ledger = PageLedger(8, 2)
    for seq in (0, 1):
        ledger.reserve(seq, 4)
        ledger.commit(seq, range(4))
    ledger.publish(0, ids(1, 2, 3, 4))
    ledger.publish(1, ids(1, 2, 3, 4))
    ledger.check()
    ledger.release(0)
    ledger.release(1)
    ledger.check()
    assert (ledger.free_pages, ledger.idle_pages) == (8, 2)


def test_what_is_not_kept_is_not_published_and_rows_are_not_adopted_over_rows():
    ledger = PageLedger(8, 2)
    with pytest.raises(EngineError, match="not kept"):
        ledger.publish(0, ids(1))
    ledger.reserve(0, 2)
    ledger.commit(0, range(1))
    with pytest.raises(EngineError, match="not kept"):
        ledger.publish(0, ids(1, 2))
    with pytest.raises(EngineError, match="begin anew"):
        ledger.adopt(0, ids(1, 2))


def test_an_index_without_idle_pages_gives_nothing_back():
    with pytest.raises(KeyError):
        PrefixIndex(2).give_back()


class PrefixMachine(RuleBasedStateMachine):
    """Row i of a prompt is tagged with the prompt's first i + 1 tokens; later rows with a number used once."""

    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.ledger = PageLedger(9, 2)
        self.rows = {}
        self.truth = {}
        self.next_seq = self.next_tag = 0

    def write(self, seq, tags):
        slots = self.ledger.reserve(seq, len(tags))
        if slots is None:
            return False
        self.ledger.check()
        for row, tag in enumerate(tags, start=slots.start):
            self.rows[int(slots.table[row // 2]), row % 2] = tag
        self.ledger.commit(seq, range(len(tags)))
        self.truth[seq] += tags
        return True

    @rule(target=sequences, prompt=st.lists(st.integers(0, 1), min_size=1, max_size=7), publishes=st.booleans())
    def new(self, prompt, publishes):
        self.next_seq += 1
        seq, line = self.next_seq, ids(*prompt)
        tags = [tuple(prompt[: i + 1]) for i in range(len(prompt))]
        free = self.ledger.free_pages
        rows = self.ledger.adopt(seq, line[:-1])
        assert rows < len(prompt)
        assert self.ledger.free_pages <= free
        self.truth[seq] = tags[:rows]
        if self.write(seq, tags[rows:]) and publishes:
            self.ledger.publish(seq, line)
        return seq

    @rule(seq=sequences, rows=st.integers(1, 3))
    def later(self, seq, rows):
        self.next_tag += 1
        self.write(seq, [self.next_tag] * rows)

    @rule(seq=consumes(sequences))
    def release(self, seq):
        self.ledger.release(seq)
        del self.truth[seq]

    @invariant()
    def every_row_is_the_one_it_stands_for(self):
        self.ledger.check()
        for seq, tags in self.truth.items():
            if tags:
                pages = self.ledger._books[seq].pages
                assert [self.rows[pages[row // 2], row % 2] for row in range(len(tags))] == tags

    def teardown(self):
        for seq in self.truth:
            self.ledger.release(seq)
        self.ledger.check()
        assert self.ledger.free_pages == 9


PrefixMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPrefixMachine = PrefixMachine.TestCase
