"""Colours and settings that all charts of the report share; chosen to be read on white and on near-black.

Text and axes take the page's own text colour, so that light and dark need one drawing only.

Does not know: what is drawn.
"""

from __future__ import annotations

from typing import Any

ACCENT = "#3b82c4"
POINTS = "#c8741d"
MUTED = "#8a8f98"
SERIES = (ACCENT, POINTS, "#2e9e6b", "#9a6fd0", "#d65f5f", "#1f9aa8", "#a8872a", "#c25a9b")

_INK = "currentColor"


def chart_config(chart: Any) -> Any:
    """The chart with the report's look."""
    return (
        chart.configure(
            background="transparent",
            font="system-ui, sans-serif",
            padding={"left": 4, "right": 14, "top": 8, "bottom": 4},
        )
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            tickColor=MUTED,
            domainColor=MUTED,
            gridColor=MUTED,
            gridOpacity=0.22,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            labelOverlap=True,
        )
        .configure_axisX(grid=False, labelFlush=False)
        .configure_legend(
            labelColor=_INK,
            titleColor=_INK,
            orient="top",
            labelFontSize=12,
            titleFontSize=12,
            columns=3,
            labelLimit=220,
            symbolOpacity=1,
            symbolType="stroke",
            symbolStrokeWidth=3,
        )
        .configure_text(color=_INK, fontSize=12)
        .configure_title(color=_INK, anchor="start", fontSize=13, fontWeight="normal")
        .configure_range(category=list(SERIES))
    )
