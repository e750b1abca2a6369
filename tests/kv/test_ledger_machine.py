"""The ledger against a slow truth: a sequence is a plain list; a store of tagged rows is read back after each call.

The same calls go to a paged and to a contiguous ledger; both must show the same rows.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from draftproof.kv.ledger import PageLedger, SlotLedger

MAX_LEN = 40


class Store:
    """Rows of tags, one tag a row, moved as a physical store moves keys and values."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.rows = np.full((ledger.num_pages, ledger.page_size), -1)
        self.tables = {}

    def write(self, slots, tags):
        for source, own in slots.copies:
            self.rows[own] = self.rows[source]
        for row, tag in enumerate(tags):
            page, offset = divmod(slots.start + row, self.ledger.page_size)
            self.rows[slots.table[page], offset] = tag

    def move(self, moves):
        for (page, offset), (to_page, to_offset) in zip(moves.src, moves.dst, strict=True):
            self.rows[to_page, to_offset] = self.rows[page, offset]

    def read(self, seq):
        ledger = self.ledger
        table = ledger._books[seq].table if seq in ledger._books else []
        return [int(self.rows[table[r // ledger.page_size], r % ledger.page_size]) for r in range(ledger.kv_len(seq))]


class LedgerMachine(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.paged, self.slotted = PageLedger(14, 4), SlotLedger(30, MAX_LEN)
        self.stores = [Store(self.paged), Store(self.slotted)]
        self.truth = {}
        self.next_seq = 0
        self.next_tag = 0

    @rule(target=sequences)
    def new(self):
        self.next_seq += 1
        self.truth[self.next_seq] = []
        return self.next_seq

    @rule(seq=sequences, rows=st.integers(1, 9), data=st.data())
    def step(self, seq, rows, data):
        rows = min(rows, MAX_LEN - len(self.truth[seq]))
        needed = self.paged.pages_needed(seq, rows) if rows else 0
        if rows == 0:
            return
        free = self.paged.free_pages
        slots = self.paged.reserve(seq, rows)
        assert (slots is None) == (needed > free)
        if slots is None:
            self.paged.check()
            assert self.paged.free_pages == free
            return
        assert self.paged.free_pages == free - needed
        other = self.slotted.reserve(seq, rows)
        assert (slots.start, slots.rows) == (other.start, other.rows) == (len(self.truth[seq]), rows)
        self.paged.check()
        tags = list(range(self.next_tag, self.next_tag + rows))
        self.next_tag += rows
        kept = self._kept(data, rows)
        for store, place in zip(self.stores, (slots, other), strict=True):
            store.write(place, tags)
            moves = store.ledger.commit(seq, kept)
            assert bool(moves) == (list(kept) != list(range(len(kept))))
            store.move(moves)
        self.truth[seq] += [tags[row] for row in kept]

    @staticmethod
    def _kept(data, rows):
        if data.draw(st.booleans()):
            return range(data.draw(st.integers(0, rows)))
        return tuple(sorted(data.draw(st.sets(st.integers(0, rows - 1)))))

    @rule(target=sequences, parent=sequences)
    def fork(self, parent):
        self.next_seq += 1
        if not self.truth[parent] or len(self.truth) > 25:
            self.truth[self.next_seq] = []
            return self.next_seq
        free = self.paged.free_pages
        for store in self.stores:
            store.ledger.fork(parent, self.next_seq)
        assert self.paged.free_pages == free
        self.truth[self.next_seq] = list(self.truth[parent])
        return self.next_seq

    @rule(seq=consumes(sequences), reserving=st.booleans())
    def release(self, seq, reserving):
        if reserving and len(self.truth[seq]) < MAX_LEN:
            self.paged.reserve(seq, 1)
        for store in self.stores:
            store.ledger.release(seq)
        del self.truth[seq]

    @invariant()
    def every_row_is_where_it_belongs(self):
        for store in self.stores:
            store.ledger.check()
            assert {seq: store.read(seq) for seq in self.truth} == self.truth

    def teardown(self):
        for seq in self.truth:
            for store in self.stores:
                store.ledger.release(seq)
        for store in self.stores:
            store.ledger.check()
            assert store.ledger.free_pages == store.ledger.num_pages


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
