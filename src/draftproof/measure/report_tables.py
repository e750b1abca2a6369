"""The report's tables of a plan, as text: decisions, capacity and money, sensitivity, memory, estimates, provenance.

Invariant: cells are plain text; the page escapes them.

Does not know: HTML, charts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.planner.interval import Interval
from draftproof.planner.memory import MemoryRow
from draftproof.planner.plan import Band, BreakEven, Bucket, Estimates, Gain, Plan

NONE = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; mark is "yes", "no" or "" for a coloured badge, share (0..1) a bar behind it."""

    text: str
    mark: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first `names` columns are text, the others numbers, but for those listed as words."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1
    words: tuple[int, ...] = ()
    note: str = ""


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """A number with its unit, or a dash."""
    return NONE if value is None else f"{value:{form}}{unit}"


def interval(value: Interval | None, form: str = ".2f", unit: str = "") -> str:
    """A mean with its interval, where there is one."""
    if value is None:
        return NONE
    mean = number(value.mean, form, unit)
    return mean if value.low is None or value.high is None else f"{mean} ({value.low:{form}} to {value.high:{form}})"


def gibibytes(value: int) -> str:
    """Bytes as GiB or MiB; a dash for none."""
    if not value:
        return NONE
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def _bands(plan: Plan) -> Iterator[tuple[Bucket, Band]]:
    yield from ((bucket, band) for bucket in plan.buckets for band in bucket.bands)


def decisions(plan: Plan) -> Table:
    """The headline: a row for each bucket and load."""
    rows = []
    for bucket, band in _bands(plan):
        point = band.point
        rows.append(
            _row(
                bucket.name,
                str(band.concurrency),
                Cell(band.decision, "yes" if band.enable else "no"),
                band.drafter or NONE,
                str(point.gamma),
                interval(point.speedup, unit="x"),
                number(point.tokens_per_round.mean),
                NONE if point.acceptance is None else f"{100 * point.acceptance.mean:.0f} %",
                f"{band.plain_itl_ms:.4g} → {point.itl_ms:.4g} ms",
                band.reason,
            )
        )
    head = ("bucket", "at once", "decision", "drafter", "gamma", "speed-up (95 %)", "tokens per round", "acceptance")
    note = "Drafter, gamma and numbers are those of the fastest candidate, also where it is not recommended."
    return Table("Decision", (*head, "time per token", "why"), tuple(rows), words=(2, 3, 9), note=note)


def break_even(plan: Plan) -> Table:
    """Up to which load speculation is not slower."""
    rows = [
        _row(
            bucket.name,
            str(bucket.prompts),
            str(bucket.tokens),
            f"{bucket.completion_tokens:.0f}",
            _even(bucket.break_even),
        )
        for bucket in plan.buckets
    ]
    head = ("bucket", "prompts", "output tokens", "tokens per answer", "not slower up to")
    return Table("Break-even load", head, tuple(rows))


def _even(value: BreakEven) -> str:
    return {
        "at": f"{value.concurrency} at once",
        "beyond": f"{value.concurrency} at once and more (the largest load measured)",
        "never": "never",
        "unknown": "costs do not depend on the load here",
    }.get(value.kind, value.kind)


def capacity(plan: Plan) -> Table:
    """Tokens, requests and money, plain against the choice."""
    priced = plan.price_per_hour is not None
    rows = [_row(bucket.name, str(band.concurrency), *_gains(band.gain, priced)) for bucket, band in _bands(plan)]
    head = ("bucket", "at once", "tokens/s plain", "tokens/s", "requests/s plain", "requests/s", "requests/s gained")
    money = ("price per million tokens, plain", "price per million tokens", "saved per hour")
    note = "Decoding only, of the fastest candidate; prompts cost the same with and without drafts."
    if priced:
        note += f" Money in the unit of the price of an hour, {plan.price_per_hour:g}."
    return Table(
        "Capacity and money" if priced else "Capacity", head + (money if priced else ()), tuple(rows), note=note
    )


def _gains(gain: Gain, priced: bool) -> list[str]:
    speeds = [number(gain.tokens_per_second_plain, ".1f"), number(gain.tokens_per_second, ".1f")]
    requests = (gain.requests_per_second_plain, gain.requests_per_second, gain.requests_per_second_gained)
    money = (gain.price_per_million_plain, gain.price_per_million, gain.saved_per_hour) if priced else ()
    return [*speeds, *(number(value, ".3g") for value in requests), *(number(value, ".4g") for value in money)]


def sensitivity(plan: Plan) -> Table:
    """The chosen drafter's speed-up if one thing were different."""
    rows = []
    for bucket, band in _bands(plan):
        if band.sensitivity is not None:
            it = band.sensitivity
            gains = (
                band.point.speedup.mean,
                it.acceptance_down,
                it.acceptance_up,
                it.draft_cost_half,
                it.draft_cost_double,
            )
            cells = [Cell(number(gain, unit="x"), "" if gain > 1 else "no") for gain in gains]
            rows.append(_row(bucket.name, str(band.concurrency), *cells))
    head = ("bucket", "at once", "as measured", "acceptance −10 %", "acceptance +10 %", "drafting at half the cost")
    return Table("What if", (*head, "drafting at twice the cost"), tuple(rows))


def memory(plan: Plan) -> Table:
    """Weights and caches against the card."""
    limit = plan.memory_limit
    scale = max([row.total for row in plan.memory] + ([limit] if limit else []), default=1)
    rows = tuple(_memory_row(row, scale) for row in plan.memory)
    head = ("drafter", "weights", "at once", "context", "target", "its cache", "drafter", "its cache", "total", "fits")
    note = f"The limit is {gibibytes(limit)}. " if limit else ""
    note += "Activations and the engine's own buffers are not in it: leave about a tenth of the card free."
    return Table(
        "Memory", head if limit else head[:-1], rows if limit else tuple(row[:-1] for row in rows), 2, note=note
    )


def _memory_row(row: MemoryRow, scale: int) -> tuple[Cell, ...]:
    sizes = (row.target_weights, row.target_kv, row.drafter_weights, row.drafter_kv)
    fits = {True: Cell("yes", "yes"), False: Cell("no", "no"), None: Cell(NONE)}[row.fits]
    return _row(
        row.drafter or "none",
        row.weights,
        str(row.concurrency),
        str(row.context),
        *map(gibibytes, sizes),
        Cell(gibibytes(row.total), share=row.total / scale),
        fits,
    )


def estimates(plan: Plan) -> Table:
    """What the charts of drafts show, as numbers, at the longest draft length."""
    rows = [
        _row(bucket.name, each.drafter, *_estimate(each, plan.gamma_max))
        for bucket in plan.buckets
        for each in bucket.estimates
    ]
    head = ("bucket", "drafter", "tokens per round", "acceptance", "counted acceptance", "drafts per round")
    positions = tuple(f"at {position}" for position in range(1, plan.gamma_max + 1))
    note = (
        f"At gamma {plan.gamma_max}; “at k” is the share of drafts tested at position k that are accepted (expected)."
    )
    return Table("Estimates", head + positions, tuple(rows), names=2, note=note)


def _estimate(each: Estimates, gamma_max: int) -> list[str]:
    last = each.expected[-1]
    counted = each.counted[-1].acceptance if each.counted else None
    places = [*last.by_position, *[None] * (gamma_max - len(last.by_position))]
    return [
        interval(last.tokens_per_round),
        interval(last.acceptance),
        interval(counted),
        number(last.drafted),
        *(NONE if place is None else f"{100 * place.mean:.0f} %" for place in places),
    ]


def provenance(plan: Plan, run: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(what, value) pairs: the plan's own facts, then those of the run's run.json."""
    drafters = [(f"drafter {info.name}", f"{info.kind}{_of(info.model)}") for info in plan.drafters]
    pairs = [
        ("target model", _model(plan.target)),
        *drafters,
        ("sampling", _flat(plan.sampling)),
        ("costs", plan.cost_kind),
    ]
    names = ("created", "draftproof", "commit", "command", "data", "machine", "versions")
    facts = [(name, run[name]) for name in names if run.get(name) is not None] if run else []
    return [*pairs, *(("measured" if name == "created" else name, _fact(value)) for name, value in facts)]


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return _flat(value)
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _of(model: Mapping[str, Any] | None) -> str:
    return f": {_model(model)}" if model else ""


def _model(model: Mapping[str, Any]) -> str:
    shown = [str(model.get("name", "?"))]
    if isinstance(model.get("parameters"), int):
        shown.append(f"{model['parameters'] / 1e6:,.0f} M parameters")
    shown += [str(model[name]) for name in ("weights", "backend", "numerics") if model.get(name)]
    return ", ".join(shown)


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def summary(plan: Plan) -> str:
    """One sentence over all decisions."""
    bands = [(bucket, band) for bucket, band in _bands(plan) if len(plan.buckets) == 1 or bucket.name != plan.overall]
    yes = [(bucket, band) for bucket, band in bands if band.enable]
    if not yes:
        return f"Do not enable: in none of {len(bands)} cases (bucket by load) is speculation surely faster."
    bucket, band = max(yes, key=lambda pair: pair[1].point.speedup.mean)
    best = f"{band.point.speedup.mean:.2f}x in {bucket.name} with {band.concurrency} at once"
    everywhere = "Enable everywhere" if len(yes) == len(bands) else f"Enable in {len(yes)} of {len(bands)} cases"
    return f"{everywhere} (bucket by load), at best {best} ({band.drafter}, gamma {band.point.gamma})."


def tables(plan: Plan) -> Sequence[Table]:
    """All but the headline, in the order of the page."""
    return [break_even(plan), capacity(plan), sensitivity(plan), memory(plan), estimates(plan)]
