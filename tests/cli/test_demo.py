"""`draftproof demo`: the table, the exit code when a text differs, and what a terminal shows."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from draftproof.cli.demo_screen import LiveScreen, split_accepted
from draftproof.engine.outputs import StreamChunk

Command = Callable[..., Any]
CASES = [(name, mode) for name in ("edit", "passage", "chat") for mode in ("greedy", "sampled")]


def test_ends_with_the_table(command: Command, fake: Any) -> None:
    ran = command("demo")
    assert ran.code == 0
    head, *rows = ran.out.splitlines()
    assert head.split() == [
        "prompt", "mode", "plain", "drafted", "speed-up", "tok/pass", "accepted", "same", "bits",
    ]  # fmt: skip
    assert [tuple(row.split()[:2]) for row in rows] == CASES
    assert rows[0].split()[2:] == ["20.0", "40.0", "2.00x", "2.50", "75", "%", "yes", "yes"]
    assert ran.err.splitlines() == [f"{n}, {m}: plain 20.0 tokens/s, speculative 40.0 tokens/s" for n, m in CASES]


def test_a_text_that_differs_is_exit_code_1(command: Command, fake: Any) -> None:
    fake.speculative = [0, 1, 2, 5, 4]
    ran = command("demo", "--quiet")
    assert ran.code == 1
    assert ran.out.count("NO") == 6
    assert "run `draftproof doctor`" in ran.err


@pytest.mark.parametrize(("numerics", "code"), [("invariant", 1), ("fast", 0)])
def test_other_bits_below_the_same_text_are_said(command: Command, fake: Any, numerics: str, code: int) -> None:
    """Where invariant numerics are promised, other bits are a broken promise; under fast they are drift."""
    fake.drift, fake.numerics = 1e-9, numerics
    ran = command("demo", "--json")
    assert ran.code == code
    assert ran.json["identical"] is True
    assert [row["bits_equal"] for row in ran.json["results"]] == [False] * 6


def test_json(command: Command, fake: Any) -> None:
    value = command("demo", "--json", "--quiet", "--max-new-tokens", "9").json
    assert [(row["prompt"], row["mode"]) for row in value["results"]] == CASES
    assert value["engine"]["model"] == "fake"
    row = value["results"][1]
    assert (row["speedup"], row["identical"], row["bits_equal"]) == (2.0, True, True)
    assert row["speculation"]["rule"] == "coupled"
    params = {params for _, params in ((repr(p), repr(q)) for p, q in fake.asked)}
    assert any("temperature=0.8" in text and "seed=7" in text and "max_new_tokens=9" in text for text in params)


def test_a_request_given_up_is_exit_code_1(command: Command, fake: Any) -> None:
    fake.error = "NaN"
    assert command("demo").code == 1


@pytest.mark.parametrize(
    ("text", "tokens", "accepted", "expected"),
    [
        ("The sky is ", (0, 1, 2), 2, ("The sky ", "is ")),
        ("The sky ", (0, 1), 0, ("", "The sky ")),
        ("is ", (0, 1, 2), 2, ("", "is ")),
        ("", (0, 1), 1, ("", "")),
    ],
)
def test_accepted_text_is_told_apart(
    fake: Any, text: str, tokens: tuple[int, ...], accepted: int, expected: tuple[str, str]
) -> None:
    assert split_accepted(fake.tokenizer.decode, StreamChunk(text, tokens, accepted)) == expected


def test_a_terminal_shows_bars_and_colours_what_was_accepted(fake: Any) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=100, legacy_windows=False)
    output = fake.generate(["x"], _params())[0]
    with Live(console=console, auto_refresh=False, transient=True) as live:
        screen = LiveScreen(live, fake.tokenizer.decode)
        screen.begin("edit, greedy", 5)
        screen.chunk("plain", StreamChunk("The sky is blue.", (0, 1, 2, 3, 4), 0, output))
        screen.chunk("speculative", StreamChunk("The sky ", (0, 1), 1))
        screen.chunk("speculative", StreamChunk("is blue.", (2, 3, 4), 2, output))
        screen.end(output, output)
    shown = file.getvalue()
    assert "edit, greedy" in shown
    assert "speculative" in shown
    assert "\x1b[1;32mis blue\x1b[0m" in shown
    assert shown.index("\x1b[?25l") < shown.rindex("\x1b[?25h")  # the cursor is back


def _params() -> Any:
    from draftproof.types import SamplingParams

    return SamplingParams()
