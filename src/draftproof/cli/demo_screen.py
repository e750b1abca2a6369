"""What one sees while the demo runs: on a terminal, two bars and the text as it appears; else one line a case.

Accepted draft tokens are coloured: the more colour, the fewer passes of the model the text has cost.
Drawing is paced (a few frames a second, on the caller's thread), so that it does not slow down what it shows.

Does not know: engines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from draftproof.cli.console import note, number
from draftproof.engine.outputs import Output, StreamChunk

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

_PACE = 0.15  # seconds between frames
_LINES = 14  # of text shown
Decode = Callable[[Sequence[int]], str]


class Screen(Protocol):
    """Hears what the demo does."""

    def begin(self, title: str, num_tokens: int) -> None:
        """A new case of at most so many tokens."""

    def chunk(self, kind: str, chunk: StreamChunk) -> None:
        """A piece of the run of that kind, "plain" or "speculative"."""

    def end(self, plain: Output, speculative: Output) -> None:
        """Both runs are done."""


class SilentScreen:
    """Shows nothing."""

    def begin(self, title: str, num_tokens: int) -> None:
        """Nothing."""

    def chunk(self, kind: str, chunk: StreamChunk) -> None:
        """Nothing."""

    def end(self, plain: Output, speculative: Output) -> None:
        """Nothing."""


class LineScreen(SilentScreen):
    """One line a case, on stderr."""

    _title = ""

    def begin(self, title: str, num_tokens: int) -> None:
        """Remembers the title."""
        self._title = title

    def end(self, plain: Output, speculative: Output) -> None:
        """The line."""
        note(_line(self._title, plain, speculative))


def _line(title: str, plain: Output, speculative: Output) -> str:
    speeds = [number(output.timing.decode_tokens_per_second) for output in (plain, speculative)]
    return f"{title}: plain {speeds[0]} tokens/s, speculative {speeds[1]} tokens/s"


def split_accepted(decode: Decode, chunk: StreamChunk) -> tuple[str, str]:
    """The text of a chunk, cut into that of accepted draft tokens and the rest.

    Text may wait a while for its last character, so the cut can be off by that; the two always join to the text.
    """
    if not chunk.num_accepted:
        return "", chunk.text
    rest = len(decode(chunk.token_ids[chunk.num_accepted :]))
    cut = max(0, len(chunk.text) - rest)
    return chunk.text[:cut], chunk.text[cut:]


class LiveScreen:
    """Bars and text, redrawn in place on stderr."""

    def __init__(self, live: Live, decode: Decode) -> None:
        self._live = live
        self._decode = decode
        self._title, self._most = "", 1
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, int] = {}
        self._begins: dict[str, float] = {}
        self._spans: dict[str, float] = {}
        self._pieces: list[tuple[str, str]] = []  # (text, style)
        self._kind = ""
        self._drawn = 0.0

    def begin(self, title: str, num_tokens: int) -> None:
        """Clears the bars and the text."""
        self._title, self._most = title, max(1, num_tokens)
        self._counts, self._begins, self._spans, self._pieces = {}, {}, {}, []
        self._kind = ""

    def chunk(self, kind: str, chunk: StreamChunk) -> None:
        """Adds to the text and the bar, and draws when it is time."""
        now = time.perf_counter()
        if kind != self._kind:  # speed counts from the first tokens on
            self._kind, self._pieces = kind, []
            self._begins[kind], self._counts[kind], self._firsts[kind] = now, 0, len(chunk.token_ids)
        self._counts[kind] += len(chunk.token_ids)
        self._spans[kind] = now - self._begins[kind]
        accepted, rest = split_accepted(self._decode, chunk)
        self._pieces += [(accepted, "bold green"), (rest, "")]
        if now - self._drawn > _PACE or chunk.output is not None:
            self._drawn = now
            self._live.update(self._frame(), refresh=True)

    def end(self, plain: Output, speculative: Output) -> None:
        """A line that stays, above the next case."""
        self._live.console.print(_line(self._title, plain, speculative), highlight=False)

    def _frame(self) -> Text:
        from rich.text import Text  # only on a terminal

        frame = Text(f"{self._title}\n", style="bold")
        for kind in ("plain", "speculative"):
            count, span = self._counts.get(kind, 0), self._spans.get(kind, 0.0)
            filled = min(30, 30 * count // self._most)
            bar = "━" * filled + "╌" * (30 - filled)
            speed = f"{(count - self._firsts[kind]) / span:6.1f} tokens/s" if span > 0 else ""
            frame.append(f"{kind:>12} {bar} {count:4d} {speed}\n", style="cyan" if kind == self._kind else "dim")
        body = Text()
        for text, style in self._pieces:
            body.append(text, style=style)
        shown = body.split("\n", allow_blank=True)[-_LINES:]
        for line in shown:
            frame.append_text(line).append("\n")
        return frame


@contextmanager
def open_screen(quiet: bool, decode: Decode) -> Iterator[Screen]:
    """A screen that suits where stderr goes."""
    if quiet:
        yield SilentScreen()
    elif not sys.stderr.isatty():
        yield LineScreen()
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield LiveScreen(live, decode)
