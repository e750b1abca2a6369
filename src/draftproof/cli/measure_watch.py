"""How a measurement shows that it goes on: a bar on a terminal, a line now and then elsewhere, nothing when quiet.

The time left is that of the pairs of prompt and drafter that are left, at the pace of those done, where a pair under
way counts by its tokens.

Does not know: what is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from draftproof.cli.console import loading, note

_PACE = 10.0  # seconds between lines
_ENOUGH = 0.02  # share of the work whose pace says something of the rest


class _Pace:
    """Counts, and what they say of the time left."""

    def __init__(self) -> None:
        self.total = self.done = self.num_tokens = 0
        self._first_done = self._pending = 0
        self._most: int | None = None
        self._begin = time.monotonic()

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        self.total, self.done, self._first_done, self._most = total, done, done, most_tokens
        self._begin = time.monotonic()

    def tokens(self, count: int) -> None:
        self.num_tokens += count
        self._pending += count

    def pairs(self, count: int) -> None:
        self.done += count
        self._pending = 0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        spent = time.monotonic() - self._begin
        return self.num_tokens / spent if spent > 0 else 0.0

    @property
    def reached(self) -> float:
        """Pairs done, and the part of those under way; never more than there are."""
        return min(float(self.total), self.done + (self._pending / self._most if self._most else 0.0))

    @property
    def seconds_left(self) -> float | None:
        """None before enough is known."""
        progress = self.reached - self._first_done
        if progress < _ENOUGH * (self.total - self._first_done):
            return None
        return (time.monotonic() - self._begin) / progress * (self.total - self.reached)

    def line(self) -> str:
        """All of it in words."""
        left = self.seconds_left
        remaining = "" if left is None else f", {_clock(left)} left"
        return f"measured {self.done} of {self.total} texts, {self.rate:.0f} tokens/s{remaining}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Quiet:
    """Says nothing. measuring: loading and reading are over, so that there is something to carry on."""

    measuring = False

    def stage(self, line: str) -> None:
        """Nothing."""

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        """Measuring begins."""
        self.measuring = True

    def tokens(self, count: int) -> None:
        """Nothing."""

    def pairs(self, count: int) -> None:
        """Nothing."""


class _Lines(Quiet):
    """Plain lines on stderr."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._pace = _Pace()
        self._said = time.monotonic()

    def stage(self, line: str) -> None:
        """A line of loading."""
        self._stage(line)

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        """How much there is to do."""
        super().begin(total, done, most_tokens)
        self._pace.begin(total, done, most_tokens)
        note(f"measuring {total - done} texts" + (f", {done} are there already" if done else ""))

    def tokens(self, count: int) -> None:
        """A line, when it is time."""
        self._pace.tokens(count)
        self._say()

    def pairs(self, count: int) -> None:
        """A line, when it is time."""
        self._pace.pairs(count)
        self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said >= _PACE:
            self._said = now
            note(self._pace.line())


class _Bar(Quiet):
    """A bar of rich, drawn on this thread when there is something new, a few times a second."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._pace = _Pace()
        self._task = progress.add_task("loading", total=None, pace=self._pace)

    def stage(self, line: str) -> None:
        """What is being loaded."""
        self._progress.update(self._task, description=line)

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        """The bar gets its length."""
        super().begin(total, done, most_tokens)
        self._pace.begin(total, done, most_tokens)
        self._progress.update(self._task, description="measuring", total=total, completed=done)

    def tokens(self, count: int) -> None:
        """The bar grows."""
        self._pace.tokens(count)
        self._progress.update(self._task, completed=self._pace.reached)

    def pairs(self, count: int) -> None:
        """The bar grows."""
        self._pace.pairs(count)
        self._progress.update(self._task, completed=self._pace.reached)


@contextmanager
def watching(quiet: bool) -> Iterator[Quiet]:
    """A watch that suits where stderr goes."""
    if quiet:
        yield Quiet()
    elif sys.stderr.isatty():
        with _progress() as progress:
            yield _Bar(progress)
    else:
        with loading(quiet) as stage:
            yield _Lines(stage)


def _progress() -> Any:
    from rich.console import Console  # a tenth of a second to import, and needed on a terminal only
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Pace(ProgressColumn):
        """Texts done, tokens a second, time left."""

        def render(self, task: Task) -> Text:
            pace: _Pace = task.fields["pace"]
            if not pace.total:
                return Text("")
            left = pace.seconds_left
            remaining = "" if left is None else f"  {_clock(left)} left"
            return Text(f"{pace.done}/{pace.total} texts  {pace.rate:.0f} tokens/s{remaining}")

    columns = (TextColumn("{task.description}"), BarColumn(), Pace())
    return Progress(*columns, console=Console(stderr=True), transient=True)
