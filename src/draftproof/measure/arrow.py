"""pyarrow, asked for by name: an optional dependency whose absence is one clear line.

Does not know: what is stored.
"""

from __future__ import annotations

import importlib
from typing import Any

from draftproof.errors import InputError


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
