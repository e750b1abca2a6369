"""The folder of a run: what it is, how far it is, and that nobody else is at it.

run.json holds the settings that must be the same for the run to go on, digests of what was given (target, prompts, head
to start from), and what was found out (parts, steps). Everything else in the folder follows from it.

Invariant: run.json is written whole; a folder is at most one process's; what another run left is never taken over.
Does not know: texts, steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from draftproof.errors import InputError
from draftproof.measure.files import write_whole

Given = Mapping[str, tuple[str, str | None]]  # name in run.json -> (what the user calls it, its digest)
_LEFT = ("texts-*.json", "held-out.json", "state.pt")


class RunFolder:
    """One run's folder. state: of run.json, once it was begun."""

    def __init__(self, path: Path) -> None:
        self.path, self.state = path, dict[str, Any]()
        self._lock: FileLock | None = None

    @property
    def note_path(self) -> Path:
        """run.json"""
        return self.path / "run.json"

    @property
    def is_begun(self) -> bool:
        """True where a run is in it."""
        return self.note_path.is_file()

    def begin(self, identity: Mapping[str, Any], given: Given) -> None:
        """Starts the run, or checks that it is this very one. Raises InputError where it is not, or is at work."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"can't make {self.path}: {error.strerror or error}") from error
        self._take()
        try:
            self._enter(identity, given)
        except BaseException:
            self.leave()
            raise

    def _enter(self, identity: Mapping[str, Any], given: Given) -> None:
        if self.is_begun:
            self.state = self._read()
            self._check(identity, given)
            return
        left = sorted(path.name for pattern in _LEFT for path in self.path.glob(pattern))
        if left:
            raise InputError(f"{self.path} holds {left[0]} of a run without run.json: delete it, or give another --out")
        self.state = {"settings": dict(identity), "text_seconds": 0.0, "parts": None}
        self.state |= {name: content for name, (_, content) in given.items()}
        self.note()

    def note(self, **more: Any) -> None:
        """Writes down what was found out."""
        self.state |= more
        write_whole(self.note_path, json.dumps(self.state, indent=1).encode())

    def leave(self) -> None:
        """Lets others at it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take(self) -> None:
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise InputError(
                f"another run is at work in {self.path}: wait for its end, or give another --out"
            ) from error
        except OSError as error:
            raise InputError(f"can't write to {self.path}: {error.strerror or error}") from error
        self._lock = lock

    def _read(self) -> dict[str, Any]:
        try:
            state = json.loads(self.note_path.read_bytes())
            if not isinstance(state, dict) or not isinstance(state.get("settings"), dict):
                raise ValueError("it is no run's")
            known = {"text_seconds": 0.0, "parts": None} | state
            if not isinstance(known["text_seconds"], (int, float)) or not isinstance(known["parts"], int | None):
                raise ValueError("its figures are none")
        except (OSError, ValueError) as error:
            raise InputError(f"{self.note_path} can't be read ({error}): delete {self.path} to begin anew") from error
        return known

    def _check(self, identity: Mapping[str, Any], given: Given) -> None:
        theirs = {"kind": "eagle"} | self.state["settings"]
        for name, ours in identity.items():
            if theirs.get(name) != ours:
                raise InputError(
                    f"{self.path} holds a run with {name} {theirs.get(name)!r}, this one has {ours!r}: give "
                    "the same options to go on, or another --out"
                )
        for name, (called, content) in given.items():
            if self.state.setdefault(name, content) != content:
                raise InputError(
                    f"{called} is not what it was when the run in {self.path} began: give it back as it was to "
                    "go on, or another --out"
                )
