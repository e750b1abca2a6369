"""The interactive page: the textbook's speed-up over gamma, by sliders, with its peak, and measured buckets as points.

The formula is the planner's, written once as a Vega expression for each gamma:
    speed-up(gamma) = T_t * a / (gamma * T_d + T_t * (1 + slope * gamma)),   a = 1 + alpha + ... + alpha^gamma.
The peak is the first gamma with the highest value, as in `planner.price.best_gamma`.

Invariant: the page computes what `planner.price` computes; a name from outside is never part of an expression.

Does not know: HTML, files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.measure.report_style import ACCENT, MUTED, POINTS, chart_config
from draftproof.planner.plan import Band, Bucket, Plan

LONGEST = 16  # gamma of the last point of the curve, unless a plan goes further


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the sliders stand: times in milliseconds, slope as growth of the target's step for each draft."""

    t_target: float
    t_draft: float
    gamma: int
    alpha: float
    verify_slope: float = 0.0


@dataclass(frozen=True, slots=True)
class Preset:
    """One bucket under one load: its point on the page, and settings of the sliders whose curve goes through it."""

    label: str
    gamma: int
    speedup: float
    low: float | None
    high: float | None
    enable: bool
    settings: Settings


def presets_of(plan: Plan) -> tuple[Preset, ...]:
    """A preset for each bucket and load, the overall bucket first."""
    return tuple(preset for bucket in plan.buckets for band in bucket.bands for preset in _preset(plan, bucket, band))


def _preset(plan: Plan, bucket: Bucket, band: Band) -> Iterator[Preset]:
    drafter = band.drafter or max(band.curves, key=lambda curve: max(p.speedup.mean for p in curve.points)).drafter
    curve = band.curve(drafter)
    if curve.alpha is None:
        return  # no draft length above 0 was measured: there is nothing to draw
    point = band.point
    t_draft, slope = curve.t_draft_ms, band.verify_slope
    if point.gamma:  # at its own length, where fewer drafts than asked for may have been made
        t_draft, slope = point.draft_ms / point.gamma, (point.verify_ms / band.plain_itl_ms - 1) / point.gamma
    yield Preset(
        label=f"{bucket.name}, {band.concurrency} at once, {drafter}",
        gamma=point.gamma,
        speedup=point.speedup.mean,
        low=point.speedup.low,
        high=point.speedup.high,
        enable=band.enable,
        settings=Settings(
            t_target=_rounded(band.plain_itl_ms),
            t_draft=_rounded(t_draft),
            gamma=point.gamma,
            alpha=_rounded(curve.alpha),
            verify_slope=_rounded(max(0.0, slope)),
        ),
    )


def _rounded(value: float) -> float:
    """To four digits: what a slider shows, and what the page then computes with."""
    return float(f"{value:.4g}")


def _ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-12))


def speedup_expression(gamma: int) -> str:
    """The speed-up at this gamma, of the signals alpha, t_target, t_draft and slope."""
    tokens = "1"
    for _ in range(gamma):  # Horner, as the planner: no cancellation near alpha = 1
        tokens = f"1+alpha*({tokens})"
    return f"t_target*({tokens})/({gamma}*t_draft+t_target*(1+slope*{gamma}))"


def _params(alt: Any, start: Settings, presets: Sequence[Preset], longest: int) -> list[Any]:
    """The sliders as bound parameters, then what follows from them."""
    every = [start, *(preset.settings for preset in presets)]
    target = _ceiling(max(2 * s.t_target for s in every))
    least = min(target / 2000, *(s.t_target for s in every))
    draft = _ceiling(max(target / 4, *(2 * s.t_draft for s in every)))
    slope = _ceiling(max(0.5, *(2 * s.verify_slope for s in every)))

    def slider(name: str, value: float, text: str, span: tuple[float, float, float]) -> Any:
        low, high, step = span
        bind = alt.binding_range(min=low, max=high, step=step, name=text)
        return alt.param(name=name, value=value, bind=bind)

    return [
        slider("alpha", start.alpha, "acceptance alpha", (0, 1, 0.01)),
        slider("gamma", start.gamma, "draft length gamma", (0, longest, 1)),
        slider("t_target", start.t_target, "target step T_t (ms)", (least, target, target / 2000)),
        slider("t_draft", start.t_draft, "draft token T_d (ms)", (0, draft, draft / 2000)),
        slider("slope", start.verify_slope, "verify slope (per draft)", (0, slope, slope / 500)),
        alt.param(name="speedups", expr=f"[{','.join(map(speedup_expression, range(longest + 1)))}]"),
        alt.param(name="peak", expr="extent(speedups)[1]"),
        alt.param(name="peak_gamma", expr="indexof(speedups, peak)"),
        alt.param(name="picked", value=0 if presets else -1),  # index of the preset that the sliders were set from
    ]


def slider_chart(alt: Any, start: Settings, presets: Sequence[Preset], longest: int = LONGEST) -> dict[str, Any]:
    """The Vega-Lite specification; `alt` is the altair module, `longest` a gamma that the curve must reach."""
    longest = max([longest, start.gamma, *(preset.gamma for preset in presets)])
    x = alt.X("gamma:Q", title="draft length gamma", scale=alt.Scale(domain=[0, longest], nice=False)).axis(
        values=list(range(longest + 1)), format="d"
    )
    y = alt.Y("speedup:Q", title="speed-up over plain decoding").scale(zero=True).axis(format=".1f", grid=True)
    base = alt.Chart(alt.sequence(0, longest + 1, 1, as_="gamma")).transform_calculate(speedup="speedups[datum.gamma]")
    curve = base.mark_line(point=alt.OverlayMarkDef(size=30, color=ACCENT), color=ACCENT).encode(x=x, y=y)
    peak = base.transform_filter("datum.gamma == peak_gamma")
    mine = base.transform_filter("datum.gamma == gamma")
    says = "+ datum.gamma + ', ' + format(datum.speedup, '.2f') + 'x'"
    middle = alt.expr(f"datum.gamma < {longest / 3} ? 'left' : datum.gamma > {longest * 2 / 3} ? 'right' : 'center'")
    beside, away = (
        alt.expr(f"gamma < {longest / 2} ? {one} : {other}") for one, other in (("'left'", "'right'"), (8, -8))
    )
    layers = [
        alt.Chart(alt.Data(values=[{"one": 1}])).mark_rule(strokeDash=[5, 4], color=MUTED).encode(y="one:Q"),
        mine.mark_rule(color=MUTED).encode(x=x),
        curve,
        *_points(alt, x, y, presets),
        mine.mark_point(size=90, color=ACCENT, filled=False, strokeWidth=2).encode(x=x, y=y),
        mine.transform_calculate(text=f"'gamma ' {says}")
        .mark_text(dy=20, dx=away, align=beside)
        .encode(x=x, y=y, text="text:N"),
        peak.mark_point(size=140, color=ACCENT, filled=True, shape="diamond", opacity=1).encode(x=x, y=y),
        peak.transform_calculate(text=f"'peak: gamma ' {says}")
        .mark_text(dy=-16, align=middle, fontWeight="bold")
        .encode(x=x, y=y, text="text:N"),
    ]
    chart = alt.layer(*layers).add_params(*_params(alt, start, presets, longest))
    chart = chart.properties(width="container", height=320, description="Speed-up over draft length, by the sliders")
    spec: dict[str, Any] = chart_config(chart).to_dict()
    return spec


def _points(alt: Any, x: Any, y: Any, presets: Sequence[Preset]) -> list[Any]:
    """Measured buckets with their intervals; filled where the plan enables."""
    if not presets:
        return []
    rows = [
        {"index": index, **{name: value for name, value in asdict(preset).items() if name != "settings"}}
        for index, preset in enumerate(presets)
    ]
    base = alt.Chart(alt.Data(values=rows))
    tooltip = [
        alt.Tooltip("label:N", title="bucket"),
        alt.Tooltip("gamma:Q", title="gamma"),
        alt.Tooltip("speedup:Q", title="speed-up", format=".2f"),
        alt.Tooltip("low:Q", title="from", format=".2f"),
        alt.Tooltip("high:Q", title="to", format=".2f"),
    ]
    size = alt.condition("datum.index == picked", alt.value(150), alt.value(55))
    fill = alt.condition("datum.enable", alt.value(POINTS), alt.value("transparent"))
    return [
        base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        .mark_rule(color=POINTS, opacity=0.45)
        .encode(x=x, y="low:Q", y2="high:Q"),
        base.mark_point(color=POINTS, shape="square", opacity=1, strokeWidth=1.5).encode(
            x=x, y=y, size=size, fill=fill, tooltip=tooltip
        ),
    ]
