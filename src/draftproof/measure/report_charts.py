"""The report's charts of a plan, as Vega-Lite specifications: acceptance, tokens per round, speed-up, costs.

Each holds all buckets and shows the one that its parameter `bucket` names (and `load`, where it has one); the page sets
them. Rows are plain numbers and names: names are data, never part of an expression.

Does not know: HTML, the sliders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.measure.report_style import MUTED, chart_config
from draftproof.planner.interval import Interval
from draftproof.planner.plan import Plan

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its caption."""

    name: str  # unique in the page, an HTML id
    section: str
    title: str
    spec: dict[str, Any]


def figures(alt: Any, plan: Plan) -> list[Figure]:
    """All charts of a plan that have something to show; `alt` is the altair module."""
    if not plan.gamma_max:
        return []
    return [
        *_acceptance(alt, plan),
        _tokens(alt, plan),
        *_speedups(alt, plan),
        _verify(alt, plan),
        _draft(alt, plan),
    ]


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"low": interval.low, "high": interval.high}


def acceptance_rows(plan: Plan) -> Rows:
    """By position, at the longest draft length: from the laws with intervals, and from coins."""
    rows: Rows = []
    for bucket in plan.buckets:
        for estimates in bucket.estimates:
            for kind, line in (("expected", estimates.expected), ("counted", estimates.counted)):
                for position, interval in enumerate(line[-1].by_position if line else (), start=1):
                    if interval is not None:
                        place = {"bucket": bucket.name, "drafter": estimates.drafter, "position": position}
                        rows.append({**place, "kind": kind, "acceptance": interval.mean, **_ends(interval)})
    return rows


def _point_rows(plan: Plan) -> Iterator[tuple[dict[str, Any], Any]]:
    for bucket in plan.buckets:
        for band in bucket.bands:
            fastest = band.drafter or band.curves[0].drafter  # plain decoding is every drafter's gamma 0
            for curve in band.curves:
                for point in curve.points:
                    chosen = curve.drafter == fastest and point.gamma == band.point.gamma
                    place = {"bucket": bucket.name, "load": band.concurrency, "drafter": curve.drafter}
                    yield {**place, "gamma": point.gamma, "chosen": chosen, "enable": chosen and band.enable}, point


def tokens_rows(plan: Plan) -> Rows:
    """Tokens per round at each gamma; they do not depend on the load."""
    return [
        {
            "bucket": bucket.name,
            "drafter": estimates.drafter,
            "gamma": estimate.gamma,
            "tokens": estimate.tokens_per_round.mean,
            **_ends(estimate.tokens_per_round),
        }
        for bucket in plan.buckets
        for estimates in bucket.estimates
        for estimate in estimates.expected
    ]


def speedup_rows(plan: Plan) -> Rows:
    """The speed-up at each gamma and load."""
    return [{**place, "speedup": point.speedup.mean, **_ends(point.speedup)} for place, point in _point_rows(plan)]


def cost_rows(plan: Plan) -> Rows:
    """Milliseconds of a round's two halves, and the mean rows of a sequence in the target's step."""
    return [
        {**place, "rows": 1 + point.drafted, "verify_ms": point.verify_ms, "draft_ms": point.draft_ms}
        for place, point in _point_rows(plan)
    ]


def _spec(
    alt: Any, plan: Plan, rows: Rows, layers: Sequence[Any], description: str, params: Sequence[Any] = ()
) -> dict[str, Any]:
    """The layers over the rows of the bucket that the page shows; a layer may bring data of its own."""
    chart = (
        alt.layer(*layers, data=alt.Data(values=rows))
        .add_params(alt.param(name="bucket", value=plan.overall), *params)
        .transform_filter("datum.bucket == bucket")
        .properties(width="container", height=230, description=description)
    )
    spec: dict[str, Any] = chart_config(chart).to_dict()
    return spec


def _drafter(alt: Any, plan: Plan) -> Any:
    """Colour by drafter, the same in every chart."""
    return alt.Color("drafter:N", title=None, sort=[info.name for info in plan.drafters])


def _gammas(alt: Any, plan: Plan, field: str = "gamma:Q", title: str = "draft length gamma", first: int = 0) -> Any:
    last = max(plan.gamma_max, first + 1)
    return alt.X(field, title=title).scale(domain=[first, last]).axis(values=list(range(first, last + 1)), format="d")


def _tooltips(alt: Any, names: str, numbers: str, form: str) -> list[Any]:
    return [*names.split(), *(alt.Tooltip(f"{name}:Q", format=form) for name in numbers.split())]


def _band(chart: Any) -> Any:
    """The shade of an interval, where there is one."""
    return chart.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_area(opacity=0.15)


def _acceptance(alt: Any, plan: Plan) -> Iterator[Figure]:
    x = _gammas(alt, plan, "position:Q", "position in the draft", first=1)
    y = alt.Y("acceptance:Q", title="accepted / tested").scale(domain=[0, 1]).axis(format="%")
    color = _drafter(alt, plan)
    tooltip = _tooltips(alt, "drafter:N kind:N position:Q", "acceptance low high", ".1%")
    expected = alt.Chart().transform_filter("datum.kind == 'expected'")
    counted = alt.Chart().transform_filter("datum.kind == 'counted'")
    layers = [
        _band(expected).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        expected.mark_line(point=True).encode(x=x, y=y, color=color, tooltip=tooltip),
        counted.mark_point(shape="triangle-up", filled=False).encode(x=x, y=y, color=color, tooltip=tooltip),
    ]
    title = "Acceptance by position, with 95 % intervals. Line: expected from the laws; triangles: counted."
    text = "Acceptance by position in the draft, by drafter"
    if rows := acceptance_rows(plan):  # none where no drafter ever drafted
        yield Figure("acceptance", "drafts", title, _spec(alt, plan, rows, layers, text))


def _tokens(alt: Any, plan: Plan) -> Figure:
    x, color = _gammas(alt, plan), _drafter(alt, plan)
    y = alt.Y("tokens:Q", title="tokens per round").scale(zero=False)
    tooltip = _tooltips(alt, "drafter:N gamma:Q", "tokens low high", ".2f")
    layers = [
        _band(alt.Chart()).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        alt.Chart().mark_line(point=True).encode(x=x, y=y, color=color, tooltip=tooltip),
    ]
    title = "Tokens per round, with the correction or bonus token, and 95 % intervals."
    text = "Tokens per round over draft length, by drafter"
    return Figure("tokens", "drafts", title, _spec(alt, plan, tokens_rows(plan), layers, text))


def _speedups(alt: Any, plan: Plan) -> Iterator[Figure]:
    """One for each load, all on the scale of the bucket that is shown."""
    rows = speedup_rows(plan)
    names = [bucket.name for bucket in plan.buckets]
    tops = [max(max(r["speedup"], r["high"] or 0) for r in rows if r["bucket"] == name) for name in names]
    scale = [alt.param(name="names", value=names), alt.param(name="tops", value=[1.08 * top for top in tops])]
    y = alt.Y("speedup:Q", title="speed-up").scale(
        domainMin=0, domainMax=alt.expr("tops[indexof(names, bucket)]"), nice=False
    )
    for load in sorted(plan.concurrency):
        text = f"Speed-up over draft length with {load} at once, by drafter"
        layers = _speedup_layers(alt, plan, y)
        spec = _spec(alt, plan, [row for row in rows if row["load"] == load], layers, text, scale)
        yield Figure(f"speedup-{load}", "speed", f"{load} at once", spec)


def _speedup_layers(alt: Any, plan: Plan, y: Any) -> list[Any]:
    x, color = _gammas(alt, plan), _drafter(alt, plan)
    chosen = alt.Chart().transform_filter("datum.chosen")
    chosen = chosen.transform_calculate(
        text="datum.gamma == 0 ? 'plain decoding' : "
        "(datum.enable ? '' : 'not sure: ') + 'gamma ' + datum.gamma + ', ' + format(datum.speedup, '.2f') + 'x'"
    )
    third = plan.gamma_max / 3
    align = alt.expr(f"datum.gamma < {third} ? 'left' : datum.gamma > {2 * third} ? 'right' : 'center'")
    tooltip = _tooltips(alt, "drafter:N gamma:Q", "speedup low high", ".2f")
    return [
        alt.Chart(alt.Data(values=[{"one": 1}])).mark_rule(strokeDash=[5, 4], color=MUTED).encode(y="one:Q"),
        _band(alt.Chart()).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        alt.Chart().mark_line(point=alt.OverlayMarkDef(size=20)).encode(x=x, y=y, color=color, tooltip=tooltip),
        chosen.mark_point(size=130, shape="diamond", filled=True, opacity=1).encode(x=x, y=y, color=color),
        chosen.mark_text(dy=-15, align=align, fontWeight="bold").encode(x=x, y=y, text="text:N"),
    ]


def _verify(alt: Any, plan: Plan) -> Figure:
    x = (
        alt.X("rows:Q", title="rows of a sequence in the step (1 + mean drafts)")
        .scale(zero=False)
        .axis(format=".2~f", tickMinStep=1)
    )
    y = alt.Y("verify_ms:Q", title="target step (ms)")
    color = alt.Color("load:N", title="at once", sort=sorted(plan.concurrency))
    tooltip = _tooltips(alt, "load:N", "rows verify_ms", ".2f")
    layers = [alt.Chart().mark_line(point=True).encode(x=x, y=y, color=color, tooltip=tooltip)]
    title = "Cost of one target step, all sequences together."
    text = "Milliseconds of a target step over its rows, by load"
    return Figure("verify", "costs", title, _spec(alt, plan, cost_rows(plan), layers, text))


def _draft(alt: Any, plan: Plan) -> Figure:
    load = alt.param(name="load", value=max(plan.concurrency))
    tooltip = _tooltips(alt, "drafter:N gamma:Q", "draft_ms", ".3f")
    y = alt.Y("draft_ms:Q", title="drafting (ms)")
    line = alt.Chart().add_params(load).transform_filter("datum.load == load").mark_line(point=True)
    layers = [line.encode(x=_gammas(alt, plan), y=y, color=_drafter(alt, plan), tooltip=tooltip)]
    title = "Cost of drafting one round, all sequences together."
    text = "Milliseconds of drafting over draft length, by drafter"
    return Figure("draft", "costs", title, _spec(alt, plan, cost_rows(plan), layers, text))
