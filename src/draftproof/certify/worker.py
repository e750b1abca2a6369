"""A peer in an interpreter of its own, behind a pipe: the parent's side.

Invariant: whatever becomes of the child - it can't start, stalls, dies, says what is no JSON - is a `SubjectFailed` of
one line (an InputError before it has said hello), and it is ended with all that it started.

Does not know: which peers there are, what is asked of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from draftproof.certify.types import SubjectFailed
from draftproof.errors import InputError

CHILD = Path(__file__).with_name("adapters") / "child.py"
_PATIENCE_S = 10.0  # to end by itself


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a worker may take to start (models are loaded, perhaps converted), and for one answer."""

    start_s: float = 600.0
    answer_s: float = 300.0


class Entry(Protocol):
    """What is run: a name, a `peer_*.py`, and how it is installed."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def install(self) -> str: ...


class WorkerPeer:
    """`adapters.Peer` in a child process. Close it."""

    def __init__(self, entry: Entry, python: str | Path, options: Mapping[str, Any], limits: Limits) -> None:
        """Raises InputError where it can't start."""
        self._name, self._limits = entry.name, limits
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed in `close`
        command = [str(python), str(CHILD), str(entry.path), json.dumps(dict(options))]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            )
        except OSError as error:
            self._log.close()
            raise InputError(f"{python} can't be run: {error.strerror or error}") from error
        self._rest = b""
        try:
            hello = self._hello(entry, str(python))
        except BaseException:
            self.close()
            raise
        self.supports = frozenset(hello["supports"])
        self.vocab_size: int | None = hello["vocab_size"]
        self._facts = {**hello["facts"], "python": str(python)}

    def _hello(self, entry: Entry, python: str) -> dict[str, Any]:
        try:
            answer = self._answer(self._limits.start_s)
        except SubjectFailed as error:
            raise InputError(f"{entry.name} can't be opened: {error}") from error
        if answer.get("missing"):
            raise InputError(f"{entry.install} can't be imported by {python}: {answer['error']}")
        if "error" in answer:
            raise InputError(f"{entry.name} can't be opened: {answer['error']}")
        value: dict[str, Any] = answer["value"]
        return value

    def facts(self) -> Mapping[str, Any]:
        """As the child said when it started, and the interpreter."""
        return self._facts

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """As of `Peer`."""
        value: Mapping[str, Any] = self.ask("sample", prompt=list(prompt), asked=dict(asked))
        return value

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> None:
        """As of `Peer`; through the file system, for a pipe they are too many."""
        self.ask("rows", ids=list(ids), num_rows=num_rows, path=path)

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> Mapping[str, float]:
        """Largest difference of any logit by width of a step, where the peer measures it."""
        value: Mapping[str, float] = self.ask("drift", ids=list(ids), num_prompt=num_prompt, widths=list(widths))
        return value

    def ask(self, op: str, **request: Any) -> Any:
        """One of `child.OPS`. Raises NotImplementedError for what the peer refuses, SubjectFailed for all else."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"op": op, **request}).encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError) as error:
            raise SubjectFailed(f"{self._name} has ended: {self._last_line()}") from error
        answer = self._answer(self._limits.answer_s)
        if "refused" in answer:
            raise NotImplementedError(answer["refused"])
        if "error" in answer:
            raise SubjectFailed(f"{self._name} failed: {answer['error']}")
        return answer["value"]

    def _answer(self, patience: float) -> dict[str, Any]:
        """One line of the child."""
        try:
            line = self._line(time.monotonic() + patience, patience)
        except KeyboardInterrupt:
            self.close(0.0)  # it is in the middle of an answer: waiting for its end helps nobody
            raise
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"value", "error", "refused"}:
            raise SubjectFailed(f"{self._name} said what is no answer: {line[:80]!r}")
        return answer

    def _line(self, deadline: float, patience: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                self.close(0.0)  # whatever it says later would be taken for another answer
                raise SubjectFailed(f"{self._name} gave no answer in {patience:g} s")
            part = os.read(pipe, 1 << 16)
            if not part:
                raise SubjectFailed(f"{self._name} has ended: {self._last_line()}")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_line(self) -> str:
        """Of what it wrote to its standard error."""
        if self._log.closed:
            return "it was closed"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return lines[-1][:200] if lines else f"it said nothing (exit status {self._process.poll()})"

    def close(self, patience_s: float = _PATIENCE_S) -> None:
        """Ends the child: by closing its input, and if need be by force, with what it started. Twice is no harm."""
        if self._log.closed:
            return
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: nobody else's processes
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
