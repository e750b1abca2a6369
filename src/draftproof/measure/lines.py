"""A data file, JSONL or Parquet, as numbered records; a line that can't be read is one with a fault.

Invariant: each line of the file is given once, in order, with its number (from 1); no fault of one line touches
another. Empty lines are no lines of data and count in the numbering only.

Does not know: what a record means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import InputError
from draftproof.measure.arrow import arrow, parquet

_PARQUET = b"PAR1"
_BOM = b"\xef\xbb\xbf"
_BATCH = 256  # rows of a Parquet file held at once


@dataclass(frozen=True, slots=True)
class Line:
    """A record, or what is wrong with it."""

    number: int
    record: Any = None
    fault: str | None = None


def fingerprint(path: Path) -> str:
    """SHA-256 of the file, in hex. Raises InputError where it can't be read."""
    digest = hashlib.sha256()
    _check_file(path)
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def read_lines(path: Path) -> Iterator[Line]:
    """All lines, one after another. Raises InputError where the file as a whole can't be read."""
    _check_file(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(_PARQUET))
        if magic != _PARQUET and path.suffix.lower() == ".parquet":
            raise InputError(
                f"{path} is no Parquet file, whatever its name: it does not begin with {_PARQUET.decode()}; copy it "
                "anew if it was Parquet, and give JSONL a name like data.jsonl"
            )
        yield from _rows(path) if magic == _PARQUET else _json_lines(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _check_file(path: Path) -> None:
    """Raises InputError for a pipe or a device: data is read more than once."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"the data {path} is no regular file, and is read more than once: save it to a file first")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"can't read the data file {path}: {error.strerror or error}")


def _json_lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            data = raw.removeprefix(_BOM) if number == 1 else raw
            if data.strip():
                yield _parsed(number, data)


def _parsed(number: int, data: bytes) -> Line:
    try:
        return Line(number, json.loads(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        return Line(number, fault=f"not UTF-8: byte {error.object[error.start]:#04x} at place {error.start + 1}")
    except json.JSONDecodeError as error:
        return Line(number, fault=f"not JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return Line(number, fault=f"not JSON that can be read: {error}")


def _rows(path: Path) -> Iterator[Line]:
    invalid, open_file = arrow().ArrowInvalid, parquet().ParquetFile
    number = 0
    try:
        with open_file(path) as file:
            for batch in file.iter_batches(_BATCH):
                for row in range(batch.num_rows):
                    number += 1
                    yield _row(number, batch.slice(row, 1))
    except invalid as error:
        raise InputError(f"{path} can't be read as a Parquet file ({error}): copy it anew, it may be cut") from error


def _row(number: int, row: Any) -> Line:
    try:
        return Line(number, row.to_pylist()[0])
    except UnicodeDecodeError:
        return Line(number, fault="not UTF-8: a string of this row is broken")
