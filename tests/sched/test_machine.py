"""Any order of submit, step and cancel: invariants after each call, texts of the plain loop, no page left behind."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

MAX_LEN = 30


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self, loop, plain):
        super().__init__()
        self.loop, self.plain = loop, plain
        self.wanted = {}
        self.cancelled = set()

    @initialize(
        num_pages=st.integers(3, 24),
        page_size=st.integers(2, 7),
        gamma=st.integers(0, 6),
        min_rows=st.integers(1, 3),
        max_sequences=st.integers(1, 5),
        chunk_rows=st.integers(1, 12),
        extra_rows=st.integers(0, 20),
        right=st.sampled_from([0.0, 0.6, 1.0]),
        prefix_cache=st.booleans(),  # all prompts begin alike
    )
    def start(self, num_pages, page_size, gamma, min_rows, max_sequences, chunk_rows, extra_rows, right, prefix_cache):
        self.engine = self.loop(
            num_pages=num_pages,
            page_size=page_size,
            gamma=gamma,
            right=right,
            max_len=MAX_LEN,
            min_rows=min_rows,
            max_sequences=max_sequences,
            chunk_rows=chunk_rows,
            max_step_rows=max_sequences * min_rows + extra_rows,
            prefix_cache=prefix_cache,
        )

    @rule(length=st.integers(1, 20), cap=st.none() | st.integers(0, 15), stop=st.integers(0, 96))
    def submit(self, length, cap, stop):
        limit = self.engine.scheduler.max_len
        prompt = list(range(min(length, limit - 1)))
        if not prompt:
            return
        number = self.engine.submit(prompt, max_new_tokens=cap, stop_ids={stop, stop + 1})
        self.wanted[number] = self.plain(prompt, cap, limit, {stop, stop + 1})

    @rule(steps=st.integers(1, 4))
    def step(self, steps):
        for _ in range(steps):
            self.engine.step()

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def cancel(self, data):
        number = data.draw(st.sampled_from(sorted(self.wanted)))
        if number not in self.engine.finish:
            self.cancelled.add(number)
        self.engine.scheduler.cancel(self.engine.seq_of[number])
        assert self.engine.ledger.pages_held(self.engine.seq_of[number]) == 0
        self.engine.ledger.check()

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        self.engine.run()
        assert set(self.engine.finish) == set(self.wanted)
        for number, (text, finish) in self.wanted.items():
            got = self.engine.texts[number]
            if self.engine.finish[number] == "cancelled":
                assert number in self.cancelled
                assert got == text[: len(got)]
            else:
                assert (got, self.engine.finish[number]) == (text, finish)


def test_any_order_of_calls(loop, plain):
    run_state_machine_as_test(
        lambda: SchedulerMachine(loop, plain),
        settings=settings(max_examples=120, stateful_step_count=30, deadline=None),
    )
