"""`draftproof plan`: the calculator, a run planned with every kind of cost, tables that fit, and options that clash."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.main import main
from draftproof.planner.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.plan_speed import Shape, write_run  # noqa: E402

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two drafters over two buckets, with costs."""
    folder = tmp_path_factory.mktemp("plan") / "run"
    write_run(folder, Shape("small", prompts=26, tokens=40, drafters=2, buckets=2))
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """The same where a test may write; the parts are shared."""
    for name in ("parts", "prompts"):
        (tmp_path / name).symlink_to(written / name)
    for name in ("run.json", "cost.json"):
        (tmp_path / name).write_text((written / name).read_text())
    return tmp_path


CALCULATOR = ("plan", "--t-target", "100", "--t-draft", "8")


def test_the_calculator_prints_one_object(command: Command) -> None:
    value = command(*CALCULATOR, "--gamma", "4", "--tokens-per-round", "3", "--json").json
    assert value["itl_ms"] == 44.0
    assert value["speedup"] == pytest.approx(2.2727, abs=1e-4)
    assert value["tokens_per_round"] == 3
    assert value["best_gamma"] == 5
    assert value["break_even_alpha"] == pytest.approx(0.08)
    assert value["alpha"] == pytest.approx(0.7413, abs=1e-4)


def test_the_calculator_with_alpha(command: Command) -> None:
    value = command(*CALCULATOR, "--alpha", "0.2", "--json").json
    assert (value["gamma"], value["best_gamma"]) == (1, 1)
    assert f"{value['speedup']:.2f}" == "1.11"
    value = command(*CALCULATOR, "--alpha", "0.2", "--gamma", "16", "--json").json
    assert f"{value['speedup']:.2f}" == "0.55"
    value = command(*CALCULATOR, "--alpha", "0.9", "--gamma", "70", "--verify-slope", "0.02", "--json").json
    assert value["itl_ms"] == pytest.approx((70 * 8 + 100 * (1 + 1.4)) * 0.1 / (1 - 0.9**71))
    assert value["break_even_alpha"] == pytest.approx(0.10)


def test_the_calculator_speaks(command: Command) -> None:
    out = command(*CALCULATOR, "--gamma", "4", "--tokens-per-round", "3", "--price-per-hour", "3.6").out
    assert "44.0 ms a token, 2.27x" in out
    assert "best draft length: 5" in out
    assert "wins above an acceptance of 0.08" in out
    assert "a million tokens: 44.00 instead of 100.00" in out
    assert ": a loss" in command(*CALCULATOR, "--gamma", "16", "--alpha", "0.2").out
    assert "no acceptance is high enough" in command("plan", "--t-target", "5", "--t-draft", "8", "--alpha", "0.9").out


def test_the_calculator_at_gamma_0(command: Command) -> None:
    value = command(*CALCULATOR, "--gamma", "0", "--tokens-per-round", "1", "--json").json
    assert (value["speedup"], value["alpha"], value["best_gamma"]) == (1, None, None)
    assert "gamma 0: 1.00 tokens per round\n" in command(*CALCULATOR, "--gamma", "0", "--tokens-per-round", "1").out


def test_a_run_with_its_own_costs(command: Command, folder: Path) -> None:
    ran = command("plan", str(folder), "--price-per-hour", "2.5", "--memory", "80GiB")
    assert ran.code == 0
    plan = Plan.from_json(json.loads((folder / "plan.json").read_text()))
    assert plan.concurrency == (1, 8, 64), "the loads that were measured"
    assert [bucket.name for bucket in plan.buckets] == ["all", "bucket-0", "bucket-1"]
    point = plan.bucket("bucket-1").band(8).point
    line = next(line for line in ran.out.splitlines() if line.startswith("bucket-1  drafter-") and "   8 " in line)
    assert f"{point.speedup.mean:.2f}x" in ran.out
    assert line.split()[2] == "8"
    for title in ("acceptance of tested drafts", "best draft length", "if acceptance or the cost", "memory in GiB"):
        assert title in ran.out
    assert "1M plain" in ran.out
    assert "fits" in ran.out
    assert not [name for name in folder.iterdir() if name.name.endswith(".tmp")]


def test_json_is_the_stored_plan(command: Command, folder: Path) -> None:
    value = command("plan", str(folder), "--json", "--concurrency", "1,4").json
    assert value == json.loads((folder / "plan.json").read_text())
    assert value["concurrency"] == [1, 4]


def test_constants_by_drafter(command: Command, folder: Path) -> None:
    options = ("--t-target", "10", "--t-draft", "drafter-1=0.5", "--t-draft", "4", "--verify-slope", "0.01")
    value = command("plan", str(folder), *options, "--json").json
    assert (value["cost_kind"], value["concurrency"]) == ("constant", [1])
    curves = value["buckets"][0]["bands"][0]["curves"]
    assert [curve["t_draft_ms"] for curve in curves] == pytest.approx([4, 0.5])
    assert value["buckets"][0]["bands"][0]["verify_slope"] == pytest.approx(0.01)


def test_a_cost_file_by_name(command: Command, folder: Path) -> None:
    (folder / "cost.json").rename(folder / "elsewhere.json")
    assert command("plan", str(folder), "--cost", str(folder / "elsewhere.json")).code == 0


def test_do_not_enable_is_said_with_its_reason(command: Command, folder: Path) -> None:
    out = command("plan", str(folder), "--t-target", "10", "--t-draft", "20").out
    assert "all, load 1: do not enable: nothing is faster than plain decoding" in out
    assert "all: no break-even load: costs are constants" in out
    assert "note: costs are constants" in out


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = command("plan", str(folder), "--price-per-hour", "2.5", "--memory", "80GiB").out
    out = re.sub(r"\x1b\[[0-9;]*m", "", out)
    tables = [line for line in out.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= columns
    assert " speed-up " in out


def test_the_report_is_written_where_it_is_asked_for(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Plan, Path, dict[str, Any]]] = []
    monkeypatch.setattr("draftproof.measure.report.write_report", lambda *given: asked.append(given))
    ran = command("plan", str(folder), "--html", str(folder / "report.html"), "--json")
    ((plan, path, info),) = asked
    assert path == folder / "report.html"
    assert info["gamma_max"] == plan.gamma_max == ran.json["gamma_max"]
    assert str(path) in ran.err


def test_the_calculators_page(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr("draftproof.measure.report.write_calculator", lambda *given: asked.append(given))
    command(*CALCULATOR, "--alpha", "0.6", "--verify-slope", "0.05", "--html", "page.html")
    ((path, settings),) = asked
    assert path == "page.html"
    assert (settings.t_target, settings.t_draft, settings.alpha, settings.verify_slope) == (100, 8, 0.6, 0.05)
    assert (
        settings.gamma == command(*CALCULATOR, "--alpha", "0.6", "--verify-slope", "0.05", "--json").json["best_gamma"]
    )


def test_a_folder_that_can_not_be_written_is_planned_all_the_same(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.replace", refuse)
    ran = command("plan", str(folder))
    assert ran.code == 0
    assert "best draft length" in ran.out
    assert f"can't write {folder / 'plan.json'}: Permission denied" in ran.err
    assert not [name for name in folder.iterdir() if name.name.endswith(".tmp")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give a RUN folder, or for the calculator --t-target and --t-draft"),
        (("--t-target", "3"), "give a RUN folder"),
        (("--t-target", "3", "--t-draft", "1"), "needs either --alpha or --tokens-per-round"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", ".3", "--tokens-per-round", "2"), "either --alpha or"),
        (("--t-target", "3", "--t-draft", "1", "--tokens-per-round", "2"), "--gamma"),
        (("--t-target", "3", "--t-draft", "a=1", "--alpha", ".2"), "names 'a'; without RUN drafters have no names"),
        (("--t-target", "3", "--t-draft", "1", "--t-draft", "2", "--alpha", ".2"), "twice for all drafters"),
        (("--t-target", "3", "--t-draft", "1", "--gamma", "2", "--tokens-per-round", "4"), "lie within 1 and 3, got 4"),
        (("--t-target", "3", "--t-draft", "1", "--gamma", "0", "--tokens-per-round", "2"), "gamma 0 is plain"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", "1.4"), "alpha must be within 0 and 1"),
        (("--t-target", "0", "--t-draft", "1", "--alpha", ".4"), "time must be above 0"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", ".4", "--gamma", "-1"), "gamma must be an integer >= 0"),
        (("--t-target", "nan", "--t-draft", "1", "--alpha", ".4"), "'nan' is no number >= 0"),
        (("--t-target", "3", "--t-draft", "x", "--alpha", ".4"), "'x' is no number >= 0"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", ".4", "--memory", "3GiB"), "--memory needs a RUN folder"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", ".4", "--context", "9"), "--context needs a RUN folder"),
        (("--t-target", "3", "--t-draft", "1", "--alpha", ".4", "--concurrency", "8"), "--concurrency needs a RUN"),
    ],
)
def test_calculator_options_that_clash(command: Command, options: tuple[str, ...], says: str) -> None:
    ran = command("plan", *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--alpha", ".3"), "--alpha belongs to the calculator"),
        (("--gamma", "3"), "--gamma belongs to the calculator"),
        (("--cost", "x.json"), "x.json can't be read as a cost file"),
        (("--cost", "x.json", "--t-target", "4"), "--cost and --t-target say the same thing twice"),
        (("--t-target", "4"), "constants need both --t-target and --t-draft"),
        (("--verify-slope", "0.1"), "constants need both --t-target and --t-draft"),
        (("--t-target", "4", "--t-draft", "foo=3"), "names 'foo'; the run's drafters are drafter-0, drafter-1"),
        (("--t-target", "4", "--t-draft", "drafter-0=3"), "no cost of the drafter 'drafter-1'"),
        (("--concurrency", "1,x"), "'1,x' must be numbers with commas between"),
        (("--concurrency", "0"), "concurrency must be numbers >= 1"),
        (("--concurrency", "2,2"), "concurrency names a number twice"),
        (("--context", "0"), "context must be at least 1"),
        (("--price-per-hour", "0"), "price of an hour must be above 0"),
        (("--memory", "much"), "'much' is no memory size"),
    ],
)
def test_run_options_that_clash(command: Command, folder: Path, options: tuple[str, ...], says: str) -> None:
    ran = command("plan", str(folder), *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert not (folder / "plan.json").exists()


def test_without_any_cost_it_says_how_to_get_one(command: Command, folder: Path) -> None:
    (folder / "cost.json").unlink()
    ran = command("plan", str(folder))
    assert ran.code == 2
    assert f"measure them with `draftproof cost --run {folder}`" in ran.err


def test_no_run(command: Command, tmp_path: Path) -> None:
    assert "is no folder" in command("plan", str(tmp_path / "nowhere")).err
    assert "has no run.json" in command("plan", str(tmp_path)).err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    assert "examples:\n  draftproof plan" in capsys.readouterr().out


def test_a_report_replaces_reports_only(command: Command, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"prompt": "x"}\n')
    run, page = folder / "run.json", tmp_path / "page.html"
    before = run.read_text()
    for words in (
        ["plan", str(folder), "--html", str(run)],
        ["plan", str(folder), "--html", str(folder / "plan.json")],
        ["plan", str(folder), "--html", str(mine)],
        [*CALCULATOR, "--alpha", "0.4", "--html", str(mine)],
        [*CALCULATOR, "--alpha", "0.4", "--html", str(tmp_path)],
    ):
        refused = command(*words)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert run.read_text() == before
    assert mine.read_text() == '{"prompt": "x"}\n'
    for _ in range(2):
        command(*CALCULATOR, "--alpha", "0.4", "--html", str(page))


def test_a_draft_length_without_a_price_is_refused_at_once(command: Command) -> None:
    refused = command(*CALCULATOR, "--gamma", "100000", "--alpha", "0.4")
    assert refused.code == 2
    assert "at most 256" in refused.err


def test_costs_that_failed_their_check_are_noted(command: Command, folder: Path) -> None:
    costs = json.loads((folder / "cost.json").read_text())
    for holds, wanted in ((False, True), (True, False)):
        (folder / "cost.json").write_text(json.dumps(costs | {"check": {"holds": holds, "runs": []}}))
        notes = command("plan", str(folder), "--json").json["notes"]
        assert any("failed its own check" in note for note in notes) is wanted
    assert "failed" not in command("plan", str(folder)).out


def test_what_lies_beyond_the_costs_is_named(command: Command, folder: Path) -> None:
    out = command("plan", str(folder), "--concurrency", "500").out
    assert "rows each" in out
    assert "up to 64 sequences" in out


def test_a_best_length_at_the_end_of_the_search_is_said(command: Command) -> None:
    words = ("plan", "--t-target", "100", "--t-draft", "0.1", "--alpha")
    long = command(*words, "0.97", "--json").json  # beyond 64, and a true peak
    gains = [sum(0.97**k for k in range(gamma + 1)) / (1 + 0.001 * gamma) for gamma in range(400)]
    assert long["best_gamma"] == gains.index(max(gains)) > 64
    assert long["notes"] == []
    endless = command(*words, "1", "--json").json
    assert endless["best_gamma"] == 256
    (note,) = endless["notes"]
    assert "searched up to 256 only" in note
    assert f"note: {note}\n" in command(*words, "1").out
    assert "note:" not in command(*words, "0.97").out


COSTS_OF = {"temperature": 0.0, "top_k": None, "top_p": 1.0, "rule": "follow"}


@pytest.mark.parametrize(
    ("costs", "run", "says"),
    [
        (
            COSTS_OF,
            {"temperature": 0.8, "top_p": 0.95, "rule": "coupled"},
            "(costs: temperature 0.0, top_p 1.0, rule follow; ",
        ),
        (
            COSTS_OF,
            {"temperature": 0.8, "top_p": 0.95, "rule": "coupled"},
            "; acceptance: temperature 0.8, top_p 0.95, rule coupled)",
        ),
        (
            {"temperature": 0.8, "top_k": 40},
            {"temperature": 0.8, "top_k": None},
            "(costs: top_k 40; acceptance: top_k not given)",
        ),
        (COSTS_OF, {"temperature": 0, "top_p": 0.9, "rule": "coupled"}, None),  # no law is built
        (COSTS_OF, COSTS_OF, None),
        ({"temperature": 0.8}, {"temperature": 0.8, "min_p": 0.1}, None),  # an older cost file says no more
        (None, COSTS_OF, None),
    ],
)
def test_costs_under_other_sampling_than_the_run_are_noted(
    command: Command, folder: Path, costs: dict[str, Any] | None, run: dict[str, Any], says: str | None
) -> None:
    for name, sampling in (("cost.json", costs), ("run.json", run)):
        value = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(value | {"sampling": sampling}))
    ran = command("plan", str(folder))
    stored = json.loads((folder / "plan.json").read_text())["notes"]
    notes = [note for note in stored if "other sampling parameters" in note]
    assert len(notes) == (says is not None)
    for note in notes:
        assert says is not None
        assert says in note
        assert f"note: {note}\n" in ran.out
