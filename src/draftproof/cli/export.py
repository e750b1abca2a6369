"""`draftproof export RUN --to ENGINE`: the plan's policy as that engine's configuration and command, and what is lost.

Invariant: --out never replaces a file without --force.

Does not know: the engines, how a plan was made.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from draftproof.cli.console import print_json
from draftproof.errors import InputError
from draftproof.export.engines import ENGINES, export
from draftproof.export.exported import CONFIG_FILE, Exported
from draftproof.export.policy import policy_of
from draftproof.measure.files import write_whole
from draftproof.planner.plan import Plan

_PLAN = "plan.json"
_EPILOG = """examples:
  draftproof export RUN --to vllm
  draftproof export RUN --to tensorrt-llm --out speculative.yaml
  draftproof export RUN --to llama.cpp --concurrency 1
  draftproof export RUN/plan.json --to sglang --json
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "export",
        help="a plan as configuration of a serving engine",
        description="Prints a plan's policy as configuration and command line of a serving engine, and lists what of "
        "it that engine can't express.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", help="a run's folder (its plan.json is read), or a plan's JSON file"
    )
    parser.add_argument("--to", required=True, choices=list(ENGINES), metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help="for one planned load only (all planned loads, where it can)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the configuration file, or a shell script, to FILE")
    parser.add_argument("--force", action="store_true", help="replace FILE where it is there already")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def read_plan(path: Path) -> Plan:
    """The plan of a run's folder or of a plan file. Raises InputError, which says how to get one."""
    if path.is_dir():
        if not (path / _PLAN).exists():
            raise InputError(f"{path} holds no {_PLAN}: make it with `draftproof plan {path}`")
        path = path / _PLAN
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no run and no plan at {path}: give a run's folder or a plan's JSON file") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"can't read the plan {path}: {error}") from error
    return Plan.from_json(value)


def write(path: Path, text: str, *, force: bool) -> None:
    """A new file, or with force a replaced one. Raises InputError where it is there already, or can't be written."""
    try:
        data = text.encode("utf-8")
        if force:
            write_whole(path, data)
        else:
            with path.open("xb") as new:
                new.write(data)
    except FileExistsError as error:
        raise InputError(f"{path} is there already: give --force to replace it, or another name") from error
    except (OSError, UnicodeEncodeError) as error:
        raise InputError(f"can't write {path}: {error}") from error


def run(args: argparse.Namespace) -> int:
    """Exit code 0, also where the answer is not to enable speculation."""
    if args.force and args.out is None:
        raise InputError("--force says what to do with the file of --out: give --out, or drop --force")
    exported = export(policy_of(read_plan(Path(args.run_folder)), args.concurrency), args.to)
    file = args.out or CONFIG_FILE
    if args.out is not None:
        write(Path(args.out), exported.script(file), force=args.force)
    if args.json:
        print_json(exported.as_dict(file))
    else:
        _show(exported, file, is_written=args.out is not None)
    return 0


def _show(exported: Exported, file: str, *, is_written: bool) -> None:
    engine = exported.engine
    print(f"{engine.name} (names checked against {engine.version})\n{exported.summary}")
    if exported.file_text is not None and not is_written:
        print(f"\n{file}:\n\n{exported.file_text}", end="")
    print(f"\ncommand:\n\n{exported.command(file)}")
    for title, lines in (("not expressed", exported.not_expressed), ("notes", exported.notes)):
        if lines:
            print(f"\n{title}:")
            for line in lines:
                print(f"- {line}")
    if is_written:
        print(f"\nwritten: {file}")
