"""The runner's side of a worker: a child process that answers one question at a time.

Invariant: only the worker that was asked works; `cpu_seconds` lets the runner show that the others did not (thread
pools of an idle engine that keep spinning would slow everything, and every figure with it).

Does not know: engines, prompts, statistics.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from bench.provenance import ROOT

_START_S = 900  # converting a model for the first time is part of starting
_ANSWER_S = 600
_DROPPED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # a stray cap would slow one side only


class WorkerError(Exception):
    """A worker that could not start, or could not do what it was asked; the message is its own."""


def _environment(extra: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    always = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**kept, **always, **extra}


class Worker:
    """One child process. Use as a context manager; leaving ends it and all that it started."""

    def __init__(self, name: str, command: Sequence[str], log: Path, extra: dict[str, str] | None = None) -> None:
        self.name = name
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=_environment(extra or {}),
                start_new_session=True,
            )
        try:
            self.hello = self._answer(_START_S)
        except BaseException:
            self.close()
            raise

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to one question. Raises WorkerError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"{self.name} has ended: {self._last_line()}") from error
        return self._answer(_ANSWER_S)

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            raise WorkerError(f"{self.name} gave no answer in {timeout:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.name} has ended: {self._last_line()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}")
        return answer

    def _last_line(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Processor time used so far, children included."""
        total = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def memory_mib(self) -> int:
        """Resident memory now, children included."""
        total = 0
        for process in self._tree():
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return round(total / 2**20)

    def close(self) -> None:
        """Ends the child: by closing its input, and after 15 s by force, with what it started."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: nobody else's processes
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
