"""The report and the calculator without a browser: what is written, what is refused, whose formula it is."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

_PLANS = str(Path(__file__).resolve().parents[1] / "export")
if _PLANS not in sys.path:
    sys.path.insert(0, _PLANS)

from plans import MODEL, NGRAM, SUFFIX, make_plan, renamed  # noqa: E402

from draftproof.errors import InputError  # noqa: E402
from draftproof.measure import report_sliders, report_tables  # noqa: E402
from draftproof.measure.report import Settings, write_calculator, write_report  # noqa: E402
from draftproof.measure.report_page import as_json  # noqa: E402
from draftproof.planner import price  # noqa: E402

RUN = {
    "created": "2026-11-29T12:00:00Z",
    "command": ["draftproof", "measure", "--out", "a run"],
    "commit": None,
    "data": {"path": "prompts.jsonl", "sha256": "5eed" * 16, "prompts": 12},
    "machine": {"cpu": "a processor", "cores": 2},
    "versions": {"python": "3.11.7"},
}


class Elements(HTMLParser):
    """Tags with their attributes, the text of cells, and the content of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(" ".join(data.split()))


def test_the_expression_is_the_planners() -> None:
    for alpha, t_target, t_draft, slope in [
        (0.6, 100, 8, 0),
        (0.0, 11, 0.01, 0.3),
        (1.0, 80, 7, 0.02),
        (0.95, 3, 0, 1.5),
    ]:
        gains = price.speedups(alpha, price.round_costs(t_target, t_draft, slope, 16))
        names = {"alpha": alpha, "t_target": t_target, "t_draft": t_draft, "slope": slope}
        for gamma, gain in enumerate(gains):
            value = eval(report_sliders.speedup_expression(gamma), {"__builtins__": {}}, names)
            assert value == pytest.approx(gain, rel=1e-14)


def test_a_report_is_one_file_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(make_plan(SUFFIX, MODEL), path, RUN)
    page = path.read_text(encoding="utf-8")
    found = Elements(page)
    sources = [value for _, attrs in found.tags for name, value in attrs.items() if name in ("src", "href", "action")]
    assert sources == ["data:,"]  # no icon is asked for
    assert "url(" not in (Path(report_tables.__file__).parent / "report.css").read_text()
    for said in (
        "do not enable",
        "enable",
        "org/target-model, 135 M parameters, int8, openvino, invariant",
        "2 of 40 lines were skipped",
    ):
        assert said in found.texts
    assert f"path prompts.jsonl, sha256 {'5eed' * 16}, prompts 12" in found.texts
    assert "draftproof measure --out a run" in found.texts
    assert "commit" not in found.texts  # not known: not said
    names = [attrs["data-chart"] for tag, attrs in found.tags if tag == "script" and "data-chart" in attrs]
    assert names == ["sliders", "speedup-1", "speedup-8", "speedup-64", "acceptance", "tokens", "verify", "draft"]


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_report(make_plan(SUFFIX, MODEL), tmp_path / name, RUN)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'{{ 7*7 }}\u2028"
    plan = renamed(make_plan(SUFFIX), {"edit": nasty, "suffix": nasty, "org/target-model": nasty})
    plan = replace(plan, notes=(nasty,))
    write_report(plan, tmp_path / "r.html", {**RUN, "command": nasty, "machine": {"cpu": nasty}})
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    found = Elements(page)
    tags = [tag for tag, _ in found.tags]
    assert "img" not in tags
    assert tags.count("script") == 8 + 2  # the charts' data, Vega, and the page's own
    assert not [attrs for _, attrs in found.tags if any(name.startswith("on") for name in attrs)]
    said = " ".join(nasty.split())
    assert len([text for text in found.texts if said in text]) >= 6  # title, headings, cells, notes, provenance


def test_a_name_that_is_no_unicode_is_shown_escaped(tmp_path: Path) -> None:
    write_report(renamed(make_plan(SUFFIX), {"edit": "odd \udc80 name"}), tmp_path / "r.html")
    assert r"odd \udc80 name" in Elements((tmp_path / "r.html").read_text(encoding="utf-8")).texts


def test_json_stands_in_a_script() -> None:
    value = {"a": "</script><!-- \u2028 é"}
    text = as_json(value)
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == value
    with pytest.raises(ValueError):
        as_json({"a": float("nan")})


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_libraries_it_says_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    path = tmp_path / "r.html"
    with pytest.raises(InputError, match=re.escape("pip install 'draftproof[report]'")):
        write_report(make_plan(SUFFIX), path)
    with pytest.raises(InputError, match=re.escape("pip install 'draftproof[report]'")):
        write_calculator(path, Settings(100, 8, 4, 0.6))
    assert not path.exists()


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "folder.html", tmp_path):
        with pytest.raises(InputError, match="can't write"):
            write_calculator(path, Settings(100, 8, 4, 0.6))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings",
    [
        Settings(0, 8, 4, 0.6),
        Settings(100, -1, 4, 0.6),
        Settings(100, 8, -1, 0.6),
        Settings(100, 8, 4, 1.1),
        Settings(100, 8, 4, 0.6, -0.1),
    ],
)
def test_settings_without_meaning_are_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_calculator(tmp_path / "c.html", settings)


def test_presets_come_back_as_their_points() -> None:
    plan = make_plan(replace(MODEL, share=0.4))  # 4 of 10 drafts are made
    presets = report_sliders.presets_of(plan)
    assert [preset.label for preset in presets[:2]] == ["all, 1 at once, small", "all, 8 at once, small"]
    assert len(presets) == 9
    for preset in presets:
        s = preset.settings
        costs = price.round_costs(s.t_target, s.t_draft, s.verify_slope, 8)
        assert price.speedups(s.alpha, costs)[preset.gamma] == pytest.approx(preset.speedup, rel=2e-3)
        assert s.gamma == preset.gamma


def test_sliders_reach_every_preset() -> None:
    import altair

    long = report_sliders.Preset("long", 40, 3.0, None, None, True, Settings(3000, 0.001, 40, 0.99, 4.0))
    spec = report_sliders.slider_chart(altair, Settings(0.5, 300, 2, 0.1), [long])
    for param in spec["params"]:
        if "bind" in param:
            for settings in (Settings(0.5, 300, 2, 0.1), long.settings):
                value = {"slope": settings.verify_slope}.get(param["name"]) or getattr(settings, param["name"], 0)
                assert param["bind"]["min"] <= value <= param["bind"]["max"], param
    assert len(next(p for p in spec["params"] if p["name"] == "speedups")["expr"].split("t_target*")) > 80  # 0..40


def test_tables_say_what_the_plan_says() -> None:
    plan = make_plan(SUFFIX, NGRAM)
    rows = report_tables.decisions(plan).rows
    assert len(rows) == 9
    for row, (bucket, band) in zip(rows, ((b, x) for b in plan.buckets for x in b.bands), strict=True):
        texts = [cell.text for cell in row]
        assert texts[:3] == [bucket.name, str(band.concurrency), band.decision]
        assert row[2].mark == ("yes" if band.enable else "no")
        assert texts[5].startswith(f"{band.point.speedup.mean:.2f}x (")
    money = report_tables.capacity(plan)
    assert money.head[-1] == "saved per hour"
    unpriced = report_tables.capacity(replace(plan, price_per_hour=None))
    assert unpriced.title == "Capacity"
    assert len(unpriced.head) == len(unpriced.rows[0]) == 7
    assert len(money.head) == len(money.rows[0]) == 10
    assert len(report_tables.memory(replace(plan, memory_limit=None)).head) == 9
    assert report_tables.memory(plan).rows[0][-1].mark == "yes"


def test_the_summary() -> None:
    assert report_tables.summary(make_plan(SUFFIX)).startswith(
        "Enable in 3 of 6 cases (bucket by load), at best 5.10x in edit"
    )
    never = make_plan(replace(NGRAM, alphas={"all": 0.0}))
    assert report_tables.summary(never).startswith("Do not enable: in none of 3 cases")
    sure = make_plan(replace(SUFFIX, alphas={"all": 0.99}), loads=(1,))
    assert report_tables.summary(sure).startswith("Enable everywhere")


def all_tables(plan: Any) -> list[report_tables.Table]:
    return [report_tables.decisions(plan), *report_tables.tables(plan)]


def test_every_row_has_a_cell_for_each_column() -> None:
    for plan in (make_plan(SUFFIX, NGRAM, MODEL), make_plan(SUFFIX, loads=(1,), gamma_max=1, memory_limit=None)):
        for table in all_tables(plan):
            assert {len(row) for row in table.rows} <= {len(table.head)}, table.title
