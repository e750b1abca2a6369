"""The cost curve of a device: steps of the target over sequences, rows and context, proposals of each drafter, a check.

A device's speed wanders. So nothing is measured in one go: every pass visits all points, and two pieces of real
decoding with each drafter beside them, and a point's time is the median over all passes. A step of the width that was
just run is cheaper than one of another, and how often drafts change the width is the drafter's own doing: what its
first piece of decoding took beyond the points is added to the cost of its proposals. The check then asks whether the
curve foretells the seconds that the second piece took, which had no part in it.

A draft head ends a chain that is too unsure. Its points are of chains that do not: a proposal of n tokens is its first
forward, over the rows that the last round left it, and n - 1 of single rows; one of no token is the first forward, too.

Invariant: the same grid gives the same points in the same order; only times differ.
Does not know: the command line, plans, where the file goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftproof.drafters.told import unlimited
from draftproof.engine.build import Built
from draftproof.errors import InvalidParams
from draftproof.measure.cost_steps import Bench, Filler, Step
from draftproof.planner.cost import FORMAT, CostCurve
from draftproof.protocols import Drafter
from draftproof.types import Ids, SamplingParams

_WARM = 2  # steps of a new shape that are not counted
_STEPS = 6
_CHECK_TOKENS = 48
_CHECK_GAMMA = 4
WITHIN = 0.10  # of the measured time: what the check allows

Place = tuple[int, int, int]  # sequences, rows or tokens, context


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the curve is measured. max_rows: most rows of one step; max_prompt: most tokens of all prompts together."""

    sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    rows: tuple[int, ...] = (1, 2, 3, 5, 9)
    contexts: tuple[int, ...] = (128, 512)
    tokens: tuple[int, ...] = (1, 4, 8)
    passes: int = 3
    max_rows: int = 96
    max_prompt: int = 4096

    def __post_init__(self) -> None:
        for name in ("sequences", "rows", "contexts", "tokens"):
            values = getattr(self, name)
            if not values or min(values) < 1 or list(values) != sorted(set(values)):
                raise InvalidParams(f"{name} must be rising whole numbers from 1, got {values!r}")
        if self.rows[0] != 1 or len(self.rows) < 2:
            raise InvalidParams(f"rows must begin with 1, a plain step, and have more than that, got {self.rows!r}")
        if self.passes < 1:
            raise InvalidParams(f"passes must be at least 1, got {self.passes!r}")

    @property
    def slack(self) -> int:
        """Tokens that a sequence may grow by while it is measured, drafts included."""
        return self._num_steps * (1 + max(self.rows[-1], self.tokens[-1], _CHECK_GAMMA))

    @property
    def _num_steps(self) -> int:
        """Most steps of one sequence."""
        return 1 + max(len(self.rows) * (_WARM + _STEPS), len(self.tokens) * (1 + _STEPS), _CHECK_TOKENS)

    def longest(self, name: str, slack: int) -> int:
        """The largest of "rows" or "tokens" for which `slack` would do; 0 where lowering it alone does not help."""
        other = self.tokens if name == "rows" else self.rows
        most = slack // self._num_steps - 1
        return most if most >= max(other[-1], _CHECK_GAMMA) else 0

    def loads(self, context: int) -> list[int]:
        """Numbers of sequences at a context; the first always."""
        return [load for load in self.sequences if load == self.sequences[0] or load * context <= self.max_prompt]

    def rows_at(self, load: int) -> list[int]:
        """Rows of each sequence at a load; the two fewest always."""
        return [rows for rows in self.rows if rows <= self.rows[1] or rows * load <= self.max_rows]


@dataclass(slots=True)
class Times:
    """Milliseconds seen, by place, and the steps of real decoding by drafter and load."""

    target: dict[Place, list[float]] = field(default_factory=lambda: defaultdict(list))
    drafters: dict[str, dict[Place, list[float]]] = field(default_factory=dict)
    learning: dict[tuple[str, int], list[Step]] = field(default_factory=lambda: defaultdict(list))
    checking: dict[tuple[str, int], list[Step]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: built engines by label (all over one target; the first one's is used for it), and a text."""

    engines: dict[str, Built]  # at least one
    text: Ids  # tokens that prompts are cut from
    params: SamplingParams

    def prompts(self, count: int, length: int) -> list[Ids]:
        """`count` different prompts of `length` tokens: the text, begun elsewhere each time."""
        text = np.resize(self.text, max(len(self.text), length))
        shifts = np.linspace(0, len(text), count, endpoint=False).astype(int)
        return [np.roll(text, -int(shift))[:length].astype(np.int32) for shift in shifts]


def num_stages(grid: Grid, num_drafters: int) -> int:
    """How often `measure_costs` will report."""
    places = sum(len(grid.loads(context)) for context in grid.contexts)
    return grid.passes * (places * (1 + num_drafters) + num_drafters * len(check_loads(grid)))


def check_loads(grid: Grid) -> list[int]:
    """Loads at which the check decodes: one stream, and the largest of up to eight."""
    return sorted({grid.sequences[0], max([load for load in grid.sequences if load <= 8] or grid.sequences[:1])})


def measure_costs(
    subject: Subject, grid: Grid, report: Callable[[str], None], drafters: Sequence[str]
) -> dict[str, Any]:
    """The cost file's "format", "target", "drafters" and "check".

    report: called with a line at each of `num_stages` stages. drafters: labels, of subject.engines, to be measured.
    """
    times = Times(drafters={label: defaultdict(list) for label in drafters})
    first = next(iter(subject.engines.values()))
    plain = Bench(first, Filler(first.engine.target.vocab_size), max(grid.sequences), subject.params)
    benches = {label: _bench(subject.engines[label], grid, subject.params) for label in drafters}
    for number in range(grid.passes):
        for context in grid.contexts:
            for load in grid.loads(context):
                where = f"pass {number + 1} of {grid.passes}, {load} x {context} tokens"
                report(f"{where}: target")
                _target_points(plain, subject, grid, (load, context), times)
                for label, bench in benches.items():
                    report(f"{where}: {label}")
                    _draft_points(bench, subject, grid, (load, context), times.drafters[label])
        for label, bench in benches.items():
            for load in check_loads(grid):
                report(f"pass {number + 1} of {grid.passes}: decoding with {label}, {load} at once")
                prompts = subject.prompts(2 * load, grid.contexts[0])
                times.learning[label, load] += _decode(bench, prompts[::2])
                times.checking[label, load] += _decode(bench, prompts[1::2])
    found = {
        "format": FORMAT,
        "target": _points(times.target, "rows"),
        "drafters": {label: _points(points, "tokens") for label, points in times.drafters.items()},
    }
    heads = [label for label, bench in benches.items() if _is_head(bench.drafter)]
    _add_changes(found, times.learning, heads)
    return {**found, "check": check(CostCurve.from_json(found), times.checking)}


def _is_head(drafter: Drafter) -> bool:
    return "features" in drafter.wants


def _add_changes(
    found: dict[str, Any], learning: dict[tuple[str, int], list[Step]], heads: Collection[str] = ()
) -> None:
    """Adds to each drafter's points what a step with drafts took in decoding beyond the points, at the nearest load.

    A proposal of no token, which changes no width, gets a point of its own. heads: labels of draft heads, which have
    run once before they know that they have none.
    """
    curve = CostCurve.from_json(found)
    for label, points in found["drafters"].items():
        more = {load: _beyond(curve, label, steps) for (name, load), steps in learning.items() if name == label}
        for place in sorted({(point["sequences"], point["context"]) for point in points}):
            here = [point for point in points if (point["sequences"], point["context"]) == place]
            none = curve.draft(label, place[0], int(label in heads), place[1])
            points.append(here[0] | {"tokens": 0, "ms": round(max(0.0, none), 4)})
            extra = more[min(more, key=lambda load: abs(load - place[0]))] if more else 0.0
            for point in here:
                point["ms"] = round(point["ms"] + extra, 4)
        points.sort(key=lambda point: (point["context"], point["sequences"], point["tokens"]))


def _beyond(curve: CostCurve, label: str, steps: Sequence[Step]) -> float:
    """Milliseconds that a step with drafts took beyond what the curve says, on average; at least 0."""
    drafting = [step for step in steps if step.rows > step.sequences]
    if not drafting:
        return 0.0
    beyond = sum(1e3 * (step.seconds + step.draft_s) - _foretold(curve, label, step) for step in drafting)
    return max(0.0, beyond / len(drafting))


def _bench(built: Built, grid: Grid, params: SamplingParams) -> Bench:
    return Bench(built, built.engine.drafter, max(grid.sequences), params)


def _target_points(bench: Bench, subject: Subject, grid: Grid, at: tuple[int, int], times: Times) -> None:
    load, context = at
    rows = grid.rows_at(load)
    seqs = bench.start(subject.prompts(load, context))
    try:
        for number in rows:
            for step in bench.steps(_WARM + _STEPS, number - 1)[_WARM:]:
                times.target[load, number, context].append(1e3 * step.seconds)
    finally:
        bench.clear(seqs)


def _draft_points(
    bench: Bench, subject: Subject, grid: Grid, at: tuple[int, int], times: dict[Place, list[float]]
) -> None:
    load, context = at
    seqs = bench.start(subject.prompts(load, context))
    try:
        with unlimited(bench.drafter) if _is_head(bench.drafter) else nullcontext():
            bench.steps(1, grid.tokens[0])  # a drafter reads the prompt before its first draft; that is paid once
            for tokens in grid.tokens:
                for step in bench.steps(1 + _STEPS, tokens)[1:]:
                    times[load, tokens, context].append(1e3 * step.draft_s)
    finally:
        bench.clear(seqs)


def _decode(bench: Bench, prompts: Sequence[Ids]) -> list[Step]:
    """A piece of real decoding; its first step, in which a drafter reads the prompt, is left out."""
    seqs = bench.start(prompts)
    try:
        bench.steps(1, _CHECK_GAMMA)
        steps: list[Step] = []
        while sum(step.tokens for step in steps) < _CHECK_TOKENS * len(prompts):
            more = bench.steps(1, _CHECK_GAMMA)
            if not more:
                break
            steps += more
        return steps
    finally:
        bench.clear(seqs)


def _points(times: dict[Place, list[float]], length: str) -> list[dict[str, Any]]:
    order = sorted(times, key=lambda place: (place[2], place[0], place[1]))
    return [
        {
            "sequences": load,
            length: size,
            "context": context,
            "ms": round(float(np.median(times[load, size, context])), 4),
            "error": _error(times[load, size, context]),
        }
        for load, size, context in order
    ]


def _error(seen: Sequence[float]) -> float:
    """Relative standard error of a median, from the median absolute deviation (x 1.4826: sigma of a normal law)."""
    middle = float(np.median(seen))
    spread = 1.4826 * float(np.median(np.abs(np.array(seen) - middle)))
    return round(float(1.2533 * spread / np.sqrt(len(seen)) / middle), 5) if middle else 0.0


def check(curve: CostCurve, decoding: dict[tuple[str, int], list[Step]]) -> dict[str, Any]:
    """Milliseconds a token of real decoding, foretold step by step from the curve and measured."""
    runs: list[dict[str, Any]] = []
    for (label, load), steps in decoding.items():
        tokens = sum(step.tokens for step in steps)
        if not tokens:
            continue
        measured = 1e3 * sum(step.seconds + step.draft_s for step in steps) / tokens
        predicted = sum(_foretold(curve, label, step) for step in steps) / tokens
        runs.append(
            {
                "drafter": label,
                "sequences": load,
                "tokens": tokens,
                "measured_ms_per_token": round(measured, 4),
                "predicted_ms_per_token": round(predicted, 4),
                "ratio": round(predicted / measured, 4),
            }
        )
    return {"within": WITHIN, "holds": all(abs(run["ratio"] - 1) <= WITHIN for run in runs), "runs": runs}


def _foretold(curve: CostCurve, label: str, step: Step) -> float:
    rows = step.rows / step.sequences
    drafts = curve.draft(label, step.sequences, rows - 1, step.context)
    return curve.step(step.sequences, rows, step.context) + drafts
