"""What commands say beside their result: loading progress, lines of counts, tables; always plain where nobody watches.

On a terminal rich shows a spinner and colours (unless NO_COLOR is set); into a pipe or file goes plain text only.
A load that fails early says one thing on stderr, its error: plain progress begins with the second stage.

Does not know: models, outputs.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_PATIENCE = 2.0  # seconds of loading before plain lines begin

_WIDEST = 60  # characters of a cell

Report = Callable[[str], None]


@contextmanager
def loading(quiet: bool) -> Iterator[Report]:
    """A function that takes one line for each stage of loading; what it showed on a terminal is gone afterwards."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console  # a tenth of a second to import, and not needed by --help

        with Console(stderr=True).status("loading") as status:
            yield lambda line: status.update(line)
    else:
        yield _Lines().take


class _Lines:
    """Plain progress: silent in the first stage, whose fault is most often the input's, and for the first seconds."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._num_stages = 0

    def take(self, line: str) -> None:
        self._num_stages += 1
        if self._num_stages > 1 and time.monotonic() - self._begin > _PATIENCE:
            note(line)


def note(line: str) -> None:
    """One line on stderr."""
    print(line, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Exactly one JSON object on stdout; it never holds NaN or Infinity, nor a character the encoding lacks."""
    escaped = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=escaped, allow_nan=False, default=str), flush=True)


def soften() -> None:
    """A character that the terminal's encoding lacks is shown as its escape; it never ends the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def clean(text: str, widest: int = _WIDEST) -> str:
    """A text from somebody's data as a cell: no control or direction characters, no wider than a table can bear."""
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= widest else shown[: widest - 3] + "..."


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on stdout; the first two columns are text, the others numbers."""
    rows = [[clean(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
        for row in [head, *rows]:
            cells = (
                cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            print("  ".join(cells).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index < 2 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def number(value: float | None, form: str = ".1f") -> str:
    """A number in a table, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def percent(value: float | None) -> str:
    """A share in a table, or a dash where there is none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of each leaf of nested dicts."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from flat(inner, f"{prefix}{name}.")
        else:
            text = f"{inner:.4g}" if isinstance(inner, float) else str(inner)
            yield prefix + name, text
