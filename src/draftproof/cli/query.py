"""`draftproof query`: SQL over a measured run.

Does not know: how runs are stored.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from draftproof.cli.console import print_json, print_table
from draftproof.measure.query import query

_EPILOG = """examples:
  draftproof query RUN "select bucket, drafter, count(*) from tokens group by all order by all"
  draftproof query RUN "select depth, avg((outcome = 'accepted')::int) from tokens where drafter = 'suffix' group by 1"
  draftproof query RUN "select finish, avg(completion_tokens) from prompts group by finish" --json

tables: tokens (drafter, prompt, bucket, pos, token, round, depth, outcome, drafted, offered, keep[], accept[]) and
prompts (prompt, line, bucket, drafter, prompt_tokens, completion_tokens, finish, rounds).
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "query",
        help="ask a measured run in SQL",
        description="Runs one SQL query (DuckDB's dialect) over a run's token rows and texts. The run is only read.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder that `draftproof measure` wrote")
    parser.add_argument("sql", metavar="SQL", help="the query")
    parser.add_argument("--json", action="store_true", help="print one JSON object: columns and rows")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0."""
    columns, rows = query(Path(args.run_folder), args.sql)
    if args.json:
        print_json({"columns": columns, "rows": rows})
    elif columns:
        print_table(columns, [[_shown(value) for value in row] for row in rows])
    return 0


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
