"""The report of a plan and the calculator, each one HTML file that opens offline.

Does not know: how a plan is made, how a page is put together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftproof.measure import report_page, report_tables
from draftproof.measure.report_charts import Figure, figures
from draftproof.measure.report_sliders import LONGEST, Preset, Settings, presets_of, slider_chart
from draftproof.planner import price
from draftproof.planner.plan import Plan

__all__ = ["Settings", "write_calculator", "write_report"]

_TEXTBOOK = Settings(t_target=100.0, t_draft=8.0, gamma=4, alpha=0.6)


def write_report(plan: Plan, path: str | Path, run: Mapping[str, Any] | None = None) -> None:
    """The report of a plan. run: the run's run.json, for where the numbers come from.

    Raises InputError where altair or vl-convert is not installed, or the file can't be written.
    """
    alt = report_page.altair()
    presets = presets_of(plan)
    start = presets[0].settings if presets else _TEXTBOOK
    content = {
        "plan": plan,
        "summary": report_tables.summary(plan),
        "decisions": report_tables.decisions(plan),
        "tables": report_tables.tables(plan),
        "provenance": report_tables.provenance(plan, run),
        "buckets": [bucket.name for bucket in plan.buckets],
        "loads": sorted(plan.concurrency),
        "presets": [_preset(preset) for preset in presets],
    }
    title = f"Speculation plan: {plan.target.get('name') or 'model'}"
    page = report_page.render(title, [_sliders(alt, start, presets), *figures(alt, plan)], content)
    report_page.write(path, page)


def write_calculator(path: str | Path, settings: Settings) -> None:
    """The interactive page alone. Raises InputError for settings without meaning, and as `write_report`."""
    price.tokens_per_round(settings.alpha, settings.gamma)
    costs = price.round_costs(settings.t_target, settings.t_draft, settings.verify_slope)
    longest = max(LONGEST, price.best_gamma(settings.alpha, costs))  # the page's peak is the calculator's
    content = dict.fromkeys(("plan", "summary", "decisions"), None) | dict.fromkeys(
        ("tables", "provenance", "buckets", "loads", "presets"), ()
    )
    title = "Speculation calculator"
    report_page.write(path, report_page.render(title, [_sliders(report_page.altair(), settings, (), longest)], content))


def _sliders(alt: Any, start: Settings, presets: Sequence[Preset], longest: int = LONGEST) -> Figure:
    return Figure("sliders", "sliders", "Speed-up over draft length", slider_chart(alt, start, presets, longest))


def _preset(preset: Preset) -> dict[str, Any]:
    """For the page's list: a label, and the signals to set."""
    settings = dataclasses.asdict(preset.settings)
    settings["slope"] = settings.pop("verify_slope")
    return {"label": preset.label, "json": report_page.as_json(settings)}
