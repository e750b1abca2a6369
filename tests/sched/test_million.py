"""A million random steps of submit, cancel, finish and pre-empt on the host side: no page is left behind.

One operation is a submit, a cancel, or one sequence's part in one step. Pages are scarce, so that sequences lose theirs
all the time. The clock is the processor's, so that a busy machine is no failure. Full checks come every few hundred
steps: they cost more than the operations themselves.
"""

import random
import time

import numpy as np

from draftproof.kv.ledger import PageLedger
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler, Limits
from draftproof.sched.stop import cut, fed_only
from draftproof.types import EMPTY_DRAFT, Draft, Request, SamplingParams, Verdict, chain

OPERATIONS = 1_000_000
MOST_SECONDS = 60.0
GAMMA = 4
STOP = frozenset({0})

PARAMS = [SamplingParams(seed=0, max_new_tokens=cap, max_draft_tokens=drafts) for cap, drafts in ((5, 2), (40, None))]
PROMPTS = [np.arange(1, length + 1, dtype=np.int32) for length in (1, 7, 30, 90)]
CHAINS = [chain(np.arange(1, length + 1)) for length in range(GAMMA + 1)]
TREE = Draft(np.arange(1, 5, dtype=np.int32), np.array([0, 0, 1, 2], np.int32))  # 1 and 2 on the root, 3 on 1, 4 on 2
CHAIN_PATHS = [tuple(range(1, length + 1)) for length in range(GAMMA + 1)]
TREE_PATHS = [(), (1,), (2,), (1, 3), (2, 4)]


def decide(item, rng):
    """A random draft and a random verdict on it."""
    if not item.decides:
        return fed_only(item)
    token = 0 if rng.random() < 0.03 else 9
    if item.budget == GAMMA and rng.random() < 0.3:
        path = rng.choice(TREE_PATHS)
        return cut(item, TREE, Verdict(path, token, "correction", len(path)), 120)
    draft = CHAINS[item.budget] if item.budget else EMPTY_DRAFT
    path = CHAIN_PATHS[int(rng.random() * (len(draft) + 1))]
    return cut(item, draft, Verdict(path, token, "correction", len(path)), 120)


class Driver:
    def __init__(self):
        self.rng = random.Random(0)
        self.ledger = PageLedger(num_pages=100, page_size=8)
        self.scheduler = BatchScheduler(
            self.ledger, Limits(max_len=120, max_sequences=16, chunk_rows=24, max_step_rows=128), FixedGamma(GAMMA)
        )
        self.operations = self.preempted = 0
        self.finished = {"stop": 0, "length": 0, "cancelled": 0}
        self.submitted = 0
        self.live = set()  # here a request's id is its sequence number

    def submit(self):
        rng = self.rng
        request = Request(self.submitted, rng.choice(PROMPTS), rng.choice(PARAMS), STOP, self.submitted)
        self.live.add(self.scheduler.submit(request))
        self.submitted += 1
        self.operations += 1

    def cancel(self):
        seq = self.rng.choice(sorted(self.live))
        self.scheduler.cancel(seq)
        assert self.ledger.pages_held(seq) == 0
        self.operations += 1

    def step(self):
        waiting = self.scheduler.num_waiting
        plan = self.scheduler.plan()
        self.preempted += self.scheduler.num_waiting > waiting
        commits = [decide(item, self.rng) for item in plan.items]
        for commit in commits:
            self.ledger.commit(commit.seq, commit.kept)
        events = self.scheduler.apply(commits)
        for event in events + self.scheduler.drain():
            if event.finish is not None:
                self.finished[event.finish] += 1
                self.live.remove(event.request_id)
        self.operations += len(commits)
        return len(commits)


def test_a_million_steps_leave_no_page_behind():
    driver = Driver()
    begin = time.process_time()
    num_steps = 0
    while driver.operations < OPERATIONS:
        while driver.scheduler.num_waiting < 4:
            driver.submit()
        if driver.rng.random() < 0.15:
            driver.cancel()
        assert driver.step() > 0
        num_steps += 1
        if num_steps % 300 == 0:
            driver.ledger.check()
    while driver.scheduler.has_work:
        driver.step()
    seconds = time.process_time() - begin
    driver.ledger.check()
    assert driver.ledger.free_pages == driver.ledger.num_pages
    assert sum(driver.finished.values()) == driver.submitted
    assert min(driver.finished.values()) > 1000
    assert driver.preempted > 1000
    assert seconds < MOST_SECONDS
