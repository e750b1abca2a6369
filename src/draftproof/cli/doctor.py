"""`draftproof doctor`: proves the chosen numerics on this machine and model, and says what runs here.

Does not know: the checks.
"""

from __future__ import annotations

import argparse
from typing import Any

from draftproof.cli import options
from draftproof.cli.console import flat, loading, print_json, print_table
from draftproof.engine import doctor

_EPILOG = """examples:
  draftproof doctor
  draftproof doctor --model ./my-model --weights int8 --json
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "doctor",
        help="prove the numerics on this machine and model",
        description="Proves the chosen numerics on this machine and model; prints versions, threads, memory and drift.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options.add_model_options(parser, drafter="none")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 when a check failed."""
    with loading(args.quiet) as progress, options.load(args, progress) as llm:
        report = doctor.run(llm, progress)
    if args.json:
        print_json(report)
    else:
        print_table(["what", "value"], [[name, text] for name, text in flat(report)])
    return 0 if report.get("ok", True) else 1
