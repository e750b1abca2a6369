"""`export`: what it prints and writes, and each way it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

_PLANS = str(Path(__file__).resolve().parents[1] / "export")
if _PLANS not in sys.path:
    sys.path.insert(0, _PLANS)

from plans import EARLY, NGRAM, SUFFIX, make_plan  # noqa: E402

Command = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a plan."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(make_plan(SUFFIX, NGRAM, EARLY).to_json()))
    return folder


def test_a_folder_and_its_plan_file_say_the_same(command: Command, run: Path) -> None:
    printed = command("export", str(run), "--to", "vllm")
    assert printed.code == 0
    assert printed.err == ""
    assert printed.out == command("export", str(run / "plan.json"), "--to", "vllm").out
    lines = printed.out.splitlines()
    assert lines[0] == "vLLM (names checked against 0.32.0)"
    assert lines[1].startswith("draft with ngram: ")
    assert "vllm serve org/target-model \\" in lines
    assert "- the drafter early: vLLM has none of the kind early_exit" in lines


def test_json_is_one_object(command: Command, run: Path) -> None:
    value = command("export", str(run), "--to", "sglang", "--concurrency", "1", "--json").json
    assert value["enabled"] is True
    assert value["engine"] == "SGLang"
    assert value["config"]["speculative-algorithm"] == "NGRAM"
    assert value["command"].startswith("python3 -m sglang.launch_server --model-path org/target-model")


def test_the_configuration_file_is_shown_or_written(command: Command, run: Path, tmp_path: Path) -> None:
    printed = command("export", str(run), "--to", "tensorrt-llm").out
    assert "speculative.yaml:\n\nspeculative_config:\n  decoding_type: SA\n" in printed
    out = tmp_path / "my file.yaml"
    printed = command("export", str(run), "--to", "tensorrt-llm", "--out", str(out)).out
    assert f"--config '{out}'" in printed
    assert "decoding_type" not in printed
    assert printed.endswith(f"written: {out}\n")
    assert yaml.safe_load(out.read_text())["speculative_config"]["decoding_type"] == "SA"
    assert "# not expressed: " in out.read_text()


def test_do_not_enable_is_no_error(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(make_plan(NGRAM).to_json()))
    printed = command("export", str(file), "--to", "llama.cpp", "--concurrency", "64")
    assert printed.code == 0
    assert "do not enable" in printed.out
    assert "\nllama-server -m org/target-model\n" in printed.out


def test_out_replaces_only_when_told(command: Command, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sh"
    out.write_text("years of work")
    refused = command("export", str(run), "--to", "vllm", "--out", str(out))
    assert refused.code == 2
    assert refused.err == f"draftproof: error: {out} is there already: give --force to replace it, or another name\n"
    assert refused.out == ""
    assert out.read_text() == "years of work"
    assert command("export", str(run), "--to", "vllm", "--out", str(out), "--force").code == 0
    assert "vllm serve org/target-model" in out.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_out_that_can_not_be_written(command: Command, run: Path, tmp_path: Path, force: list[str]) -> None:
    for out in (tmp_path / "no" / "such" / "folder.sh", Path("/dev/null/x"), run):
        refused = command("export", str(run), "--to", "vllm", "--out", str(out), *force)
        assert refused.code == 2
        assert len(refused.err.splitlines()) == 1
        assert str(out) in refused.err
    assert (run / "plan.json").exists()


def refusals(run: Path, tmp_path: Path) -> dict[str, list[str]]:
    """What must be said -> the arguments that ask for it."""
    (tmp_path / "empty").mkdir()
    for name, text in (("broken", "{"), ("list", "[]"), ("deep", "[" * 100_000), ("other", '{"format": 1}')):
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    cases = {
        f"{tmp_path}/empty holds no plan.json: make it with `draftproof plan {tmp_path}/empty`": "empty",
        f"no run and no plan at {tmp_path}/nowhere": "nowhere",
        "can't read the plan": "broken.json",
        "plan must be an object": "list.json",
        "can't read the plan ": "deep.json",
        "plan lacks the field": "other.json",
        "can't read the plan  ": "bytes.json",
    }
    asked = {said: [str(tmp_path / name), "--to", "vllm"] for said, name in cases.items()}
    asked["invalid choice: 'tgi'"] = [str(run), "--to", "tgi"]
    asked["--to"] = [str(run)]
    asked["load 3 was not planned (planned: 1, 8, 64)"] = [str(run), "--to", "vllm", "--concurrency", "3"]
    asked["--force says what to do"] = [str(run), "--to", "vllm", "--force"]
    return asked


def test_refusals_are_one_line_and_exit_code_2(command: Command, run: Path, tmp_path: Path) -> None:
    for said, argv in refusals(run, tmp_path).items():
        refused = command("export", *argv)
        assert (refused.code, refused.out) == (2, ""), argv
        assert len(refused.err.splitlines()) == 1
        assert said.strip() in refused.err


def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: Command) -> None:
    with pytest.raises(SystemExit):
        command("export", "--help")
    assert "examples:\n  draftproof export RUN --to vllm" in capsys.readouterr().out
