"""What the measurements must show: each wanted bound as a row with its value and whether it holds.

The bounds are written here once and are never loosened to fit a figure. A row whose measurement is missing (a peer that
is not installed, a group that was not run) says so; it never counts as holding.

Does not know: processes, files, printing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bench import groups, stats
from bench.stats import Ratio, Run
from bench.workloads import BUCKETS

Runs = Mapping[str, Sequence[Run]]  # by group


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. sense: whether the value has to be at least or at most the bound; None is information."""

    what: str
    bucket: str
    unit: Literal["x", "%", "of"]
    value: float | None
    sense: Literal[">=", "<="] | None = None
    bound: float | None = None
    ratio: Ratio | None = None
    out_of: int | None = None

    @property
    def holds(self) -> bool | None:
        """None where nothing was asked, or nothing was measured."""
        if self.bound is None or self.value is None:
            return None
        return self.value >= self.bound if self.sense == ">=" else self.value <= self.bound

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "holds": self.holds}


def _speed(what: str, runs: Sequence[Run], ours: str, baseline: str, bounds: Mapping[str, float | None]) -> list[Row]:
    rows = []
    for bucket, bound in bounds.items():
        ratio = stats.speed_ratio(runs, ours, baseline, bucket)
        sense: Literal[">="] | None = None if bound is None else ">="
        rows.append(Row(what, bucket, "x", None if ratio is None else ratio.value, sense, bound, ratio))
    return rows


def _each(bound: float | None) -> dict[str, float | None]:
    return dict.fromkeys(BUCKETS, bound)


def _share(what: str, runs: Sequence[Run], config: str, bound: float, *, draft_is_overhead: bool) -> Row:
    return Row(what, stats.ALL, "%", stats.share(runs, config, draft_is_overhead=draft_is_overhead), "<=", bound)


def _speed_rows(runs: Runs) -> list[Row]:
    float32, int8, streams = runs.get("float32", ()), runs.get("int8", ()), runs.get("streams", ())
    lookup = {"edit": 1.3, "passage": 1.3, "chat": 0.8}
    genai, batching = groups.GENAI_PLAIN.name, groups.GENAI_BATCHING.name
    plain, suffix = groups.INT8_PLAIN.name, groups.INT8_SUFFIX.name
    return [
        *_speed(
            "float32 plain / transformers generate",
            float32,
            groups.FLOAT32_PLAIN.name,
            groups.TRANSFORMERS.name,
            _each(1.3),
        ),
        *_speed("int8 plain, fast / openvino-genai plain", int8, groups.INT8_FAST.name, genai, _each(0.8)),
        *_speed("int8 suffix / openvino-genai lookup", int8, suffix, groups.GENAI_LOOKUP.name, lookup),
        *_speed("8 streams int8 plain / genai batching", streams, plain, batching, {stats.ALL: 1.0}),
        *_speed("8 streams int8 suffix / genai batching", streams, suffix, batching, {stats.ALL: 1.0}),
    ]


def _engine_rows(runs: Runs) -> list[Row]:
    int8, sampled, ttft = runs.get("int8", ()), runs.get("sampled", ()), runs.get("ttft", ())
    plain, fast, suffix = groups.INT8_PLAIN.name, groups.INT8_FAST.name, groups.INT8_SUFFIX.name
    first = stats.latency_ratio(ttft, suffix, plain)
    return [
        _share("engine outside forwards, greedy, plain fast", int8, fast, 0.10, draft_is_overhead=True),
        _share("engine outside forwards, greedy, plain", int8, plain, 0.10, draft_is_overhead=True),
        _share("engine outside forwards, greedy, suffix", int8, suffix, 0.10, draft_is_overhead=False),
        _share("  the same with drafting", int8, suffix, 0.10, draft_is_overhead=True),
        _share("engine outside forwards, top-p, plain", sampled, plain, 0.20, draft_is_overhead=True),
        _share("engine outside forwards, top-p, suffix", sampled, suffix, 0.20, draft_is_overhead=False),
        _share("  the same with drafting", sampled, suffix, 0.20, draft_is_overhead=True),
        Row(
            "time to first token, suffix / plain",
            stats.ALL,
            "x",
            None if first is None else first.value,
            "<=",
            1.05,
            first,
        ),
    ]


def _texts(what: str, runs: Sequence[Run], ours: str, baseline: str, *, wanted: bool) -> Row:
    equal, compared = stats.identical(runs, ours, baseline)
    if not compared:
        return Row(what, stats.ALL, "of", None, ">=" if wanted else None, 0.0 if wanted else None)
    bound = float(compared) if wanted else None
    return Row(what, stats.ALL, "of", float(equal), ">=" if wanted else None, bound, out_of=compared)


def _information(runs: Runs) -> list[Row]:
    float32, int8, sampled = runs.get("float32", ()), runs.get("int8", ()), runs.get("sampled", ())
    plain, fast, suffix = groups.INT8_PLAIN.name, groups.INT8_FAST.name, groups.INT8_SUFFIX.name
    everywhere = _each(None)
    speculative = (groups.INT8_SUFFIX, groups.INT8_NGRAM, groups.INT8_EARLY_EXIT)
    return [
        *_speed("invariant costs: int8 plain fast / invariant", int8, fast, plain, everywhere),
        *_speed(
            "float32 plain, fast / transformers generate",
            float32,
            groups.FLOAT32_FAST.name,
            groups.TRANSFORMERS.name,
            everywhere,
        ),
        *(row for c in speculative for row in _speed(f"{c.name} / ours int8 plain", int8, c.name, plain, everywhere)),
        *_speed("sampled: int8 suffix / int8 plain", sampled, suffix, plain, everywhere),
        *_speed(
            "openvino-genai lookup / its plain", int8, groups.GENAI_LOOKUP.name, groups.GENAI_PLAIN.name, everywhere
        ),
    ]


def serving(runs: Sequence[Run]) -> list[Row]:
    """Rows of `bench.serving`: nothing fixed beats what the server chooses, and speculation is never a loss.

    Ours among each other while all streams are busy; beside a peer, which tells no more, the whole list.
    """
    rows, auto, off = [], groups.AUTO, groups.OFF
    for name, load in {load.name: load for load in groups.LOADS}.items():
        whole = [run for run in runs if run["load"] == name]
        some = [_busy(run) for run in whole]
        if load.bucket is not None:
            rows += _speed(f"{name}: auto / off", some, auto, off, _each(0.98))
            continue
        others = [policy for policy in load.policies if policy != auto]
        for other in others:
            rows += _speed(f"{name}: auto / {other}", some, auto, other, {stats.ALL: 0.97})
        if load.peer:
            rows += _speed(f"{name}: auto / genai batching", whole, auto, groups.SERVED_BATCHING.name, {stats.ALL: 1.2})
    return [*rows, _same_texts("same texts: all policies of a load, off", runs)]


def _busy(run: Run) -> Run:
    """The part of a run in which all streams were busy; the whole of one that has no such part."""
    part = run.get("busy")
    return run if part is None else {**run, "seconds": part["seconds"], "counts": [part["tokens"]]}


def _same_texts(what: str, runs: Sequence[Run]) -> Row:
    """Every text of each policy against the one without speculation."""
    plain = {_place(run): run["digests"] for run in runs if run["config"] == groups.OFF}
    pairs = [
        (mine, theirs)
        for run in runs
        if run["config"] in groups.GAMMAS and run["config"] != groups.OFF and _place(run) in plain
        for mine, theirs in zip(run["digests"], plain[_place(run)], strict=True)
    ]
    equal = float(sum(mine == theirs for mine, theirs in pairs)) if pairs else None
    return Row(what, stats.ALL, "of", equal, ">=", float(len(pairs)), out_of=len(pairs))


def _place(run: Run) -> tuple[Any, ...]:
    return run["load"], run["bucket"], run["prompt"], run["repeat"]


def table(runs: Runs) -> list[Row]:
    """All rows: what is wanted first, then what is worth knowing. runs: by group name; a missing group is no error."""
    int8, sampled = runs.get("int8", ()), runs.get("sampled", ())
    plain = groups.INT8_PLAIN.name
    speculative = (groups.INT8_SUFFIX, groups.INT8_NGRAM, groups.INT8_EARLY_EXIT)
    lookup, genai = groups.GENAI_LOOKUP.name, groups.GENAI_PLAIN.name
    return [
        *_speed_rows(runs),
        *_engine_rows(runs),
        *serving(runs.get("serving", ())),
        *(_texts(f"same texts: {c.name}, plain", int8, c.name, plain, wanted=True) for c in speculative),
        _texts("same texts: sampled suffix, plain", sampled, groups.INT8_SUFFIX.name, plain, wanted=True),
        _texts("same texts: genai lookup, its plain", int8, lookup, genai, wanted=False),
        *_information(runs),
    ]
