"""pyarrow, asked for by name: an optional dependency whose absence is one clear line, as is a part that it can't read.

Does not know: what is stored.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftproof.errors import InputError

AGAIN = "give the same `draftproof measure` command again (it is in run.json)"


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"measured runs are Parquet files, and {name.partition('.')[0]} is not installed: "
            "pip install 'draftproof[measure]'"
        ) from error


def arrow() -> Any:
    """The module pyarrow. Raises InputError where it is not installed."""
    return _needed("pyarrow")


def parquet() -> Any:
    """The module pyarrow.parquet. Raises InputError where it is not installed."""
    return _needed("pyarrow.parquet")


@contextmanager
def reading(part: Path) -> Iterator[None]:
    """What can't be read of a run's part is an InputError that says how to mend the run."""
    try:
        yield
    except (OSError, arrow().ArrowException) as error:
        raise InputError(
            f"{part} can't be read ({error}): delete this file and {AGAIN}, which measures the part anew"
        ) from error
