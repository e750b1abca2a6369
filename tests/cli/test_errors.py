"""Every bad input is one line on stderr, exit code 2, nothing on stdout, no traceback."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftproof.cli import options
from draftproof.errors import EngineError, NumericsError

Command = Callable[..., Any]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test when a model would be loaded: what is checked here must be said before that."""

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(options, "load", load)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["generate", "x", "--temperature", "-1"], "temperature must be a finite number >= 0, got -1.0"),
        (["generate", "x", "--temperature", "nan"], "temperature must be"),
        (["generate", "x", "--top-p", "0"], "top_p must be in (0, 1], got 0.0"),
        (["generate", "x", "--top-k", "0"], "top_k must be"),
        (["generate", "x", "--min-p", "2"], "min_p must be"),
        (["generate", "x", "--max-new-tokens", "-1"], "max_new_tokens must be"),
        (["generate", "x", "--max-new-tokens", "many"], "invalid int value: 'many'"),
        (["generate", "x", "--seed", "-1"], "seed must be"),
        (["generate", "x", "--rule", "magic"], "rule must be one of auto, reject, block, follow, coupled"),
        (["generate", "x", "--stop", ""], "stop must be"),
        (["generate", "x", "--bad-word", ""], "bad_words must be"),
        (["generate", "x", "--logit-bias", "7"], "'7' must be ID=VALUE"),
        (["generate", "x", "--logit-bias", "7=nan"], "logit_bias must be"),
        (["generate", "x", "--logprobs", "2"], "--json"),
        (["generate", "x", "--kv-memory", "2 parsecs"], "'2 parsecs' is no memory size"),
        (["generate", "x", "--kv-memory", "0"], "must be above 0"),
        (["generate", ""], "the prompt is empty"),
        (["generate"], "give one prompt"),
        (["generate", "x", "--prompt-file", "y"], "give one prompt"),
        (["generate", "--prompt-file", "/nowhere/at/all"], "can't read the prompt"),
        (["generate", "x", "--system", "s", "--no-chat"], "--system needs a chat prompt"),
        (["generate", "x", "--temprature", "1"], "unrecognized arguments: --temprature"),
        (["generate", "x", "--temp", "1"], "unrecognized arguments: --temp"),
        (["generate", "x", "y"], "unrecognized arguments: y"),
        (["--vers"], "required: COMMAND"),
        (["generat"], "invalid choice: 'generat'"),
        ([], "required: COMMAND"),
        (["cache", "burn"], "invalid choice: 'burn'"),
        (["demo", "--max-new-tokens", "-3"], "max_new_tokens must be"),
    ],
)
def test_said_in_one_line_before_anything_is_loaded(command: Command, argv: list[str], message: str) -> None:
    _one_line(command(*argv), 2, message)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--drafter", "oracle"], "oracle"),
        (["--backend", "abacus"], "backend must be one of"),
        (["--numerics", "vague"], "numerics must be one of"),
        (["--weights", "int2"], "weights must be one of"),
        (["--gamma", "-1"], "gamma must be"),
        (["--threads", "0"], "threads must be"),
    ],
)
@pytest.mark.parametrize("name", ["generate", "demo", "doctor"])
def test_the_library_s_refusals_are_one_line_too(command: Command, name: str, argv: list[str], message: str) -> None:
    prompt = ["x"] if name == "generate" else []
    _one_line(command(name, *prompt, *argv), 2, message)


def test_a_file_that_is_no_model_is_one_line(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    _one_line(command("generate", "x", "--model", str(path), "--cache-dir", str(tmp_path / "cache")), 2, "broken.gguf")


def test_a_corrupt_gguf_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path, cache = tmp_path / "broken.gguf", tmp_path / "cache"
    path.write_bytes(b"GGUF" + bytes(range(40)))
    argv = ["-m", "draftproof.cli.main", "generate", "x", "--model", str(path), "--cache-dir", str(cache)]
    ran = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False)
    _one_line(SimpleNamespace(code=ran.returncode, out=ran.stdout, err=ran.stderr), 2, "broken.gguf")
    assert not [path for path in cache.rglob("*") if path.is_dir()]  # an entry, whole or half-written, is a folder


def test_standard_input_must_be_text(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    _one_line(command("generate", "-"), 2, "can't read the prompt")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    _one_line(command("generate", "-"), 2, "the prompt is empty")


@pytest.mark.parametrize("error", [EngineError("it broke"), NumericsError("it broke")])
def test_a_broken_promise_is_exit_code_1(command: Command, monkeypatch: pytest.MonkeyPatch, error: EngineError) -> None:
    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(options, "load", load)
    _one_line(command("generate", "x"), 1, "error: it broke")


def test_a_message_of_several_lines_becomes_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise EngineError("first\n  second")

    monkeypatch.setattr(options, "load", load)
    _one_line(command("generate", "x"), 1, "first second")


def test_a_fault_of_ours_is_not_hidden(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(options, "load", load)
    with pytest.raises(ZeroDivisionError):
        command("generate", "x")


def _one_line(ran: Any, code: int, message: str) -> None:
    assert ran.code == code
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("draftproof: error: ")
    assert message in lines[0]


# -- as a process ------------------------------------------------------------------------------------------------------

_SLOW = """
import sys, time
from draftproof.cli import options
from draftproof.cli.main import main
def load(args, progress, one_text):
    print("ready", flush=True)
    time.sleep(30)
options.load = load
sys.exit(main(["generate", "x"]))
"""
_LONG = """
import sys
from draftproof.cli import cache
from draftproof.cli.main import main
def run(args):
    for _ in range(100_000):
        print("a line that nobody reads")
    return 0
cache.run = run
sys.exit(main(["cache", "list"]))
"""


def test_ctrl_c_is_one_line_and_130() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a run in the background ignores it
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == "draftproof: interrupted\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", _LONG], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, err = process.communicate(timeout=20)
    assert err == ""
    assert process.returncode == 141


def test_ctrl_c_inside_a_text_ends_its_line(command: Command, fake: Any) -> None:
    fake.interrupt = True
    ran = command("generate", "x")
    assert ran.code == 130
    assert ran.out == "The sky \n"
    assert ran.err == "draftproof: interrupted\n"
    assert fake.closed


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("2KiB", 2048),
        ("1.5GiB", 3 << 29),
        ("1g", 1 << 30),
        ("2GB", 2 * 10**9),
        (" 512 MiB ", 512 << 20),
        ("1TiB", 1 << 40),
    ],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert options.memory(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 GiB 2", "1e3", "1PiB", "0.1"])
def test_what_is_no_memory_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.memory(text)


def test_an_encoding_that_lacks_a_character_never_ends_the_program(tmp_path: Path) -> None:
    code = "from draftproof.cli.console import soften, print_json as p; soften(); print('\\u2603'); p({'a': '\\u2603'})"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert ran.returncode == 0, ran.stderr
    assert "\\u2603" in ran.stdout
    assert json.loads(ran.stdout[ran.stdout.index("{") :]) == {"a": "\u2603"}


def test_a_cache_folder_that_is_a_file_is_an_input_error(command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = command("cache", "list", "--cache-dir", str(tmp_path / "file"))
    assert ran.code == 2
    assert "--cache-dir" in ran.err
