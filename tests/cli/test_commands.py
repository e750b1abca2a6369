"""`cache`, `doctor`, --help, --version, and plain text where nobody watches."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof import __version__
from draftproof.cli import console
from draftproof.cli.main import main
from draftproof.models.cache import Cache

Command = Callable[..., Any]


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A cache folder with two entries."""

    def make(folder: Path) -> None:
        (folder / "data").write_bytes(bytes(1000))

    Cache(tmp_path).build("graph", "a" * 24, "demo", make)
    Cache(tmp_path).build("folder", "b" * 24, "other", make)
    return str(tmp_path)


def test_cache_lists(command: Command, filled: str) -> None:
    out = command("cache", "list", "--cache-dir", filled).out
    assert [line.split()[0] for line in out.splitlines()] == ["model", "demo", "other"]
    value = command("cache", "list", "demo", "--cache-dir", filled, "--json").json
    assert value["dir"] == filled
    (entry,) = value["entries"]
    assert entry["name"] == "demo"
    assert entry["bytes"] >= 1000
    assert Path(entry["path"]).is_dir()


def test_cache_clears_one_then_all(command: Command, filled: str) -> None:
    freed = command("cache", "clear", "demo", "--cache-dir", filled, "--json").json["freed_bytes"]
    assert freed >= 1000
    names = [entry["name"] for entry in command("cache", "list", "--cache-dir", filled, "--json").json["entries"]]
    assert names == ["other"]
    assert command("cache", "clear", "--cache-dir", filled).out.startswith("freed ")
    assert command("cache", "list", "--cache-dir", filled).out == f"nothing in {filled}\n"


def test_clearing_leaves_what_is_not_draftproofs(command: Command, filled: str) -> None:
    thesis = Path(filled) / "thesis.txt"
    thesis.write_text("years of work")
    assert command("cache", "clear", "--cache-dir", filled).code == 0
    assert command("cache", "list", "--cache-dir", filled, "--json").json["entries"] == []
    assert thesis.read_text() == "years of work"


def test_clearing_what_is_not_there_is_an_input_error(command: Command, filled: str) -> None:
    ran = command("cache", "clear", "nobody", "--cache-dir", filled)
    assert ran.code == 2
    assert "nobody" in ran.err


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_doctor_reports(command: Command, fake: Any, monkeypatch: pytest.MonkeyPatch, ok: bool, code: int) -> None:
    from draftproof.engine import doctor

    report = {"ok": ok, "machine": {"cores": 2, "drift": 0.125}, "fast_drift": None}
    monkeypatch.setattr(doctor, "run", lambda llm, progress: report if llm is fake else None)
    ran = command("doctor", "--json")
    assert ran.code == code
    assert ran.json == report
    ran = command("doctor")
    assert ran.code == code
    assert "machine.drift  0.125" in ran.out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"draftproof {__version__}\n"


@pytest.mark.parametrize("name", ["generate", "demo", "doctor", "cache"])
def test_each_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"examples:\n  draftproof {name}" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom draftproof.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'openvino', 'rich', 'nncf'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


def test_the_beginning_of_loading_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with console.loading(quiet=False) as progress:
        progress("early")
        progress("quick")
        now[0] += 10
        progress("late")
    with console.loading(quiet=False) as progress:
        now[0] += 10
        progress("first")
    with console.loading(quiet=True) as progress:
        progress("never")
    assert capsys.readouterr().err == "late\n"


def test_a_terminal_gets_a_table_and_a_pipe_plain_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.print_table(["a", "b", "c"], [["x", "yy", "1"], ["xx", "y", "10"]])
    assert capsys.readouterr().out == "a   b    c\nx   yy   1\nxx  y   10\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.print_table(["a", "b", "c"], [["x", "yy", "1"]], title="a title")
    out = capsys.readouterr().out
    assert "a title" in out
    assert "─" in out


def test_the_package_runs_as_a_module():
    ran = subprocess.run([sys.executable, "-m", "draftproof", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("draftproof ")
    wrong = subprocess.run([sys.executable, "-m", "draftproof", "magic"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
