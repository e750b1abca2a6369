"""`draftproof measure`: what it prints, where it ends, and that nothing given is ignored."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import measure_watch
from draftproof.cli.main import parser
from draftproof.cli.measure import next_commands, settings_of
from draftproof.errors import EngineError, InputError
from draftproof.measure import run as running

Command = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, two data files, and toy engines behind `measure`."""
    spec = importlib.util.spec_from_file_location("toy_cli", Path(__file__).parents[1] / "measure" / "toy_cli.py")
    assert spec is not None
    assert spec.loader is not None
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    monkeypatch.setattr(running, "build_each", toy.build_each)
    toy.make_folder(tmp_path / "model")
    prompts = [{"prompt": f"no no no {i}", "task": "ab"[i % 2]} for i in range(6)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in prompts))
    return tmp_path


def arguments(place: Path, *more: str) -> list[str]:
    base = [
        "measure",
        "--model",
        str(place / "model"),
        "--data",
        str(place / "data.jsonl"),
        "--out",
        str(place / "run"),
    ]
    short = ["--max-new-tokens", "10", "--gamma", "3", "--batch", "2", "--cache-dir", str(place / "cache")]
    return [*base, *short, "--drafter", "suffix", "--drafter", "tiny=early_exit:2", *more]


def test_the_table_and_what_to_type_next(command: Command, place: Path) -> None:
    ran = command(*arguments(place, "--bucket-field", "task"))
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split() == ["bucket", "drafter", "prompts", "tokens", "accepted", "counted", "tok/round"]
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["a", "suffix", "3", "27"],
        ["a", "tiny", "3", "27"],
        ["b", "suffix", "3", "27"],
        ["b", "tiny", "3", "27"],
    ]
    assert lines[5:] == ["next:", f"  draftproof cost --run {place / 'run'}", f"  draftproof plan {place / 'run'}"]
    assert ran.err.splitlines()[0] == "measuring 12 texts"


def test_json_is_one_object(command: Command, place: Path) -> None:
    ran = command(*arguments(place, "--json", "--quiet", "--temperature", "0.8"))
    assert ran.err == ""
    found = ran.json
    assert found["run"] == str(place / "run")
    assert found["complete"] is True
    assert found["untouched"] is False
    assert found["log"] is False
    assert (found["prompts"], found["gamma"], found["excluded_tokens"], found["failed_texts"]) == (6, 3, 0, 0)
    assert [line["drafter"] for line in found["results"]] == ["suffix", "tiny"]
    for line in found["results"]:
        assert line["bucket"] == "default"
        assert line["prompts"] == 6
        assert line["tokens"] == 54
        for name in ("acceptance", "tokens_per_round", "acceptance_counted", "tokens_per_round_counted"):
            assert line[name]["low"] <= line[name]["mean"] <= line[name]["high"]
    assert found["next"] == next_commands(place / "run")


def test_at_temperature_0_counted_and_expected_are_the_same_number(command: Command, place: Path) -> None:
    lines = command(*arguments(place, "--json", "--quiet", "--max-new-tokens", "60")).json["results"]
    assert all(line["acceptance"] for line in lines)
    for line in lines:
        assert line["acceptance_counted"]["mean"] == pytest.approx(line["acceptance"]["mean"], abs=1e-9)
        assert line["tokens_per_round_counted"]["mean"] == pytest.approx(line["tokens_per_round"]["mean"], abs=1e-9)


def test_a_complete_run_says_so_and_shows_the_same(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = command(*arguments(place, "--quiet"))
    monkeypatch.setattr(running, "build_each", None)
    again = command(*arguments(place))
    assert again.code == 0
    assert again.out == first.out
    assert again.err == f"{place / 'run'} is complete: nothing was measured\n"
    assert command(*arguments(place, "--json", "--quiet")).json["untouched"] is True


def test_bad_lines_are_told_with_their_numbers(command: Command, place: Path) -> None:
    with (place / "data.jsonl").open("a") as file:
        file.write("".join("{\n" for _ in range(7)))
    ran = command(*arguments(place))
    assert ran.code == 0
    told = [line for line in ran.err.splitlines() if "skipped" in line]
    assert told[0].startswith("line 7 skipped: not JSON")
    assert len(told) == 6
    assert told[5] == f"2 lines more were skipped, see {place / 'run' / 'skipped.jsonl'}"


def test_a_log_that_the_model_can_t_have_written_is_told(command: Command, place: Path) -> None:
    (place / "data.jsonl").write_text(json.dumps({"prompt": "x", "completion": "zyxwvuts" * 4}) + "\n")
    ran = command(*arguments(place, "--log", "--no-chat"))
    assert ran.code == 0
    assert "of the tokens can't come from this model" in ran.err


def test_prompts_without_the_bucket_field_are_told(command: Command, place: Path) -> None:
    with (place / "data.jsonl").open("a") as file:
        file.write('{"prompt": "x"}\n')
    assert "1 prompts have no 'task'" in command(*arguments(place, "--bucket-field", "task")).err


def test_ctrl_c_says_how_to_carry_on(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = running.measure_group, 0

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(running, "measure_group", interrupted)
    ran = command(*arguments(place, "--quiet"))
    assert ran.code == 130
    assert ran.out == ""
    kept = f"what is measured so far is kept in {place / 'run'}: the same command carries on"
    assert ran.err.splitlines() == [kept, "draftproof: interrupted"]
    carried = command(*arguments(place))
    assert carried.code == 0
    assert carried.err.splitlines()[0] == "measuring 8 texts, 4 are there already"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--drafter", "suffix"], "two drafters are called 'suffix'"),
        (["--drafter", "fixed_tree"], "it proposes trees"),
        (["--drafter", "none"], "plain decoding has no drafts"),
        (["--drafter", "oracle"], "no drafter is called 'oracle'"),
        (["--gamma", "0"], "gamma must be in 1..64"),
        (["--gamma", "65"], "gamma must be in 1..64"),
        (["--batch", "0"], "batch must be in 1..64"),
        (["--limit", "0"], "limit must be at least 1"),
        (["--max-new-tokens", "0"], "max_new_tokens must be at least 1"),
        (["--temperature", "-1"], "temperature must be"),
        (["--top-p", "0"], "top_p must be"),
        (["--bucket-field", ""], "bucket_field must be"),
        (["--backend", "abacus"], "backend must be one of"),
        (["--data", "/nowhere/at/all"], "can't read the data file /nowhere/at/all"),
        (["--logprobs", "3"], "unrecognized arguments: --logprobs"),
        (["--draft-model", "x"], "--draft-model names the model or head of one drafter, and none here could take it"),
        (["--log", "--bucket-field", "nope"], "has the bucket field 'nope'"),
        (["--log"], "no line of"),
        (["--stop-id", "999999"], "token id 999999 in logit_bias, stop_ids or bad_words is outside the vocabulary"),
        (["--logit-bias", "999999=1"], "token id 999999 in logit_bias"),
        (["--kv-memory", "1KiB"], "has no line that can be measured (line 1: "),
    ],
)
def test_what_can_t_be_is_one_line_and_leaves_nothing(
    command: Command, place: Path, more: list[str], message: str
) -> None:
    ran = command(*arguments(place, *more))
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert line.startswith("draftproof: error: ")
    assert message in line
    assert not (place / "run").exists()


def test_the_names_of_settings_are_the_options(place: Path) -> None:
    args = parser().parse_args(arguments(place))
    (command,) = (action for action in parser()._actions if isinstance(action.choices, dict))
    options = {name for action in command.choices["measure"]._actions for name in action.option_strings}
    names = [name for name in settings_of(args).asked("") if name.startswith("--")]
    assert len(names) > 20
    assert [name for name in names if name not in options] == []


@pytest.mark.parametrize("wrong", [["--stop-id", "999999"], ["--top-k", "0"], ["--limit", "0"]])
def test_after_a_refusal_the_mended_command_runs(command: Command, place: Path, wrong: list[str]) -> None:
    refused = command(*arguments(place, *wrong))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert command(*arguments(place, "--stop-id", "7")).code == 0
    other = command(*arguments(place, "--stop-id", "8"))
    assert "--stop-id was [7], now it is [8]" in other.err


def test_what_ends_before_the_first_part_keeps_nothing_and_does_not_say_it_does(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running.measure_group
    for error, code in ((KeyboardInterrupt(), 130), (InputError("the disk is full"), 2), (EngineError("broken"), 1)):

        def fails(*_: Any, error: BaseException = error) -> Any:
            raise error

        monkeypatch.setattr(running, "measure_group", fails)
        ran = command(*arguments(place, "--quiet"))
        assert (ran.code, ran.err.count("\n")) == (code, 1)
        assert not (place / "run").exists()
    monkeypatch.setattr(running, "measure_group", real)
    assert command(*arguments(place, "--quiet", "--top-k", "5")).code == 0


def test_no_drafter_is_one_line(command: Command, place: Path) -> None:
    ran = command("measure", "--data", str(place / "data.jsonl"), "--out", str(place / "run"))
    assert ran.code == 2
    assert "no drafter: give --drafter" in ran.err


def test_other_settings_are_named(command: Command, place: Path) -> None:
    command(*arguments(place, "--quiet"))
    ran = command(*arguments(place, "--top-k", "5"))
    assert ran.code == 2
    assert "--top-k was not given, now it is 5" in ran.err


def test_without_pyarrow_one_line_says_what_to_install(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", refuse)
    ran = command(*arguments(place))
    assert ran.code == 2
    assert "pip install 'draftproof[measure]'" in ran.err
    assert not (place / "run").exists()


def test_the_engine_does_not_need_what_measuring_needs() -> None:
    import subprocess

    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['duckdb'] = None; import draftproof.cli.main as m; "
        "m.parser(); import draftproof.engine.llm, draftproof.measure.run"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


# -- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stderr that says it is one."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar(place: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ran = command(*arguments(place))
    assert ran.code == 0
    assert "12/12 texts" in terminal.getvalue()
    assert "tokens/s" in terminal.getvalue()


def test_the_time_left_is_that_of_the_pairs_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(measure_watch.time, "monotonic", lambda: now)
    pace = measure_watch._Pace()
    pace.begin(50, 10, 100)
    assert pace.seconds_left is None
    now = 110.0
    pace.tokens(500)  # five texts of a hundred tokens, under way
    assert pace.rate == 50
    assert pace.reached == 15
    assert pace.seconds_left == pytest.approx(70)
    pace.pairs(10)  # ten texts were done: some were short
    assert pace.reached == 20
    assert pace.line() == "measured 20 of 50 texts, 50 tokens/s, 0:30 left"
    now = 4000.0
    assert pace.line() == "measured 20 of 50 texts, 0 tokens/s, 3:15:00 left"


def test_plain_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(measure_watch.time, "monotonic", lambda: now)
    lines = measure_watch._Lines(lambda line: None)
    lines.begin(4, 0, 10)
    for second in range(25):
        now = float(second)
        lines.tokens(1)
    assert capsys.readouterr().err.splitlines() == [
        "measuring 4 texts",
        "measured 0 of 4 texts, 1 tokens/s, 0:26 left",
        "measured 0 of 4 texts, 1 tokens/s, 0:18 left",
    ]
