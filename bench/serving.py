"""python -m bench.serving: does leaving the draft length to the server pay, whatever the load?

    python -m bench.serving                    all loads, about eleven minutes; a group of bench.run, too
    python -m bench.serving --quick            a smoke run; its figures mean nothing and are kept apart
    python -m bench.serving --loads 8 16       the loads of so many streams
    python -m bench.serving --table            shows the file that is there

Closed loops: so many streams are kept busy from a list of requests, the next one comes when one has ended. (A batch of
as many requests as streams would end with its slowest member, and measure that; so would the end of a list, so ours are
compared while all streams are busy.) Greedy, demo model in int8, drafter
suffix. One process holds the engine; its draft policies take turns over the same requests: left to itself, off, and
each fixed length. openvino-genai's continuous batching gets the same requests at as many sequences at once.

Invariant: each load begins with policies that have learned nothing, after a warm-up that none of them remembers; the
order rotates. Writes bench/results/serving.json, every run with provenance.
Does not know: how an engine is called, which ratios are wanted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import demands, provenance, results, table
from bench.groups import GAMMAS, LOADS, SEED, SERVED_BATCHING, Load
from bench.turns import ForeignClock, IdleClock, Measured, command
from bench.worker import Worker, WorkerError
from bench.workloads import PROMPTS, Prompt, spread
from draftproof.models.source import resolve

NAME = "serving"
TITLE = "streams kept busy: draft lengths left to the server against off and fixed ones, greedy"
SCRATCH = provenance.ROOT / ".cache" / "bench"
OPTIONS = {"model": "demo", "drafter": "suffix", "weights": "int8"}
_WARM_UP_TOKENS = 12

Say = Callable[[str], None]
Requests = list[tuple[str, str]]  # bucket and prompt


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured. most_tokens: of a text, and requests no more than streams, where it is a smoke run."""

    repeats: int = 3
    most_tokens: int | None = None

    def of(self, load: Load) -> tuple[int, int, int]:
        """(repeats, requests of a run, tokens of a text)."""
        if self.most_tokens is not None:
            return 1, min(load.num_requests, load.streams), min(load.num_tokens, self.most_tokens)
        return max(1, round(self.repeats * load.repeats)), load.num_requests, load.num_tokens


def works(load: Load, num_requests: int) -> list[Requests]:
    """What one repeat asks: a list of requests, or for a lone request each prompt of the bucket by itself."""
    prompts = [p for p in PROMPTS if p.bucket == load.bucket] if load.bucket else list(spread(len(PROMPTS)))
    if num_requests == 1:
        return [_requests([prompt]) for prompt in prompts]
    return [_requests(itertools.islice(itertools.cycle(prompts), num_requests))]


def _requests(prompts: Iterator[Prompt] | list[Prompt]) -> Requests:
    return [(prompt.bucket, prompt.text) for prompt in prompts]


def _rotated(names: Sequence[str], by: int) -> list[str]:
    return [*names[by % len(names) :], *names[: by % len(names)]]


class _Session:
    """Our worker, the peer's where it is there, and what they have shown."""

    def __init__(self, stack: ExitStack, measured: Measured, logs: Path, say: Say) -> None:
        self.measured, self._say = measured, say
        ours = [sys.executable, "-m", "bench.serving_ours", json.dumps(OPTIONS)]
        self._ours = self._start(stack, "ours", ours, logs)
        self.workers = {"ours": self._ours}
        for name in GAMMAS:
            measured.configs[name] = {"engine": "ours", "gamma": GAMMAS[name], **self._ours.hello}

    def add_peer(self, stack: ExitStack, logs: Path) -> None:
        """openvino-genai; skipped where it is not installed."""
        name = SERVED_BATCHING.name
        try:
            worker = self._start(stack, name, command(SERVED_BATCHING, {"gguf": str(resolve("demo").path)}), logs)
        except WorkerError as error:
            self.measured.skipped[name] = str(error)
            self._say(f"skipped {name}: {error}\n")
            return
        self.workers[name] = worker
        self.measured.configs[name] = {"engine": SERVED_BATCHING.engine, **SERVED_BATCHING.options, **worker.hello}

    def _start(self, stack: ExitStack, name: str, what: list[str], logs: Path) -> Worker:
        self._say(f"{NAME}: starting {name}")
        return stack.enter_context(Worker(name, what, logs / f"{NAME}-{name.replace(' ', '_').replace(',', '')}.log"))

    def fresh(self) -> None:
        """Policies forget what they have learned, the peer its prompts."""
        for worker in self.workers.values():
            worker.ask("fresh")

    def ask(self, config: str, load: Load, requests: Requests, num_tokens: int) -> dict[str, Any]:
        """One run. Raises WorkerError."""
        if config in GAMMAS:
            more = {"streams": load.streams, "gamma": GAMMAS[config]}
            return self._ours.ask("run", requests=requests, num_tokens=num_tokens, **more)
        return self.workers[config].ask("run", prompts=[text for _, text in requests], num_tokens=num_tokens)


def measure(loads: Sequence[Load], amount: Amount, say: Say) -> Measured:
    """All loads. Raises WorkerError where our own worker fails; the peer is skipped then."""
    measured, logs = Measured(), SCRATCH / "logs"
    with ExitStack() as stack:
        session = _Session(stack, measured, logs, say)
        if any(load.peer for load in loads):
            session.add_peer(stack, logs)
        idle, foreign = IdleClock(session.workers), ForeignClock(session.workers)
        for load in loads:
            _measure_load(load, amount, session, idle, say)
        measured.configs["auto"]["memory_mib"] = session.workers["ours"].memory_mib()
        measured.idle_cpu_share, measured.foreign_cpu_share = idle.share, foreign.share
    return measured


def _measure_load(load: Load, amount: Amount, session: _Session, idle: IdleClock, say: Say) -> None:
    repeats, num_requests, num_tokens = amount.of(load)
    configs = [*load.policies, *(name for name in session.workers if name != "ours" and load.peer)]
    asked = works(load, num_requests)
    for config in configs:
        session.ask(config, load, asked[0][: load.streams], _WARM_UP_TOKENS)
    turn = 0
    session.fresh()
    for repeat in range(repeats):
        for number, requests in enumerate(asked):
            say(f"{NAME}: {load.name}{' ' + load.bucket if load.bucket else ''}, repeat {repeat + 1} of {repeats}")
            for config in _rotated(configs, turn):
                worker = "ours" if config in GAMMAS else config
                idle.settle(worker)
                with idle.others(worker):
                    answer = session.ask(config, load, requests, num_tokens)
                place = {"load": load.name, "bucket": load.bucket or "all", "prompt": number, "repeat": repeat}
                session.measured.runs.append({"config": config, **place, **answer})
            turn += 1


def content(amount: Amount, measured: Measured, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The result file."""
    return {
        "group": NAME,
        "title": TITLE,
        "provenance": origin,
        "repeats": amount.repeats,
        "smoke_run": amount.most_tokens is not None,
        "options": OPTIONS,
        "idle_cpu_share": measured.idle_cpu_share,
        "foreign_cpu_share": measured.foreign_cpu_share,
        "skipped": measured.skipped,
        "configs": measured.configs,
        "runs": measured.runs,
    }


def rates(runs: Sequence[Mapping[str, Any]], configs: Sequence[str]) -> str:
    """Tokens per second by load and policy, of these configurations."""
    parts = []
    for load in dict.fromkeys(run["load"] for run in runs):
        some = [run for run in runs if run["load"] == load]
        parts.append(
            f"-- {load}\n{table.rate_table(some, [c for c in configs if any(run['config'] == c for run in some)])}"
        )
    return "\n".join(parts)


def run(out: Path, started: dict[str, Any], amount: Amount, say: Say, loads: Sequence[Load] = LOADS) -> dict[str, Any]:
    """Measures, writes the file, returns what is in it. started: of `provenance.begin`."""
    measured = measure(loads, amount, say)
    found = content(amount, measured, provenance.end(started))
    results.write(out / f"{NAME}.json", found)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.serving", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="runs of each mixed load; the others a third more (3)")
    parser.add_argument("--loads", type=int, nargs="+", metavar="STREAMS", help="only those of so many streams")
    parser.add_argument("--quick", action="store_true", help="16 tokens, once: does everything run?")
    parser.add_argument("--table", action="store_true", help="measure nothing; show the file that is there")
    parser.add_argument("--out", type=Path, default=None, help="folder of the result file")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when what is wanted holds, or was a smoke run; 1 else, also where something was not measured."""
    from bench.run import RESULTS, Progress, group_report  # bench.run has this module as a group

    options = _parser().parse_args(arguments)
    out = options.out or (SCRATCH / "quick" if options.quick else RESULTS)
    loads = [load for load in LOADS if not options.loads or load.streams in options.loads]
    if options.table:
        found = results.read(out, [NAME])[NAME]
    else:
        amount = Amount(options.repeats, 16 if options.quick else None)
        found = run(out, provenance.begin(arguments, "bench.serving", SEED), amount, Progress(), loads)
    rows = demands.serving(found["runs"])
    print(f"\n{group_report(found)}\n\n== what is wanted\n{table.demand_table(rows)}")
    return 0 if options.quick or all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
