"""`draftproof cost`: what it refuses, what it shows, and that its file is one that plans can read."""

import json
import os
from pathlib import Path

import pytest

from draftproof.cli import cost as command
from draftproof.cli.main import main
from draftproof.planner.cost import CostCurve

FOUND = {
    "format": 1,
    "target": [{"sequences": 1, "rows": n, "context": 64, "ms": 9.0 + n, "error": 0.01} for n in (1, 5)],
    "drafters": {"suffix": [{"sequences": 1, "tokens": 4, "context": 64, "ms": 0.5, "error": 0.01}]},
    "check": {
        "within": 0.1,
        "holds": True,
        "runs": [
            {"drafter": "suffix", "sequences": 1, "tokens": 48, "measured_ms_per_token": 6.0,
             "predicted_ms_per_token": 6.3, "ratio": 1.05}
        ],
    },
}  # fmt: skip


@pytest.fixture
def found(monkeypatch):
    """The command with its measuring replaced; what it was asked for."""
    asked = []
    result = json.loads(json.dumps(FOUND))

    def measure(settings, words, stage, begin):
        asked.append(settings)
        begin(2)("a line")
        return result

    monkeypatch.setattr(command, "measure_cost_file", measure)
    return asked, result


def test_the_file_is_written_and_shown(found, tmp_path, capsys):
    out = tmp_path / "cost.json"
    assert main(["cost", "--drafter", "suffix", "--out", str(out)]) == 0
    assert CostCurve.from_json(json.loads(out.read_text())).step(1, 3, 64) == 12.0
    shown = capsys.readouterr().out
    assert "10.0" in shown
    assert "1.05" in shown
    assert str(out) in shown
    assert found[0][0].drafters[0].label == "suffix"


def test_json_is_the_files_content(found, tmp_path, capsys):
    assert main(["cost", "--out", str(tmp_path / "c.json"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == FOUND


def test_a_curve_that_misses_decoding_is_kept_and_exits_1(found, tmp_path, capsys):
    found[1]["check"]["holds"] = False
    out = tmp_path / "c.json"
    assert main(["cost", "--out", str(out), "--quiet"]) == 1
    assert "misses real decoding by more than 10 %" in capsys.readouterr().err
    assert out.exists()


def test_a_file_that_is_there_is_kept_without_force(found, tmp_path, capsys):
    out = tmp_path / "c.json"
    out.write_text("mine")
    assert main(["cost", "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert not found[0]
    assert main(["cost", "--out", str(out), "--force", "--quiet"]) == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([], "give --out FILE, or --run RUN"),
        (["--out", "no/such/folder/c.json"], "there is no folder"),
        (["--out", "c.json", "--sequences", "1,x"], "whole numbers"),
        (["--out", "c.json", "--sequences", "0"], "sequences"),
        (["--out", "c.json", "--rows", "2,3"], "plain step"),
        (["--out", "c.json", "--passes", "0"], "passes"),
        (["--out", "c.json", "--drafter", "none"], "none"),
        (["--out", "c.json", "--drafter", "bogus"], "bogus"),
        (["--out", "c.json", "--text", "no-such-file"], "no-such-file"),
        (["--out", "c.json", "--temperature", "-1"], "temperature"),
        (["--out", "c.json", "--run", "no-such-run"], "no-such-run"),
        (["--run", "no-such-run"], "no-such-run"),
        (["--out", "c.json", "--model", "no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(words, match, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["cost", "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert match in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


RUN = {
    "format": 1, "gamma_max": 6, "complete": True,
    "sampling": {"temperature": 0.7, "top_p": 0.9, "rule": "coupled", "seed": 3},
    "model": {"name": "demo", "weights": "int8", "backend": "openvino", "numerics": "invariant"},
    "drafters": [
        {"name": "lookup", "kind": "ngram", "model": None},
        {"name": "exit", "kind": "early_exit", "model": {"name": "demo", "num_layers": 4}},
        {"name": "small", "kind": "model", "model": {"name": "demo", "num_layers": 30}},
    ],
}  # fmt: skip


def test_a_runs_costs_are_those_of_what_it_was_measured_with(found, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert main(["cost", "--run", str(tmp_path), "--quiet"]) == 0
    asked = found[0][0]
    assert asked.model == "demo"
    assert [(one.label, one.kind, one.exit_layer, one.model) for one in asked.drafters] == [
        ("lookup", "ngram", None, None), ("exit", "early_exit", 4, None), ("small", "model", None, "demo")
    ]  # fmt: skip
    assert (asked.sampling.temperature, asked.sampling.top_p) == (0.7, 0.9)
    assert asked.engine["weights"] == "int8"
    assert asked.grid.rows[-1] == 7
    assert asked.grid.tokens[-1] == 6
    assert (tmp_path / "cost.json").exists()


@pytest.mark.demo
def test_on_the_demo_model(tmp_path, capsys):
    out = tmp_path / "cost.json"
    words = ["--sequences", "1,2", "--rows", "1,2", "--contexts", "32", "--tokens", "1", "--passes", "1"]
    code = main(["cost", "--drafter", "ngram", *words, "--out", str(out), "--json"])
    assert code in (0, 1)  # 1: a busy machine's check may miss; that is no fault of the file
    cost = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == cost
    assert CostCurve.from_json(cost).loads == (1, 2)
    assert cost["model"]["num_layers"] == 30
    assert (cost["sampling"]["temperature"], cost["sampling"]["rule"]) == (0, "follow")
    assert Path(cost["command"][0]).name == "draftproof"
    assert os.path.getsize(out) > 500
