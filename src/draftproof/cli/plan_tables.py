"""What `draftproof plan` prints: tables of at most 80 columns for names of usual length, sentences beside them.

Does not know: arithmetic; every figure is in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from draftproof.cli.console import clean, number, percent, print_table
from draftproof.planner.interval import Interval
from draftproof.planner.plan import Band, BreakEven, Bucket, Estimates, Plan
from draftproof.planner.price import Calculation

_GIB = 2**30


def show(plan: Plan) -> None:
    """The whole plan."""
    rows = list(_bands(plan))
    drafters = ", ".join(info.name for info in plan.drafters)
    print(f"{plan.target.get('name') or 'target'} with {drafters}; costs: {plan.cost_kind}\n")
    _acceptance(plan)
    head = ["bucket", "drafter", "load", "gamma", "tokens", "ms/tok", "speed-up", "95 %", "enable"]
    _table("best draft length by bucket and load", head, [_choice(bucket, band) for bucket, band in rows])
    for bucket, band in rows:
        if not band.enable:
            print(f"{clean(bucket.name)}, load {band.concurrency}: {band.decision}: {band.reason}")
    for bucket in plan.buckets:
        print(f"{clean(bucket.name)}: {_break_even(bucket.break_even)}")
    print()
    _sensitivity(plan)
    _money(plan)
    _memory(plan)
    for line in plan.notes:
        print(f"note: {clean(line, 300)}")


def show_calculation(found: Calculation, money: Mapping[str, float]) -> None:
    """The calculator's answer."""
    alpha = "" if found.alpha is None else f" (constant acceptance {found.alpha:.3f})"
    print(f"gamma {found.gamma}: {found.tokens_per_round:.2f} tokens per round{alpha}")
    verdict = "" if found.gamma == 0 or found.speedup > 1 else ": a loss"
    print(f"  {found.itl_ms:.1f} ms a token, {found.speedup:.2f}x{verdict}")
    if found.best_gamma is not None:
        print(f"best draft length: {found.best_gamma}, {found.best_speedup:.2f}x")
    if found.break_even_alpha is None:
        print("break-even: no acceptance is high enough, drafting costs more than it can bring")
    else:
        print(f"break-even: wins above an acceptance of {found.break_even_alpha:.3g}")
    if money:
        plain, now = money["price_per_million_plain"], money["price_per_million"]
        print(f"a million tokens: {now:.2f} instead of {plain:.2f}")
    for line in found.notes:
        print(f"note: {line}")


def _bands(plan: Plan) -> Iterator[tuple[Bucket, Band]]:
    for bucket in plan.buckets:
        for band in bucket.bands:
            yield bucket, band


def _mean(interval: Interval | None) -> float | None:
    return None if interval is None else interval.mean


def _range(interval: Interval | None, scale: float = 1.0, form: str = ".2f") -> str:
    if interval is None or interval.low is None or interval.high is None:
        return "-"
    return f"{scale * interval.low:{form}}-{scale * interval.high:{form}}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """With its title above it in a pipe, too."""
    if rows:
        print(title)
        print_table(head, rows)
        print()


def _acceptance(plan: Plan) -> None:
    """Expected acceptance at the longest draft, beside what coins said."""
    places = sorted({k for k in (1, 4, plan.gamma_max) if k <= plan.gamma_max})
    head = ["bucket", "drafter", "prompts", "accept", "95 %", *(f"at {k}" for k in places), "counted", "tokens"]
    rows = [
        _accepted(bucket, estimates, places)
        for bucket in plan.buckets
        for estimates in bucket.estimates
        if plan.gamma_max
    ]
    _table(f"acceptance of tested drafts, and tokens per round, at gamma {plan.gamma_max}", head, rows)


def _accepted(bucket: Bucket, estimates: Estimates, places: list[int]) -> list[str]:
    expected = estimates.expected[-1]
    counted = estimates.counted[-1].acceptance if estimates.counted else None
    by_position = [expected.by_position[k - 1] for k in places]
    return [
        bucket.name,
        estimates.drafter,
        str(expected.prompts),
        percent(_mean(expected.acceptance)),
        _range(expected.acceptance, 100, ".0f"),
        *(percent(_mean(one)) for one in by_position),
        percent(_mean(counted)),
        number(expected.tokens_per_round.mean, ".2f"),
    ]


def _choice(bucket: Bucket, band: Band) -> list[str]:
    point = band.point
    return [
        bucket.name,
        band.drafter or "none",
        str(band.concurrency),
        str(point.gamma),
        number(point.tokens_per_round.mean, ".2f"),
        number(point.itl_ms),
        f"{point.speedup.mean:.2f}x",
        _range(point.speedup) if point.gamma else "-",
        "yes" if band.enable else "no",
    ]


def _break_even(found: BreakEven) -> str:
    return {
        "at": f"by the mean it breaks even at {found.concurrency} sequences at once",
        "beyond": f"by the mean it still pays at {found.concurrency} sequences at once, the largest load measured",
        "never": "even by the mean it pays at no measured load",
        "unknown": "no break-even load: costs are constants",
    }[found.kind]


def _sensitivity(plan: Plan) -> None:
    head = ["bucket", "drafter", "load", "speed-up", "alpha-10%", "alpha+10%", "draft/2", "draft*2"]
    rows = []
    for bucket, band in _bands(plan):
        if (at := band.sensitivity) is not None and band.drafter is not None:
            changed = (at.acceptance_down, at.acceptance_up, at.draft_cost_half, at.draft_cost_double)
            gains = [f"{gain:.2f}x" for gain in (band.point.speedup.mean, *changed)]
            rows.append([bucket.name, band.drafter, str(band.concurrency), *gains])
    _table("speed-up of the same choice if acceptance or the cost of drafting were different", head, rows)


def _money(plan: Plan) -> None:
    """Decode throughput, and money where a price was given."""
    priced = plan.price_per_hour is not None
    head = ["bucket", "drafter", "load", "tok/s plain", "tok/s", "req/s plain", "req/s"]
    head = [*head[:5], "req/s +", "1M plain", "1M", "saved/h"] if priced else [*head, "req/s +"]
    rows = []
    for bucket, band in _bands(plan):
        gain = band.gain
        row = [bucket.name, band.drafter or "none", str(band.concurrency)]
        row += [number(gain.tokens_per_second_plain), number(gain.tokens_per_second)]
        if priced:
            row += [number(gain.requests_per_second_gained, ".3g")]
            row += [number(v, ".2f") for v in (gain.price_per_million_plain, gain.price_per_million)]
            row += [number(gain.saved_per_hour, ".2f")]
        else:
            requests = (gain.requests_per_second_plain, gain.requests_per_second, gain.requests_per_second_gained)
            row += [number(value, ".3g") for value in requests]
        rows.append(row)
    _table("decoding speed of all sequences together, prompts not counted", head, rows)


def _memory(plan: Plan) -> None:
    own = {info.name for info in plan.drafters if info.model is not None}
    limited = plan.memory_limit is not None
    head = ["drafter", "weights", "load", "target", "its KV", "draft", "its KV", "total"]
    rows = []
    for row in plan.memory:
        if row.drafter is not None and row.drafter not in own:
            continue  # adds nothing to the target alone
        sizes = (row.target_weights, row.target_kv, row.drafter_weights, row.drafter_kv, row.total)
        cells = [row.drafter or "none", row.weights, str(row.concurrency)]
        cells += [f"{size / _GIB:.2f}" for size in sizes]
        rows.append([*cells, "yes" if row.fits else "no"] if limited else cells)
    context = plan.memory[0].context if plan.memory else 0
    title = f"memory in GiB of weights and of KV for {context} tokens a sequence"
    _table(title, [*head, "fits"] if limited else head, rows)
