"""Questions in SQL to a measured run: its token rows and texts as two tables, in DuckDB over the Parquet parts.

    tokens   one row a decided token and drafter: drafter, prompt, bucket, pos, token, round, depth, outcome, drafted,
             offered, keep[], accept[]
    prompts  one row a text: prompt, line, bucket, drafter, prompt_tokens, completion_tokens, finish, rounds

Invariant: the run's files are read, never written; nothing else on the machine can be reached from the SQL.
Does not know: what is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from draftproof.errors import InputError
from draftproof.measure.arrow import parquet, reading
from draftproof.measure.read import read_info

TABLES = {"tokens": "parts", "prompts": "prompts"}


def query(folder: Path, sql: str) -> tuple[list[str], list[Sequence[Any]]]:
    """(column names, rows). Raises InputError for what is no run, for SQL that does not run, and without DuckDB."""
    try:
        import duckdb  # an optional dependency
    except ImportError:
        raise InputError("queries need DuckDB: pip install 'draftproof[measure]'") from None
    read_info(folder)
    with duckdb.connect(":memory:") as connection:
        try:
            for name, part in TABLES.items():
                files = sorted((folder / part).glob("part-*.parquet"))
                if not files:
                    raise InputError(f"{folder} has no rows yet: let `draftproof measure` go on")
                try:
                    connection.read_parquet([str(path) for path in files]).to_table(name)
                except duckdb.Error:
                    _blame(files)
                    raise
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InputError("give one SELECT: a run is only read")
            found = connection.execute(statements[0])
            return [column[0] for column in found.description or []], [_plain(row) for row in found.fetchall()]
        except duckdb.Error as error:
            raise InputError(f"the query failed: {' '.join(str(error).split())}") from None


def _blame(files: Sequence[Path]) -> None:
    """Raises InputError that names the part which can't be read, and how to mend it."""
    for path in files:
        with reading(path):
            parquet().read_table(path)


def _plain(row: Sequence[Any]) -> list[Any]:
    """Decimals (what SQL makes of 0.5) as floats; what is no number as None."""
    values = (float(value) if isinstance(value, Decimal) else value for value in row)
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
