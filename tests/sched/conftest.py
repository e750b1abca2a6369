"""A host-side loop without a model: a scripted target and drafter drive scheduler, ledger and cut as an engine."""

from collections import defaultdict

import numpy as np
import pytest

from draftproof.kv.ledger import PageLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, fed_only
from draftproof.types import EMPTY_DRAFT, Request, SamplingParams, Verdict, chain


def successor(tokens):
    """The target of these tests: what follows depends on the last token and on how long the text is."""
    return (3 * int(tokens[-1]) + len(tokens)) % 97


class Loop:
    """One engine without a model. `guess(tokens, rng) -> token` is the drafter; the target is `successor`."""

    def __init__(self, num_pages=64, page_size=4, gamma=3, policy=None, seed=0, right=0.7, **limits):
        self.ledger = PageLedger(num_pages, page_size)
        self.limits = Limits(**{"max_len": 64, "min_rows": 2, **limits})
        self.scheduler = BatchScheduler(self.ledger, self.limits, policy or FixedGamma(gamma))
        self.rng = np.random.default_rng(seed)
        self.right = right  # chance that a guess is the target's token
        self.texts = defaultdict(list)  # by request id
        self.finish = {}
        self.passes = defaultdict(int)
        self.seq_of = {}
        self.num_requests = 0

    def submit(self, prompt, *, stop_ids=(), arrival=None, **params):
        """A request with ids as they come; returns its id."""
        number = self.num_requests
        request = Request(
            id=number,
            prompt=np.asarray(prompt, np.int32),
            params=SamplingParams(seed=0, **{"max_new_tokens": None, **params}),
            stop_ids=frozenset(stop_ids),
            arrival=number if arrival is None else arrival,
        )
        self.seq_of[number] = self.scheduler.submit(request)
        self.num_requests += 1
        return number

    def draft(self, item):
        """item.budget guesses, each right with chance `right`."""
        if not item.budget:
            return EMPTY_DRAFT
        tokens = item.tokens.tolist()
        for _ in range(item.budget):
            wrong = self.rng.random() >= self.right
            tokens.append(successor(tokens) + int(wrong))
        return chain(tokens[len(item.tokens) :])

    @staticmethod
    def verify(item, draft):
        """Greedy: accept while the draft is what the target says."""
        tokens = item.tokens.tolist()
        for node, token in enumerate(draft.tokens.tolist(), start=1):
            if token != successor(tokens):
                return Verdict(tuple(range(1, node)), successor(tokens), "correction", node)
            tokens.append(token)
        return Verdict(tuple(range(1, len(draft) + 1)), successor(tokens), "bonus", len(draft))

    def commit(self, item):
        if not item.decides:
            assert item.budget == 0
            return fed_only(item)
        draft = self.draft(item)
        return cut(item, draft, self.verify(item, draft), self.scheduler.max_len)

    def step(self):
        """One engine step; returns its plan."""
        plan = self.scheduler.plan()
        self.check_plan(plan)
        commits = [self.commit(item) for item in plan.items]
        for commit in commits:
            self.ledger.commit(commit.seq, commit.kept)
        self.deliver(self.scheduler.apply(commits) + self.scheduler.drain())
        self.ledger.check()
        return plan

    def check_plan(self, plan):
        """What holds for every plan."""
        limits = self.limits
        assert plan.items or not (self.scheduler.num_running or self.scheduler.num_waiting)
        assert sum(slots.rows for slots in plan.slots) <= limits.max_step_rows
        assert self.scheduler.num_running == len({item.seq for item in plan.items}) <= limits.max_sequences or any(
            item.pending > 1 for item in plan.items
        )
        for item, slots in zip(plan.items, plan.slots, strict=True):
            assert 1 <= item.feed <= item.pending
            assert item.feed <= limits.chunk_rows
            assert slots.start == item.kv_len == self.ledger.kv_len(item.seq)
            assert slots.rows == max(item.feed + item.budget, limits.min_rows)
            assert slots.start + slots.rows <= self.scheduler.max_len + max(0, limits.min_rows - 2)
            assert slots.rows + slots.start <= len(slots.table) * self.ledger.page_size
            assert item.budget == 0 or item.feed == item.pending == 1

    def deliver(self, events):
        for event in events:
            assert event.request_id not in self.finish, "an event after the end"
            self.texts[event.request_id] += event.tokens
            self.passes[event.request_id] += event.decided
            if event.finish is not None:
                self.finish[event.request_id] = event.finish

    def run(self, most=10_000):
        """Steps until nothing is left; returns the plans."""
        plans = []
        while self.scheduler.has_work:
            plans.append(self.step())
            assert len(plans) < most, "no progress"
        assert self.ledger.free_pages == self.ledger.num_pages
        return plans


@pytest.fixture(scope="session")
def loop():
    """The class, to be built with the case's own limits."""
    return Loop


@pytest.fixture(scope="session")
def plain():
    """The one-token loop: `plain(prompt, cap, max_len, stop_ids)` gives text and finish."""

    def run(prompt, cap=None, max_len=64, stop_ids=()):
        tokens, text = list(prompt), []
        while cap is None or len(text) < cap:
            tokens.append(successor(tokens))
            text.append(tokens[-1])
            if text[-1] in stop_ids:
                return text, "stop"
            if len(tokens) == max_len:
                return text, "length"
        return text, "length"

    return run
