"""A long run's state on the disk, so that a run that was killed goes on where it was.

One JSON file, replaced whole after each batch. What was asked is in it: another plan, or another subject, does not go
on with it. Random numbers are keyed by plan and batch, so a run that was interrupted draws what it would have drawn.

Does not know: what the state means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftproof.errors import InputError


class StateFile:
    """path: None keeps nothing."""

    def __init__(self, path: Path | None, asked: Mapping[str, Any]) -> None:
        self._path = path
        self._asked = json.loads(json.dumps(asked, default=str))

    def load(self) -> dict[str, Any]:
        """What was kept, or nothing yet. Raises InputError where the file holds something else or another run."""
        if self._path is None or not self._path.exists():
            return {}
        try:
            value = json.loads(self._path.read_text(encoding="utf-8"))
            asked, stages = value["asked"], value["stages"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._path} can't be read as the state of a run: delete it") from error
        for name in dict.fromkeys([*asked, *self._asked]):
            if asked.get(name) != self._asked.get(name):
                raise InputError(f"{self._path} is of a run with another {name}: delete it, or ask for the same again")
        return dict(stages)

    def save(self, stages: Mapping[str, Any]) -> None:
        """The whole file or the one before. Raises InputError where it can't be written."""
        if self._path is None:
            return
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"asked": self._asked, "stages": stages}, file, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise InputError(f"can't write {self._path}: {error.strerror or error}") from error

    def drop(self) -> None:
        """The run is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
