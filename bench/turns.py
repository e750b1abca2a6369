"""One group, measured: workers start, take turns, and every run is kept.

    repeat 1: prompt 0: A B C   prompt 1: B C A   prompt 2: C A B ...   repeat 2: ...

Invariant: one worker works at a time; the order rotates, so that none always follows the same neighbour; at the start
of each repeat all forget what they kept. How much processor time the idle ones took meanwhile is measured and kept.

Does not know: statistics, what the runs will show.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import stats
from bench.environments import ENVIRONMENTS
from bench.groups import Config, Group
from bench.worker import Worker, WorkerError
from bench.workloads import PROMPTS, Prompt

BATCH = 8
_SETTLE_S = 0.1  # how long idle workers must have used no processor time before the next turn
_SETTLE_MOST_S = 3.0  # engines spin on after their turn: OpenMP threads up to 0.2 s, vLLM's queue readers 1 s

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of a group is measured, and what its workers need."""

    repeats: int
    num_tokens: int
    prompts: tuple[Prompt, ...]
    models: Mapping[str, str]  # "folder" and "gguf": the demo model in both forms
    logs: Path


@dataclass(slots=True)
class Measured:
    """What came of a group."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    idle_cpu_share: float = 0.0  # processor seconds per second: workers whose turn it was not
    foreign_cpu_share: float = 0.0  # everybody else on this machine


@dataclass(frozen=True, slots=True)
class Turn:
    """One question, put to all workers one after the other."""

    bucket: str
    prompt: int  # number of the prompt, or of the window
    op: str
    request: Mapping[str, Any]


def turns(group: Group, plan: Plan) -> list[Turn]:
    """The questions of one repeat."""
    if group.mode == "ttft":
        return [Turn(p.bucket, p.index, "first_token", {"prompt": p.text, "num_tokens": 4}) for p in plan.prompts]
    if group.mode == "batch":
        texts = [[prompt.text for prompt in window] for window in windows(plan.prompts)]
        return [
            Turn(stats.ALL, number, "run", {"prompts": window, "num_tokens": plan.num_tokens})
            for number, window in enumerate(texts)
        ]
    extra = {"sampling": dict(group.sampling)} if group.sampling else {}
    return [
        Turn(p.bucket, p.index, "run", {"prompts": [p.text], "num_tokens": plan.num_tokens, **extra})
        for p in plan.prompts
    ]


def windows(prompts: Sequence[Prompt]) -> list[tuple[Prompt, ...]]:
    """Eight prompts at a time, going round the circle in steps of four: of twelve prompts, each is in two windows."""
    circle = (*prompts, *PROMPTS)[: max(BATCH, len(prompts))]
    return [
        tuple(circle[(start + offset) % len(circle)] for offset in range(BATCH))
        for start in range(0, len(circle), BATCH // 2)
    ][: max(1, len(prompts) // 4)]


def command(config: Config, models: Mapping[str, str]) -> list[str]:
    """The worker's command line. Raises WorkerError where its environment is missing."""
    if config.engine == "ours":
        return [sys.executable, "-m", "bench.ours", json.dumps(dict(config.options))]
    python = sys.executable
    if config.environment is not None:
        environment = ENVIRONMENTS[config.environment]
        if not environment.is_there:
            raise WorkerError(f"not installed: python -m bench.run --install {environment.name}")
        python = str(environment.python)
    options = {"model": models[config.model or "gguf"], "threads": os.cpu_count() or 1, **config.options}
    return [python, "-m", "bench.peers", config.engine, json.dumps(options)]


def measure(group: Group, plan: Plan, say: Say) -> Measured:
    """Runs the whole group; a worker that fails is skipped from there on, and its reason kept."""
    measured = Measured()
    with ExitStack() as stack:
        workers = _start(group, plan, stack, measured, say)
        clock, foreign = IdleClock(workers), ForeignClock(workers)
        repeats = max(1, round(plan.repeats * group.repeats))
        for repeat in range(repeats):
            _each(workers, measured, say, lambda worker: worker.ask("fresh"))
            for number, turn in enumerate(turns(group, plan)):
                say(f"{group.name}: repeat {repeat + 1} of {repeats}, {turn.bucket} {turn.prompt}")
                for name in _rotated(list(workers), number):
                    _take(workers, name, turn, repeat, clock, measured, say)
        for name, worker in workers.items():
            measured.configs[name]["memory_mib"] = worker.memory_mib()
        measured.idle_cpu_share, measured.foreign_cpu_share = clock.share, foreign.share
    return measured


def _start(group: Group, plan: Plan, stack: ExitStack, measured: Measured, say: Say) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    for config in group.configs:
        say(f"{group.name}: starting {config.name}")
        log = plan.logs / f"{group.name}-{config.name.replace(' ', '_').replace(',', '')}.log"
        begin = time.perf_counter()
        try:
            worker = stack.enter_context(Worker(config.name, command(config, plan.models), log))
        except WorkerError as error:
            _skip(config.name, error, measured, say)
            continue
        workers[config.name] = worker
        hello = {key: value for key, value in worker.hello.items() if key != "ready"}
        measured.configs[config.name] = {
            "engine": config.engine,
            "options": dict(config.options),
            "start_s": round(time.perf_counter() - begin, 2),
            **hello,
        }
    return workers


def _skip(name: str, error: WorkerError, measured: Measured, say: Say) -> None:
    measured.skipped[name] = str(error)
    say(f"skipped {name}: {error}\n")


def _each(workers: dict[str, Worker], measured: Measured, say: Say, do: Callable[[Worker], Any]) -> None:
    for name in list(workers):
        try:
            do(workers[name])
        except WorkerError as error:
            _drop(workers, name, error, measured, say)


def _drop(workers: dict[str, Worker], name: str, error: WorkerError, measured: Measured, say: Say) -> None:
    """A worker that failed once is not asked again; what it has shown before stays."""
    workers.pop(name).close()
    _skip(name, error, measured, say)


def _take(
    workers: dict[str, Worker],
    name: str,
    turn: Turn,
    repeat: int,
    clock: IdleClock,
    measured: Measured,
    say: Say,
) -> None:
    clock.settle(name)
    try:
        with clock.others(name):
            answer = workers[name].ask(turn.op, **turn.request)
    except WorkerError as error:
        _drop(workers, name, error, measured, say)
        return
    measured.runs.append(
        {"config": name, "bucket": turn.bucket, "prompt": turn.prompt, "repeat": repeat, **answer},
    )


def _rotated(names: Sequence[str], by: int) -> Iterator[str]:
    if names:
        by %= len(names)
        yield from (*names[by:], *names[:by])


class IdleClock:
    """Processor time of those that should be asleep, over the time they should have been."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = workers
        self._cpu_s = 0.0
        self._wall_s = 0.0

    def settle(self, name: str) -> None:
        """Waits until all but `name` are asleep, but not for ever."""
        deadline = time.monotonic() + _SETTLE_MOST_S
        used, before = self.used(name), -1.0
        while used != before and time.monotonic() < deadline:
            time.sleep(_SETTLE_S)
            used, before = self.used(name), used

    def others(self, name: str) -> IdleTurn:
        """A context in which only `name` is to work."""
        return IdleTurn(self, name)

    def used(self, name: str) -> float:
        """Processor seconds of all but `name` so far."""
        return sum(worker.cpu_seconds() for other, worker in self._workers.items() if other != name)

    def add(self, cpu_s: float, wall_s: float) -> None:
        """One turn's sums."""
        self._cpu_s += cpu_s
        self._wall_s += wall_s

    @property
    def share(self) -> float:
        """Processor seconds of the idle ones per second of measuring; 0.01 is a hundredth of one core."""
        return round(self._cpu_s / self._wall_s, 4) if self._wall_s else 0.0


class ForeignClock:
    """Processor time of the whole machine (stolen time included) that is neither the workers' nor the runner's."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = dict(workers)  # a worker that is dropped later stays ours
        self._begin, self._before = time.perf_counter(), self._foreign()

    def _foreign(self) -> float:
        whole, own = psutil.cpu_times(), psutil.Process().cpu_times()
        parts = ("user", "nice", "system", "irq", "softirq", "steal")
        busy = sum(getattr(whole, name, 0.0) for name in parts)
        return busy - own.user - own.system - sum(worker.cpu_seconds() for worker in self._workers.values())

    @property
    def share(self) -> float:
        """Seconds per second since the start; 0.01 is a hundredth of one core."""
        return round(max(0.0, (self._foreign() - self._before) / (time.perf_counter() - self._begin)), 4)


class IdleTurn:
    def __init__(self, clock: IdleClock, name: str) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        self._before, self._begin = self._clock.used(self._name), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._begin
        self._clock.add(max(0.0, self._clock.used(self._name) - self._before), wall)
