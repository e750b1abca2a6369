"""Parquet parts -> flat arrays: numbers, text as codes, lists of probabilities as rows of equal width.

Parts are read batch by batch into arrays of the final size, list columns by their offsets, so that a million rows cost
little more memory than the arrays themselves.

Invariant: what can't be read, or holds what it must not, is one InputError that names the part or the folder.
Does not know: what columns mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InputError
from draftproof.measure.arrow import arrow, parquet, reading

_BATCH = 1 << 16  # rows read at a time
_TOLERANCE = 1e-5  # sums of float32 laws may exceed 1 by their rounding


@dataclass(frozen=True, slots=True)
class Columns:
    """What is read: numbers by type, text, lists of up to `width` probabilities."""

    numbers: dict[str, Any]
    texts: tuple[str, ...]
    lists: tuple[str, ...] = ()
    width: int = 0


@dataclass(slots=True)
class Table:
    """Columns of all parts: plain numbers, text as codes into `labels`, lists as [rows, G]."""

    numbers: dict[str, NDArray[Any]]
    codes: dict[str, NDArray[np.int64]]
    labels: dict[str, list[str]]
    lists: dict[str, NDArray[np.float32]]


def read_parts(folder: Path, parts: Sequence[int], columns: Columns) -> Table:
    """These parts of a folder, one after the other."""
    paths = [folder / f"part-{number:06}.parquet" for number in parts]
    files = {path: _open(path, columns.texts) for path in paths}
    rows = sum(file.metadata.num_rows for file in files.values())
    table = Table(
        {name: np.empty(rows, kind) for name, kind in columns.numbers.items()},
        {name: np.empty(rows, np.int64) for name in columns.texts},
        {name: [] for name in columns.texts},
        {name: np.zeros((rows, columns.width), np.float32) for name in columns.lists},
    )
    start = 0
    for path, file in files.items():
        for batch in _batches(path, file, columns):
            _take(table, batch, slice(start, start + batch.num_rows), folder)
            start += batch.num_rows
    return table


def _open(part: Path, texts: Sequence[str]) -> Any:
    with reading(part):
        return parquet().ParquetFile(part, read_dictionary=list(texts))


def _batches(path: Path, file: Any, columns: Columns) -> Iterator[Any]:
    types = arrow().types
    kinds = {
        **dict.fromkeys(columns.numbers, types.is_integer),
        **dict.fromkeys(columns.texts, types.is_dictionary),
        **dict.fromkeys(columns.lists, types.is_list),
    }
    for name, is_kind in kinds.items():
        if name not in file.schema_arrow.names or not is_kind(file.schema_arrow.field(name).type):
            raise InputError(f"{path} has no column {name!r} as this version writes it")
    with reading(path):
        yield from file.iter_batches(_BATCH, columns=list(kinds))


def _take(table: Table, batch: Any, rows: slice, folder: Path) -> None:
    """Puts one batch into its place."""
    if empty := [name for name in batch.schema.names if batch.column(name).null_count]:
        raise InputError(f"{folder} has rows without a value in the column {empty[0]!r}")
    for name, values in table.numbers.items():
        values[rows] = batch.column(name).to_numpy(zero_copy_only=False)
    for name, codes in table.codes.items():
        column, labels = batch.column(name), table.labels[name]
        places = {label: place for place, label in enumerate(labels)}
        own = [places.setdefault(label, len(places)) for label in column.dictionary.to_pylist()]
        labels[:] = places
        codes[rows] = np.array(own, np.int64)[column.indices.to_numpy(zero_copy_only=False)]
    for name, dense in table.lists.items():
        _spread(batch.column(name), dense[rows], f"{folder}: {name}")


def _spread(column: Any, dense: NDArray[np.float32], where: str) -> None:
    """A list column into rows of equal width, zeros behind each list."""
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    if len(lengths) and lengths.max() > dense.shape[1]:
        raise InputError(f"{where} holds a list longer than the run's gamma")
    values = column.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    if not ((values >= 0) & (values <= 1 + _TOLERANCE)).all():  # NaN fails too
        raise InputError(f"{where} holds a value that is no probability")
    dense[np.arange(dense.shape[1]) < lengths[:, None]] = np.minimum(values, 1)
