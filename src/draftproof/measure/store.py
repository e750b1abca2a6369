"""The folder of a run: parts written whole or not at all, and what was asked, so that a run can be carried on.

    RUN/run.json                    what was measured, with what; "complete" at the end
    RUN/asked.json                  the settings, to be compared when the run is carried on
    RUN/parts/part-000000.parquet   token rows of some prompts     RUN/prompts/part-000000.parquet   their texts
    RUN/skipped.jsonl               lines of the data that could not be used
    RUN/.lock                       held while a process measures

A file is written under another name, brought to the disk, and renamed. asked.json comes first; a part counts when its
prompt table is there, which comes after its token rows. So whatever was interrupted, the folder holds whole parts from
the first prompt on, and what lacks its other half is written again.

Invariant: nothing in a folder of another run, or of no run at all, is touched.
Does not know: what rows mean, models.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from draftproof.errors import InputError
from draftproof.measure.arrow import parquet
from draftproof.measure.files import write_whole
from draftproof.measure.rows import excluded_tokens

_LOCK = ".lock"
_TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all texts: excluded tokens have no chance under the target's law; failed texts broke off."""

    prompts: int
    tokens: int
    excluded: int
    failed: int


class RunFolder:
    """One run's folder, locked. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises InputError where the folder can't be made or is in use."""
        self.path = path
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: give another --out")
        try:
            self._made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / _LOCK)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another process is measuring into {path}: wait for it, or give another --out") from None
        except OSError as error:
            raise InputError(f"can't write to {path}: {error.strerror or error}") from error

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if self._made and not self.begun:  # nothing came of it: leave nothing behind
            (self.path / _LOCK).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    @property
    def begun(self) -> bool:
        """True when a run was begun here."""
        return (self.path / "asked.json").is_file()

    def check(self, asked: Mapping[str, Any]) -> None:
        """Raises InputError where the folder holds another run (the first difference is named), or something else."""
        if not self.begun:
            others = sorted(entry.name for entry in self.path.iterdir() if entry.name != _LOCK)
            foreign = [name for name in others if not name.endswith(_TEMPORARY)]
            if foreign:
                raise InputError(f"{self.path} is not empty and holds no run ({foreign[0]}): give another --out")
            return
        before = self._json("asked.json")
        for name in dict.fromkeys([*before, *asked]):
            then, now = before.get(name), json.loads(json.dumps(asked.get(name)))
            if then != now:
                raise InputError(
                    f"{self.path} holds a run with other settings: {name} was {_shown(then)}, now it is {_shown(now)}; "
                    "give another --out, or the settings it was begun with"
                )

    @property
    def complete(self) -> bool:
        """True when the run that was begun here is done."""
        return (self.path / "run.json").is_file() and self._json("run.json").get("complete") is True

    def begin(
        self, asked: Mapping[str, Any], info: Callable[[], Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]
    ) -> None:
        """Writes what a run begins with, as far as it is not there yet. info: gives run.json, where it is missing."""
        lines = [json.dumps(entry) + "\n" for entry in skipped]
        write_whole(self.path / "asked.json", _encoded(asked))
        write_whole(self.path / "skipped.jsonl", "".join(lines).encode())
        if not (self.path / "run.json").is_file():
            write_whole(self.path / "run.json", _encoded({**info(), "complete": False}))
        for left_over in self.path.rglob(f"*{_TEMPORARY}"):
            left_over.unlink()
        for folder in ("parts", "prompts"):
            try:
                (self.path / folder).mkdir(exist_ok=True)
            except OSError as error:
                raise InputError(f"can't write to {self.path}: {error.strerror or error}") from error

    def num_parts(self) -> int:
        """Parts that are there, from the first on without a gap."""
        number = 0
        while all(self._part(folder, number).is_file() for folder in ("parts", "prompts")):
            number += 1
        return number

    def num_prompts(self) -> int:
        """Prompts in the parts that are there: parts hold them in their order."""
        number = self.num_parts()
        if not number:
            return 0
        last = parquet().read_table(self._part("prompts", number - 1), columns=["prompt"])["prompt"].to_pylist()
        return int(max(last)) + 1

    def counts(self) -> Counts:
        """Of all parts that are there."""
        tokens = excluded = failed = 0
        for number in range(self.num_parts()):
            file = self._part("prompts", number)
            texts = parquet().read_table(file, columns=["completion_tokens", "finish"]).to_pydict()
            tokens += sum(texts["completion_tokens"])
            failed += texts["finish"].count("error")
            excluded += excluded_tokens(parquet().read_schema(file))
        return Counts(self.num_prompts(), tokens, excluded, failed)

    def write_part(self, number: int, tokens: Any, prompts: Any) -> None:
        """Part `number`, the next one. Raises InputError for a disk that is full; what was there stays."""
        for folder, table in (("parts", tokens), ("prompts", prompts)):
            write_whole(self._part(folder, number), _parquet_bytes(table))

    def finish(self) -> None:
        """Marks the run complete."""
        write_whole(self.path / "run.json", _encoded({**self._json("run.json"), "complete": True}))

    def info(self) -> dict[str, Any]:
        """run.json."""
        return self._json("run.json")

    def skipped(self) -> list[dict[str, Any]]:
        """The lines that could not be used."""
        path = self.path / "skipped.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []

    def _part(self, folder: str, number: int) -> Path:
        return self.path / folder / f"part-{number:06d}.parquet"

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} can't be read ({error}): give another --out") from error
        if not isinstance(value, dict):
            raise InputError(f"{path} holds no object: give another --out")
        return value


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _parquet_bytes(table: Any) -> bytes:
    buffer = io.BytesIO()
    parquet().write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _shown(value: object) -> str:
    return "not given" if value is None else json.dumps(value)
