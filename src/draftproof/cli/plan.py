"""`draftproof plan`: does it pay, with which drafter, how many drafts, at which load? And a calculator without files.

Invariant: an option that has no meaning beside the others is an error; nothing is taken silently for granted.

Does not know: arithmetic (planner), the run's files (measure.read), how tables look (plan_tables).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from draftproof.cli import options, plan_tables
from draftproof.cli.console import note, print_json
from draftproof.engine.cost_file import read_cost
from draftproof.errors import InputError
from draftproof.measure.files import check_place, write_whole
from draftproof.measure.read import read_info, read_run
from draftproof.planner import price
from draftproof.planner.cost import CostCurve
from draftproof.planner.evidence import Evidence
from draftproof.planner.make import Options, make_plan
from draftproof.planner.plan import Plan

_CALCULATOR = ("gamma", "tokens_per_round", "alpha")
_OF_A_RUN = ("cost", "concurrency", "memory", "context")
_CONSTANTS = ("t_target", "t_draft", "verify_slope")
_EPILOG = """examples:
  draftproof plan RUN --price-per-hour 2.50 --memory 80GiB
  draftproof plan RUN --cost cost.json --concurrency 1,8,64 --html report.html
  draftproof plan RUN --t-target 11 --t-draft suffix=0.1 --t-draft early_exit=3 --verify-slope 0.05
  draftproof plan --t-target 100 --t-draft 8 --gamma 4 --tokens-per-round 3
  draftproof plan --t-target 100 --t-draft 8 --alpha 0.2 --html page.html
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "plan",
        help="what speculation would bring: best drafter and draft length by bucket and load, memory, money",
        description="Plans a measured run: for each bucket and load the best drafter and draft length, speed-up with "
        "its 95 % interval, break-even load, memory and money; the plan is stored as RUN/plan.json. Without RUN it is "
        "a calculator of the textbook price.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run_folder", nargs="?", metavar="RUN", help="folder that `draftproof measure` wrote")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_run_options(parser.add_argument_group("planning"))
    _add_cost_options(parser.add_argument_group("costs as constants, in milliseconds"))
    _add_calculator_options(parser.add_argument_group("calculator (without RUN)"))
    parser.set_defaults(run=run)


def _add_run_options(group: Any) -> None:
    add = group.add_argument
    add("--cost", metavar="FILE", help="what `draftproof cost` wrote (RUN/cost.json)")
    add(
        "--concurrency",
        type=options.integers,
        metavar="N,N",
        help="sequences decoded at once (the loads that were measured)",
    )
    add("--price-per-hour", type=_number, metavar="X", help="of the machine; adds the price of a million tokens")
    add("--memory", type=options.memory, metavar="SIZE", help="of the card, like 80GiB; says what fits")
    add("--context", type=int, metavar="N", help="tokens of context to plan for (the run's own)")
    add("--html", metavar="FILE", help="also write a report, or the calculator's page: one file that opens offline")


def _add_cost_options(group: Any) -> None:
    add = group.add_argument
    add("--t-target", type=_number, metavar="MS", help="one plain step of the target")
    add(
        "--t-draft",
        type=_step,
        action="append",
        metavar="[NAME=]MS",
        help="one draft token; with a NAME of that drafter, repeatable",
    )
    add("--verify-slope", type=_number, metavar="X", help="share of a plain step that each draft row adds to it (0)")


def _add_calculator_options(group: Any) -> None:
    add = group.add_argument
    add("--gamma", type=int, metavar="N", help="draft length (the best one, with --alpha)")
    add("--tokens-per-round", type=_number, metavar="A", help="with the correction or bonus token")
    add("--alpha", type=_number, metavar="A", help="acceptance of each draft token, in place of --tokens-per-round")


def run(args: argparse.Namespace) -> int:
    """Exit code 0."""
    if args.run_folder is None:
        _refuse(args, _OF_A_RUN, "needs a RUN folder")
        _calculate(args)
        return 0
    _refuse(args, _CALCULATOR, "belongs to the calculator: give it without RUN")
    folder = Path(args.run_folder)
    _check_html(args.html, folder)
    evidence = read_run(folder)
    curve = _curve(args, folder, evidence)
    loads = args.concurrency or curve.loads or (1,)
    plan = make_plan(evidence, curve, Options(loads, args.price_per_hour, args.memory, args.context))
    try:
        _store(plan, folder / "plan.json")
    except InputError as error:  # a shared or archived run can still be planned
        note(f"the plan is not stored for `draftproof export`: {error}")
    if args.html is not None:
        from draftproof.measure.report import write_report  # its charts are an optional dependency

        write_report(plan, Path(args.html), read_info(folder))
        note(f"report: {args.html}")
    if args.json:
        print_json(plan.to_json())
    else:
        plan_tables.show(plan)
    return 0


def _check_html(html: str | None, folder: Path | None) -> None:
    """A report replaces an earlier report, and no other file. Raises InputError."""
    if html is None:
        return
    path = Path(html)
    check_place(path)
    if folder is not None and path.resolve().is_relative_to(folder.resolve()) and path.suffix != ".html":
        raise InputError(f"{path} is a file of the run: give --html another name, like {folder}/report.html")
    try:
        if (
            path.exists()
            and path.stat().st_size
            and not path.read_bytes()[:1024].lstrip().lower().startswith(b"<!doctype")
        ):
            raise InputError(f"{path} is there already and is no report: give --html another name")
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from None


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} {why} (see `draftproof plan --help`)")


def _curve(args: argparse.Namespace, folder: Path, evidence: Evidence) -> CostCurve:
    """The costs to plan with: a file, constants, or those stored with the run."""
    given = [name for name in _CONSTANTS if getattr(args, name) is not None]
    if args.cost is not None:
        if given:
            raise InputError(f"--cost and --{given[0].replace('_', '-')} say the same thing twice: give one of them")
        return read_cost(Path(args.cost))
    if given:
        if args.t_target is None or args.t_draft is None:
            raise InputError("constants need both --t-target and --t-draft, in milliseconds")
        known = [info.name for info in evidence.drafters]
        return CostCurve.constant(args.t_target, _steps(args.t_draft, known), args.verify_slope or 0.0)
    if (folder / "cost.json").is_file():
        return read_cost(folder / "cost.json")
    raise InputError(
        f"nothing is known of costs: measure them with `draftproof cost --run {folder}`, or give --cost FILE, or "
        "--t-target and --t-draft in milliseconds"
    )


def _steps(given: list[tuple[str | None, float]], known: list[str]) -> dict[str | None, float]:
    """Milliseconds by drafter; None stands for every drafter that is not named."""
    steps: dict[str | None, float] = {}
    for name, ms in given:
        if name is not None and name not in known:
            there = f"the run's drafters are {', '.join(known)}" if known else "without RUN drafters have no names"
            raise InputError(f"--t-draft names {name!r}; {there}")
        if name in steps:
            raise InputError(f"--t-draft is given twice for {name or 'all drafters'}")
        steps[name] = ms
    return steps


def _store(plan: Plan, path: Path) -> None:
    """Whole or not at all."""
    write_whole(path, json.dumps(plan.to_json(), indent=1, allow_nan=False).encode() + b"\n")


def _calculate(args: argparse.Namespace) -> None:
    _check_html(args.html, None)
    if args.t_target is None or args.t_draft is None:
        raise InputError(
            "give a RUN folder, or for the calculator --t-target and --t-draft in milliseconds with --alpha, or with "
            "--gamma and --tokens-per-round"
        )
    steps = _steps(args.t_draft, [])
    if (args.alpha is None) == (args.tokens_per_round is None):
        raise InputError("the calculator needs either --alpha or --tokens-per-round")
    if args.alpha is None and args.gamma is None:
        raise InputError("--tokens-per-round needs the draft length that it was seen at: --gamma")
    slope = args.verify_slope or 0.0
    price.check_gamma(args.gamma or 0)
    costs = price.round_costs(args.t_target, steps[None], slope)
    found = price.calculate(costs, gamma=args.gamma, alpha=args.alpha, tokens=args.tokens_per_round)
    if args.html is not None:
        from draftproof.measure.report import Settings, write_calculator  # its charts are an optional dependency

        alpha = 0.0 if found.alpha is None else found.alpha
        write_calculator(args.html, Settings(args.t_target, steps[None], found.gamma, alpha, slope))
        note(f"page: {args.html}")
    money = _money(args, found)
    if args.json:
        print_json({**found.as_dict(), **money})
    else:
        plan_tables.show_calculation(found, money)


def _money(args: argparse.Namespace, found: price.Calculation) -> dict[str, float]:
    if args.price_per_hour is None:
        return {}
    plain, now = 1000 / args.t_target, 1000 / found.itl_ms
    return {
        "price_per_million_plain": price.price_per_million(args.price_per_hour, plain),
        "price_per_million": price.price_per_million(args.price_per_hour, now),
    }


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number >= 0")
    return value


def _step(text: str) -> tuple[str | None, float]:
    """(drafter or None, milliseconds) of "NAME=MS" or "MS"."""
    name, named, ms = text.rpartition("=")
    return (name if named else None), _number(ms)
