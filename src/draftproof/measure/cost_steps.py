"""Timed engine steps: so many sequences, so many rows each, so much context.

Steps are run by the engine itself, so that a time holds everything a step costs: packing, the forward, judging,
committing. Two things are timed apart: the whole step without drafting (under a drafter that proposes meaningless
tokens, so that the rows of a step are known) and what a real drafter needs to propose.

Invariant: an engine is left without sequences, whatever happens.
Does not know: grids, files, what the times are for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftproof.engine.build import Built
from draftproof.engine.step import Engine
from draftproof.noise import PhiloxNoise
from draftproof.protocols import Drafter, Noise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Commit, Draft, Ids, Plan, Request, SamplingParams, StepItem, chain

CHUNK_ROWS = 256


class Filler:
    """Proposes as many tokens as it may: any tokens, the same for the same text. Nobody expects them to be accepted."""

    name = "filler"
    wants: frozenset[str] = frozenset()

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """`budget` tokens for each item."""
        return [chain(self._tokens(item)) for item in items]

    def _tokens(self, item: StepItem) -> Ids:
        rng = np.random.default_rng([item.seq, len(item.tokens)])
        return rng.integers(0, self._vocab_size, item.budget).astype(np.int32)

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to forget."""


class _Watched(BatchScheduler):
    """A scheduler whose last plan can be looked at."""

    last = Plan()

    def plan(self) -> Plan:
        """As ever; remembered."""
        self.last = super().plan()
        return self.last


@dataclass(frozen=True, slots=True)
class Step:
    """One step that decided a token for each of its sequences. rows: of all of them; seconds without drafting."""

    sequences: int
    rows: int
    context: float  # mean tokens of its sequences
    seconds: float
    draft_s: float
    tokens: int  # emitted


@dataclass(slots=True)
class Bench:
    """An engine of its own over a built target, with a draft length that can be turned."""

    built: Built
    drafter: Drafter
    max_sequences: int
    params: SamplingParams
    policy: FixedGamma = field(default_factory=lambda: FixedGamma(0))
    engine: Engine = field(init=False)
    _scheduler: _Watched = field(init=False)

    def __post_init__(self) -> None:
        target, ledger = self.built.engine.target, self.built.ledger
        limits = Limits(
            max_len=target.max_len,
            max_sequences=self.max_sequences,
            max_step_rows=1 << 20,
            chunk_rows=CHUNK_ROWS,
            min_rows=target.min_rows,
        )
        self._scheduler = _Watched(ledger, limits, self.policy)
        self.engine = Engine(target, self.drafter, self._scheduler, ledger, PhiloxNoise())

    def start(self, prompts: Sequence[Ids]) -> list[int]:
        """Submits prompts and runs until each has its first token; their sequence numbers."""
        engine = self.engine
        self.policy.gamma = 0
        requests = [Request(index, prompt, self.params, arrival=index) for index, prompt in enumerate(prompts)]
        seqs = [engine.submit(request) for request in requests]
        started: set[int] = set()
        while len(started) < len(prompts):
            started.update(event.request_id for event in engine.step() if event.tokens)
        return seqs

    def steps(self, count: int, gamma: int) -> list[Step]:
        """`count` steps of all running sequences at this draft length; fewer where they end."""
        self.policy.gamma = gamma
        return [step for step in (self.step() for _ in range(count)) if step is not None]

    def step(self) -> Step | None:
        """One step; None where it decided nothing (or fed a part of a prompt besides)."""
        engine, meter = self.engine, self.engine.meter
        if not engine.has_work:
            return None
        draft_before, tokens_before = meter.draft_s, meter.tokens
        begin = time.perf_counter()
        events = engine.step()
        seconds = time.perf_counter() - begin
        draft_s, items = meter.draft_s - draft_before, self._scheduler.last.items
        if not items or not all(item.decides for item in items):
            return None
        return Step(
            sequences=len(items),
            rows=len(items) + sum(event.num_drafted for event in events),
            context=float(np.mean([len(item.tokens) for item in items])),
            seconds=seconds - draft_s,
            draft_s=draft_s,
            tokens=meter.tokens - tokens_before,
        )

    def clear(self, seqs: Sequence[int]) -> None:
        """Ends these sequences."""
        for seq in seqs:
            self.engine.cancel(seq)
        self._scheduler.drain()
