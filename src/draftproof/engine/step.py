"""THE loop: plan, propose, verify, decide, cut, commit, emit. One step is one forward of the target.

Nothing that a later stage makes is stored for an earlier stage of the next step, except through the Commit. Keeping
rows *is* rolling back: what the ledger is not told to keep is gone.

Faults stay with their sequence: a row of NaN ends its own request with an error and leaves its batch mates alone.

Does not know: text, threads, how long anything takes beyond counting it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from draftproof.engine.meter import Meter
from draftproof.engine.pack import pack
from draftproof.errors import RowError
from draftproof.protocols import Drafter, KVCache, Noise, Scheduler, Target
from draftproof.rules import Nodes, decide_batch, verdict_logprobs
from draftproof.sched.stop import cut, failed, fed_only
from draftproof.types import (
    EMPTY_DRAFT,
    Commit,
    Draft,
    Event,
    FloatArray,
    Plan,
    Request,
    StepItem,
    TargetOutput,
    Verdict,
)


class _Scheduler(Scheduler, Protocol):
    max_len: int  # the context limit, or what the memory budget holds where that is less

    def check(self, request: Request) -> None: ...

    def abandon(self, plan: Plan) -> None: ...

    def drain(self) -> list[Event]: ...

    def fit(
        self, items: Sequence[StepItem], drafts: Sequence[Draft], like: Callable[[int], float]
    ) -> Sequence[Draft]: ...

    @property
    def has_work(self) -> bool: ...


class Engine:
    """Owns one target, one drafter and the state of all sequences. Not thread-safe: one owner calls it."""

    def __init__(self, target: Target, drafter: Drafter, scheduler: _Scheduler, ledger: KVCache, noise: Noise) -> None:
        self.target = target
        self.drafter = drafter
        self.scheduler = scheduler
        self.ledger = ledger
        self.noise = noise
        self.meter = Meter()

    def check(self, request: Request) -> None:
        """Raises InputError for what `submit` would refuse."""
        self.scheduler.check(request)

    def submit(self, request: Request) -> int:
        """Queues a request; returns its sequence number. Raises InputError for what can't run."""
        return self.scheduler.submit(request)

    def cancel(self, seq: int) -> None:
        """Ends a sequence at once; its pages are free when this returns."""
        self.scheduler.cancel(seq)
        self.drafter.forget(seq)

    @property
    def has_work(self) -> bool:
        """True while a sequence waits or runs, or an event is to be fetched."""
        return self.scheduler.has_work

    def step(self) -> list[Event]:
        """One iteration over the batch; the events since the last one.

        A step that breaks off (Ctrl-C, a device that fails) leaves every sequence with its tokens; the next one
        computes the lost rows again.
        """
        begin = time.perf_counter()
        plan = self.scheduler.plan()
        if not plan.items:
            return self.scheduler.drain()
        try:
            return self._run(plan, begin)
        except BaseException:
            self.scheduler.abandon(plan)
            raise

    def _run(self, plan: Plan, begin: float) -> list[Event]:
        planned = time.perf_counter()
        drafts = self._propose(plan.items)
        drafted = time.perf_counter()
        batch = pack(plan.items, drafts, plan.slots, self.target.packed_rows)
        self.target.copy_pages([pair for slots in plan.slots for pair in slots.copies])
        packed = time.perf_counter()
        output = self.target.verify(batch)
        verified = time.perf_counter()
        commits = self._decide(plan, drafts, output)
        if output.features is not None and "features" in self.drafter.wants:
            commits = _with_features(commits, plan.items, batch.offsets.tolist(), output.features)
        for commit in commits:
            self.target.move(self.ledger.commit(commit.seq, commit.kept))
        self.drafter.observe(commits)
        self.meter.observe(commits)
        events = self.scheduler.apply(commits)
        for commit in commits:
            if commit.finish is not None:
                self.drafter.forget(commit.seq)
        self.meter.draft_s += drafted - planned
        self.meter.forward_s += verified - packed
        self.meter.total_s += time.perf_counter() - begin
        return [*self.scheduler.drain(), *events]

    def _propose(self, items: Sequence[StepItem]) -> Sequence[Draft]:
        if not any(item.budget for item in items):
            return [EMPTY_DRAFT] * len(items)
        drafts = self.drafter.propose(items, self.noise)
        for item, draft in zip(items, drafts, strict=True):
            if len(draft) > item.budget:
                raise ValueError(f"drafter {self.drafter.name} proposed {len(draft)} nodes over {item.budget}")
        # What a width costs is the target's to say, where widths differ in more than their rows (`models.lanes`).
        return self.scheduler.fit(items, drafts, getattr(self.target, "rows_like", float))

    def _decide(self, plan: Plan, drafts: Sequence[Draft], output: TargetOutput) -> list[Commit]:
        verdicts = decide_batch(plan.items, drafts, output, self.target.vocab_size, self.noise)
        return [
            self._commit(item, draft, verdict, output, int(output.offsets[index]))
            for index, (item, draft, verdict) in enumerate(zip(plan.items, drafts, verdicts, strict=True))
        ]

    def _commit(
        self, item: StepItem, draft: Draft, verdict: Verdict | RowError | None, output: TargetOutput, first: int
    ) -> Commit:
        if verdict is None:
            return fed_only(item)
        if isinstance(verdict, RowError):
            return failed(item, str(verdict))
        commit = cut(item, draft, verdict, self.scheduler.max_len)
        if item.params.logprobs is None:
            return commit
        nodes = Nodes(item, draft, output.logits, first)
        return replace(commit, logprobs=verdict_logprobs(nodes, verdict, commit.tokens.tolist()))


def _with_features(
    commits: Sequence[Commit], items: Sequence[StepItem], offsets: Sequence[int], features: FloatArray
) -> list[Commit]:
    """Each commit with a copy of its kept rows' hidden states. features: [R, F] of the step's batch."""
    return [
        replace(commit, start=item.kv_len, features=features[np.array(commit.kept, np.int64) + first])
        for commit, item, first in zip(commits, items, offsets, strict=False)
    ]
