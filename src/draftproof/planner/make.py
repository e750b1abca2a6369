"""From evidence and costs to a plan: buckets by loads, memory, notes.

Invariant: the overall bucket comes first and holds every text; with a single bucket it is that one.

Does not know: files, printing, how a figure of a band comes about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import InputError
from draftproof.planner.acceptance import counted_sums, summarise
from draftproof.planner.bands import Candidate, Traffic, break_even, make_band
from draftproof.planner.cost import CostCurve
from draftproof.planner.evidence import Evidence
from draftproof.planner.memory import MemoryRow, memory_rows
from draftproof.planner.plan import FORMAT, Bucket, Estimates, Plan
from draftproof.planner.rates import Drafting, Load
from draftproof.planner.sums import PromptSums, prompt_sums

_OVERALL = "all"


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan is made for."""

    concurrency: tuple[int, ...]
    price_per_hour: float | None = None
    memory_limit: int | None = None  # bytes
    context: int | None = None  # tokens that costs and memory are taken at; None: the run's own

    def __post_init__(self) -> None:
        """Raises InputError for values without meaning."""
        if not self.concurrency or min(self.concurrency) < 1:
            raise InputError(f"concurrency must be numbers >= 1, got {self.concurrency}")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise InputError(f"concurrency names a number twice: {self.concurrency}")
        if self.price_per_hour is not None and not (self.price_per_hour > 0 and math.isfinite(self.price_per_hour)):
            raise InputError(f"the price of an hour must be above 0, got {self.price_per_hour:g}")
        if self.context is not None and self.context < 1:
            raise InputError(f"context must be at least 1, got {self.context}")


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Of every text."""

    expected: PromptSums
    counted: PromptSums


def make_plan(evidence: Evidence, curve: CostCurve, options: Options) -> Plan:
    """The plan of a run. Raises InputError where the run decided nothing, or a drafter's cost is not known."""
    if not len(evidence.drafter_of):
        raise InputError("the run holds no decided token: every completion is empty or one token long")
    gamma_max = evidence.starts.gamma_max
    sums = _Sums(prompt_sums(evidence.starts), counted_sums(evidence.rounds, gamma_max))
    overall, parts = _parts(evidence.buckets)
    made = [_bucket(name, index, (evidence, sums), curve, options) for name, index in parts]
    buckets = tuple(bucket for bucket in made if bucket is not None)
    return Plan(
        format=FORMAT,
        target=evidence.target,
        drafters=tuple(info for info in evidence.drafters if info.name in {e.drafter for e in buckets[0].estimates}),
        sampling=evidence.sampling,
        gamma_max=gamma_max,
        concurrency=options.concurrency,
        cost_kind=curve.kind,
        price_per_hour=options.price_per_hour,
        memory_limit=options.memory_limit,
        overall=overall,
        buckets=buckets,
        memory=_memory(evidence, options),
        notes=(*evidence.notes, *_notes(evidence, curve, options, buckets)),
    )


def _parts(names: Sequence[str]) -> tuple[str, list[tuple[str, int | None]]]:
    """The overall bucket's name, and (name, index or None for all) of each bucket."""
    if len(names) == 1:
        return names[0], [(names[0], None)]
    overall = _OVERALL
    while overall in names:  # a bucket may be called "all"
        overall += " requests"
    return overall, [(overall, None), *((name, index) for index, name in enumerate(names))]


def _bucket(
    name: str, index: int | None, data: tuple[Evidence, _Sums], curve: CostCurve, options: Options
) -> Bucket | None:
    """One bucket; None where no drafter decided a token."""
    evidence, sums = data
    texts = [evidence.texts(drafter, index) for drafter in range(len(evidence.drafters))]
    present = [(info.name, rows) for info, rows in zip(evidence.drafters, texts, strict=True) if len(rows)]
    if not present:
        return None
    gammas = range(evidence.starts.gamma_max + 1)
    candidates, estimates = [], []
    for label, rows in present:
        own = sums.expected.take(rows)
        expected = tuple(summarise(own, gammas))
        estimates.append(Estimates(label, expected, tuple(summarise(sums.counted.take(rows), gammas))))
        candidates.append(Candidate(Drafting.of(label, own), expected))
    context, length = _lengths(evidence, index, options)
    loads = [Load(curve, sequences, context) for sequences in options.concurrency]
    return Bucket(
        name=name,
        prompts=max(len(rows) for _, rows in present),
        tokens=max(estimate.expected[0].tokens for estimate in estimates),
        context=context,
        completion_tokens=length,
        estimates=tuple(estimates),
        bands=tuple(make_band(candidates, load, Traffic(length, options.price_per_hour)) for load in loads),
        break_even=break_even(candidates, curve.loads, loads[0]),
    )


def _lengths(evidence: Evidence, index: int | None, options: Options) -> tuple[float, float]:
    """Context that costs are taken at (halfway through the completion), and mean completion length, of a bucket."""
    requests = evidence.requests
    chosen = slice(None) if index is None else requests.bucket == index
    prompt, completion = requests.prompt_tokens[chosen].mean(), requests.completion_tokens[chosen].mean()
    context = prompt + completion / 2 if options.context is None else options.context
    return float(context), float(completion)


def _memory(evidence: Evidence, options: Options) -> tuple[MemoryRow, ...]:
    whole = (evidence.requests.prompt_tokens + evidence.requests.completion_tokens).mean()
    context = math.ceil(whole) if options.context is None else options.context
    models = {info.name: info.model for info in evidence.drafters}
    return memory_rows(evidence.target, models, options.concurrency, context, options.memory_limit)


def _notes(evidence: Evidence, curve: CostCurve, options: Options, buckets: Sequence[Bucket]) -> list[str]:
    """What a reader must know beside the figures."""
    notes = []
    for bucket in buckets:
        missing = {info.name for info in evidence.drafters} - {one.drafter for one in bucket.estimates}
        notes += [f"bucket {bucket.name}: no text of {name}" for name in sorted(missing)]
    lost = set(evidence.buckets) - {bucket.name for bucket in buckets}
    notes += [f"bucket {name}: no decided token, left out" for name in sorted(lost)]
    beyond = {
        band.concurrency
        for bucket in buckets
        for band in bucket.bands
        if any(point.extrapolated for one in band.curves for point in one.points)
    }
    if beyond:
        loads = ", ".join(map(str, sorted(beyond)))
        notes.append(
            f"some costs at concurrency {loads} lie beyond what was measured ({curve.extent}): straight lines there, "
            "not measurements"
        )
    if curve.checked is False:
        notes.append(
            "the cost curve failed its own check against real decoding: speed-ups may be off by more than 10 %; "
            "measure costs again on a quiet machine"
        )
    if curve.kind == "constant":
        notes.append("costs are constants: taken to hold at every load and context")
    limit = evidence.target.get("max_len")
    if limit and options.context and options.context > limit:
        notes.append(f"a context of {options.context} tokens is more than the model's limit of {limit}")
    for name in ("name", "weights", "backend", "numerics"):
        measured, planned = ((model or {}).get(name) for model in (curve.model, evidence.target))
        if measured and planned and measured != planned:
            notes.append(f"costs were measured with another target ({name} {measured}) than acceptance ({planned})")
    notes += _other_sampling(curve.sampling, evidence.sampling)
    few = [bucket.name for bucket in buckets if bucket.prompts < 12]
    if few:
        notes.append(f"fewer than 12 prompts in {', '.join(few)}: intervals there can miss a rare kind of prompt")
    return notes


def _other_sampling(measured: Mapping[str, Any], planned: Mapping[str, Any]) -> list[str]:
    """A note where costs hold for other sampling parameters than acceptance; at temperature 0 no law is built."""
    names = [name for name in measured if name in planned]
    if measured.get("temperature") == planned.get("temperature") == 0:
        names = [name for name in names if name not in ("top_k", "top_p", "min_p", "rule")]
    others = [name for name in names if measured[name] != planned[name]]
    if not others:
        return []
    said = [", ".join(f"{name} {_shown(values[name])}" for name in others) for values in (measured, planned)]
    note = (
        "costs were measured under other sampling parameters than acceptance, and sampling is part of a step: measure "
        f"them again with `draftproof cost --run RUN` (costs: {said[0]}; acceptance: {said[1]})"
    )
    return [note]


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)
