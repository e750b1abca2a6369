"""The folder of a run: parts written whole or not at all, and what was asked, so that a run can be carried on.

    RUN/run.json                    what was measured, with what; "complete" at the end
    RUN/asked.json                  the settings, to be compared when the run is carried on
    RUN/parts/part-000000.parquet   token rows of some prompts     RUN/prompts/part-000000.parquet   their texts
    RUN/skipped.jsonl               lines of the data that could not be used
    RUN/.lock                       held while a process measures

A file is written under another name, brought to the disk, and renamed. asked.json comes first; a part counts when its
prompt table is there, which comes after its token rows. So whatever was interrupted, the folder holds whole parts from
the first prompt on, and what lacks its other half is written again.

Invariant: nothing in a folder of another run, or of no run at all, is touched. A run that ends by an error before its
first part leaves things as they were: nothing where nothing was, all that was there of a run begun before.
Does not know: what rows mean, models.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from draftproof.errors import InputError
from draftproof.measure.arrow import parquet, reading
from draftproof.measure.files import write_whole
from draftproof.measure.rows import excluded_tokens

_LOCK = ".lock"
_TEMPORARY = ".tmp"
_FOLDERS = ("parts", "prompts")


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all texts: excluded tokens have no chance under the target's law; failed texts broke off."""

    prompts: int
    tokens: int
    excluded: int
    failed: int


def is_begun(path: Path) -> bool:
    """True where a run was begun in this folder."""
    return (path / "asked.json").is_file()


class RunFolder:
    """One run's folder, locked. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises InputError where the folder can't be made or is in use."""
        self.path = path
        self._made: list[Path] = []  # folders, inner ones first
        self._new: list[Path] = []  # what `begin` was the first to write
        try:
            if path.exists() and not path.is_dir():
                raise InputError(f"{path} is a file: give another --out")
            self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
            path.mkdir(parents=True, exist_ok=True)
            self._has_lock = (path / _LOCK).exists()
            self._lock = FileLock(path / _LOCK)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another process is measuring into {path}: wait for it, or give another --out") from None
        except OSError as error:
            self._remove_made()
            raise InputError(f"can't write to {path}: {error.strerror or error}") from error

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self.num_parts():
            self._take_back()
        if not self.begun and not self._has_lock:
            (self.path / _LOCK).unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone
        self._lock.release()
        if not self.begun:
            self._remove_made()

    def _take_back(self) -> None:
        for path in self._new:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _remove_made(self) -> None:
        for folder in self._made:
            try:
                folder.rmdir()
            except FileNotFoundError:  # it was never made
                continue
            except OSError:  # somebody put something into it
                return

    @property
    def begun(self) -> bool:
        """True when a run was begun here."""
        return is_begun(self.path)

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
        """True when the run that was begun here is done, and none of its parts was lost since."""
        info = self._json("run.json") if (self.path / "run.json").is_file() else {}
        return info.get("complete") is True and self.num_prompts() == info["data"]["prompts"]

    def begin(
        self, asked: Mapping[str, Any], info: Callable[[], Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]
    ) -> None:
        """Writes what a run begins with, as far as it is not there yet. info: gives run.json, where it is missing."""
        if not self.begun:  # asked.json last: a run is begun here as long as that is there
            names = (*_FOLDERS, "run.json", "skipped.jsonl", "asked.json")
            self._new = [path for path in (self.path / name for name in names) if not path.exists()]
        lines = [json.dumps(entry) + "\n" for entry in skipped]
        write_whole(self.path / "asked.json", _encoded(asked))
        write_whole(self.path / "skipped.jsonl", "".join(lines).encode())
        if not (self.path / "run.json").is_file():
            write_whole(self.path / "run.json", _encoded({**info(), "complete": False}))
        for left_over in self.path.rglob(f"*{_TEMPORARY}"):
            left_over.unlink()
        for folder in _FOLDERS:
            try:
                (self.path / folder).mkdir(exist_ok=True)
            except OSError as error:
                raise InputError(f"can't write to {self.path}: {error.strerror or error}") from error

    def num_parts(self) -> int:
        """Parts that are there, from the first on without a gap."""
        return next(number for number in itertools.count() if not self.has_part(number))

    def has_part(self, number: int) -> bool:
        """True where both halves of a part are there."""
        return all(self._part(folder, number).is_file() for folder in _FOLDERS)

    def num_prompts(self) -> int:
        """Prompts in the parts that are there: parts hold them in their order."""
        number = self.num_parts()
        if not number:
            return 0
        part = self._part("prompts", number - 1)
        with reading(part):
            last = parquet().read_table(part, columns=["prompt"])["prompt"].to_pylist()
        return int(max(last)) + 1

    def counts(self) -> Counts:
        """Of all parts that are there."""
        tokens = excluded = failed = 0
        for number in range(self.num_parts()):
            part = self._part("prompts", number)
            with reading(part):
                texts = parquet().read_table(part, columns=["completion_tokens", "finish"]).to_pydict()
                excluded += excluded_tokens(parquet().read_schema(part))
            tokens += sum(texts["completion_tokens"])
            failed += texts["finish"].count("error")
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
