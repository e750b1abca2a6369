"""`draftproof cost`: what a step of the target and a draft cost on this device, and whether that foretells decoding.

Does not know: how times are taken, what they are for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.cli import options
from draftproof.cli.console import loading, note, number, print_json, print_table
from draftproof.cli.demo_prompts import DEMO_PROMPTS
from draftproof.errors import InputError, InvalidParams
from draftproof.measure.cost import WITHIN, Grid
from draftproof.measure.cost_file import Asked, CostSettings, measure_cost_file, of_run, write_cost
from draftproof.measure.files import check_place
from draftproof.measure.specs import parse_drafters
from draftproof.types import SamplingParams

_EPILOG = """examples:
  draftproof cost --run RUN                          for what RUN was measured with, into RUN/cost.json
  draftproof cost --model demo --drafter suffix --drafter early_exit --out cost.json
  draftproof cost --model demo --drafter eagle --out cost.json
  draftproof cost --model ./target --sequences 1,8,64 --contexts 1024 --kv-memory 8GiB --out cost.json

Run it on the device that will serve, with nothing else at work there. Every pass visits every point, so that a
busy minute does not bend the curve.
"""
_ENGINE = ("weights", "backend", "numerics")


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "cost",
        help="measure what steps and drafts cost on this device",
        description="Measures a step of the target over sequences, rows and context, and the proposals of each "
        "drafter; then checks the curve against real decoding.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, grid = parser.add_argument, Grid()
    add(
        "--run",
        dest="run_folder",
        metavar="RUN",
        help="a measured run: its model, drafters and sampling; the file goes to RUN/cost.json",
    )
    add("--drafter", action="append", default=[], metavar="D", help="a drafter to measure, as of `measure`; repeatable")
    add("--draft-model", metavar="M", help="the model or head of the one drafter that takes one and names none")
    options.add_draft_weights(add)
    add("--out", metavar="FILE", help="where the costs go (RUN/cost.json with --run)")
    add("--force", action="store_true", help="write over a file that is there")
    for name, text in (
        ("sequences", "sequences at once"),
        ("rows", "rows of each sequence in a step, from 1, a plain step"),
        ("contexts", "tokens of context"),
        ("tokens", "draft tokens"),
    ):
        shown = ",".join(map(str, getattr(grid, name)))
        add(f"--{name}", type=options.integers, metavar="N,N,...", help=f"{text} ({shown})")
    add("--passes", type=int, metavar="N", help=f"how often every point is visited ({grid.passes})")
    add("--text", metavar="FILE", help="a text for prompts; drafters that look things up depend on it (a built-in one)")
    add("--json", action="store_true", help="print the file's content")
    add("--quiet", action="store_true", help="no progress")
    options.add_model_options(parser, drafter=None)
    options.add_sampling_options(parser, logprobs=False)
    parser.set_defaults(model=None, run=run)  # no model: the run's, or the demo


def settings_of(args: argparse.Namespace) -> CostSettings:
    """What was given, over what the run says. Raises InputError."""
    asked = of_run(Path(args.run_folder)) if args.run_folder else None
    given = {name: getattr(args, name) for name in ("sequences", "rows", "contexts", "tokens", "passes")}
    grid = Grid(**{name: value for name, value in given.items() if value is not None})
    engine = {name: getattr(args, name) for name in (*_ENGINE, "draft_weights", "kv_memory", "threads", "cache_dir")}
    sampling = options.sampling_params(args)
    if args.draft_model is not None and not args.drafter:
        raise InvalidParams("--draft-model is of a drafter: name it with --drafter")
    drafters = parse_drafters(args.drafter, args.draft_model) if args.drafter else ()
    if asked is not None:
        grid = _for_run(grid, given, asked)
        of_run_too = _ENGINE if drafters else (*_ENGINE, "draft_weights")  # that is of the run's own drafters
        engine |= {name: asked.engine[name] for name in of_run_too if engine[name] == "auto"}
        if not any(name in args for name in SamplingParams.__dataclass_fields__):
            sampling = SamplingParams(**asked.sampling)
        drafters = drafters or asked.drafters
    if engine["kv_memory"] is None:
        del engine["kv_memory"]
    return CostSettings(args.model or (asked.model if asked else "demo"), drafters, sampling, _text(args), grid, engine)


def _for_run(grid: Grid, given: dict[str, Any], asked: Asked) -> Grid:
    """Lengths up to the run's own, unless others were asked for."""
    longest = max(2, 1 + asked.gamma)
    rows = tuple(sorted({*(n for n in grid.rows if n < longest), longest})) if given["rows"] is None else grid.rows
    tokens = grid.tokens
    if given["tokens"] is None:
        tokens = tuple(sorted({*(n for n in grid.tokens if n < asked.gamma), asked.gamma}))
    return replace(grid, rows=rows, tokens=tokens)


def _text(args: argparse.Namespace) -> str:
    if args.text is None:
        return "\n\n".join(DEMO_PROMPTS.values())
    try:
        return Path(args.text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't read the text {args.text}: {error}") from error


def _out(args: argparse.Namespace) -> Path:
    if args.out is None and args.run_folder is None:
        raise InvalidParams("where shall the costs go? give --out FILE, or --run RUN")
    path = Path(args.out) if args.out else Path(args.run_folder) / "cost.json"
    check_place(path)
    if path.exists() and not args.force:
        raise InvalidParams(f"{path} is there already: give --force to measure anew and write over it")
    return path


def run(args: argparse.Namespace) -> int:
    """Exit code 0; 1 where the curve does not foretell real decoding."""
    path, settings = _out(args), settings_of(args)
    with loading(args.quiet) as stage, _bar(args.quiet) as begin:
        cost = measure_cost_file(settings, ["draftproof", *sys.argv[1:]], stage, begin)
    write_cost(path, cost)
    if args.json:
        print_json(cost)
    else:
        _show(cost, path, args.run_folder)
    if not cost["check"]["holds"]:
        note(
            f"the curve misses real decoding by more than {100 * WITHIN:.0f} %: was anything else at work on this "
            "machine? measure again with --force, or with more --passes"
        )
        return 1
    return 0


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[int], Callable[[str], None]]]:
    """begin(n) -> a function for n lines: a bar on a terminal, every tenth line elsewhere."""
    if quiet:
        yield lambda total: lambda line: None
        return
    if not sys.stderr.isatty():
        yield _plain_lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def begin(total: int) -> Callable[[str], None]:
            task = progress.add_task("", total=total, completed=-1)
            return lambda line: progress.update(task, advance=1, description=line)

        yield begin


def _plain_lines(total: int) -> Callable[[str], None]:
    seen = 0

    def take(line: str) -> None:
        nonlocal seen
        if seen % max(1, total // 10) == 0:
            note(f"{seen} of {total}: {line}")
        seen += 1

    return take


def _show(cost: dict[str, Any], path: Path, run_folder: str | None) -> None:
    target = cost["target"]
    rows = sorted({point["rows"] for point in target})
    table = []
    for context in sorted({point["context"] for point in target}):
        here = {(p["sequences"], p["rows"]): p["ms"] for p in target if p["context"] == context}
        loads = sorted({place[0] for place in here})
        table += [[str(context), str(load), *(number(here.get((load, n))) for n in rows)] for load in loads]
    print_table(("context", "sequences", *(f"{n} row{'s' * (n > 1)}" for n in rows)), table, "ms of a target step")
    drafts = [
        [label, str(p["context"]), str(p["sequences"]), str(p["tokens"]), number(p["ms"], ".2f")]
        for label, points in cost["drafters"].items()
        for p in points
        if p["sequences"] in (1, 8)
    ]
    if drafts:
        print_table(("drafter", "context", "sequences", "tokens", "ms"), drafts, "ms of a proposal")
    runs = [
        [run["drafter"], str(run["sequences"]), number(run["predicted_ms_per_token"], ".2f"),
         number(run["measured_ms_per_token"], ".2f"), number(run["ratio"], ".2f")]
        for run in cost["check"]["runs"]
    ]  # fmt: skip
    if runs:
        print_table(("drafter", "sequences", "foretold", "measured", "ratio"), runs, "ms a token of real decoding")
    print(f"written to {path}")
    if run_folder:
        print(f"next: draftproof plan {run_folder}")
