"""`draftproof certify`: is the speculative output the target's, and how large an error would have been found?

Does not know: the tests, how a certificate is judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.certify import EXIT_CODES, STAGES, Certificate, Plan, check_read, dumps
from draftproof.certify import report as reporting
from draftproof.certify.compare import still_holds
from draftproof.certify.own import PROMPTS, OwnEngine, options_of, prepare
from draftproof.certify.session import Progress
from draftproof.cli import options
from draftproof.cli.console import loading, note, print_table
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.measure.files import check_place, write_whole
from draftproof.measure.provenance import provenance
from draftproof.types import SamplingParams

_EPILOG = """examples:
  draftproof certify --drafter suffix --out cert.json
  draftproof certify --model ./target --drafter model --draft-model ./small --rule reject --temperature 0.8 \\
      --tokens 50000 --out cert.json --html cert.html
  draftproof certify --drafter early_exit --temperature 0      # greedy: identity with plain decoding
  draftproof certify --check cert.json                         # does it still hold?

verdicts and exit codes: lossless 0, fault 1, not_enough_evidence 3; 2 is an input that can't be used.
"lossless" means: no fault was found, and one of the size printed would have been found with 99 % chance.

The temperature is 0.8 unless given; --max-new-tokens is the length of one sampled text. With --out, a run that is
killed is carried on by the same command.
"""
_PACE = 10.0  # seconds between lines where nobody watches a bar


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "certify",
        help="certify that speculation leaves the target's law unchanged, or show where it does not",
        description="Tests on this model and machine whether speculative output follows the target's law, each test "
        "with its false-alarm rate and with the smallest error that it finds; writes a certificate.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, hidden = parser.add_argument, argparse.SUPPRESS
    add("--tokens", type=int, metavar="N", default=hidden, help="tokens to sample (20000)")
    add("--alpha", type=float, metavar="A", default=hidden, help="chance of any false alarm (0.001)")
    add("--max-tv", type=float, metavar="X", default=hidden, help="error that must have been found to pass (0.05)")
    add("--tests", metavar="LIST", default=hidden, help=f"stages, with commas: {','.join(STAGES)} (all)")
    add("--prompts", metavar="FILE", help="prompts, one a line (a few built-in ones)")
    add("--out", metavar="FILE", help="write the certificate (JSON) here; a killed run carries on")
    add("--html", metavar="FILE", help="write the certificate as a page")
    add("--check", metavar="CERT", help="run a certificate again, and say whether it still holds")
    add("--json", action="store_true", help="print the certificate")
    add("--quiet", action="store_true", help="no progress")
    options.add_model_options(parser, drafter="suffix")
    options.add_sampling_options(parser, logprobs=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code by the verdict of this run; with --check, too."""
    for path in (args.out, args.html):
        if path is not None:
            check_place(Path(path))
    before = None if args.check is None else _before(args)
    with loading(args.quiet) as progress:
        own = prepare(_engine(args, before), progress)
    plan = _plan(args, own) if before is None else Plan.from_json(before["plan"])
    state = None if args.out is None else Path(f"{args.out}.part")
    try:
        with _watching(args.quiet) as watch:
            made = own.certify(plan, state=state, progress=watch)
    except KeyboardInterrupt:
        if state is not None and state.exists():
            note(f"what was tested so far is kept in {state}: the same command carries on")
        raise
    made["provenance"] = provenance(["draftproof", *sys.argv[1:]])
    if before is not None:
        made["check"] = still_holds(before, made)
    _write(args, made)
    return EXIT_CODES[made["verdict"]]


def _before(args: argparse.Namespace) -> Certificate:
    """The certificate to be run again. Raises InputError where something is asked that it settles itself."""
    asked = [
        name for name in ("tokens", "alpha", "max_tv", "tests", *SamplingParams.__dataclass_fields__) if name in args
    ]
    usual = {"model": "demo", "drafter": "suffix", "weights": "auto", "backend": "auto", "numerics": "auto"}
    names = ("model", "drafter", *options.ENGINE_OPTIONS, "prompts")
    asked += [name for name in names if getattr(args, name) != usual.get(name)]
    if asked:
        raise InvalidParams(f"--check runs a certificate with its own settings: drop --{asked[0].replace('_', '-')}")
    return read(Path(args.check))


def read(path: Path) -> Certificate:
    """A certificate of our own engine. Raises InputError for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"can't read {path}: {error}") from error
    found = check_read(value, str(path))
    if found.get("subject", {}).get("kind") != "engine":
        raise InputError(f"{path} is not a certificate of draftproof's own engine: run it again as it was made")
    return found


def _engine(args: argparse.Namespace, before: Certificate | None) -> EngineOptions:
    if before is not None:
        return options_of(before["subject"]["options"], args.cache_dir)
    given = {name: getattr(args, name) for name in options.ENGINE_OPTIONS}
    return EngineOptions(model=args.model, drafter=args.drafter, cache_dir=args.cache_dir, **given)


def _plan(args: argparse.Namespace, own: OwnEngine) -> Plan:
    params = options.sampling_params(args)
    if "temperature" not in args:
        params = replace(params, temperature=0.8)
    settings: dict[str, Any] = {name: getattr(args, name) for name in ("tokens", "alpha", "max_tv") if name in args}
    if "tests" in args:
        settings["tests"] = tuple(part.strip() for part in args.tests.split(","))
    if "max_new_tokens" in args:
        settings["text_tokens"] = args.max_new_tokens
    settings["seed"] = 0 if params.seed is None else params.seed
    return own.plan(_prompts(args.prompts), params, **settings)


def _prompts(path: str | None) -> tuple[str, ...]:
    if path is None:
        return PROMPTS
    try:
        found = tuple(line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise InputError(f"can't read {path}: {error}") from error
    if not found:
        raise InvalidParams(f"{path} holds no prompt: give one a line")
    return found


def _write(args: argparse.Namespace, made: Certificate) -> None:
    if args.out is not None:
        write_whole(Path(args.out), dumps(made).encode() + b"\n")
    if args.html is not None:
        write_whole(Path(args.html), reporting.page(made).encode())
    if args.json:
        print(dumps(made), flush=True)
        return
    print_table(reporting.HEAD, reporting.rows(made))
    for line in reporting.lines(made):
        print(line)
    if "check" in made:
        _say_check(made["check"])


def _say_check(check: dict[str, Any]) -> None:
    holds = "still holds" if check["holds"] else f"does not hold: it said {check['before']}, now it is {check['now']}"
    print(f"the certificate {holds}")
    for change in check["changed"]:
        print(f"changed: {change['what']} was {change['before']}, is {change['now']}")


@contextmanager
def _watching(quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, a line now and then elsewhere."""
    if quiet:
        yield lambda *_: None
    elif sys.stderr.isatty():
        from rich.console import Console  # a tenth of a second to import, and not needed by --help
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("certifying", total=None)
            yield lambda stage, done, of: bar.update(task, description=stage, completed=done, total=of)
    else:
        yield _Lines().take


class _Lines:
    """Plain progress."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def take(self, stage: str, done: int, of: int) -> None:
        if time.monotonic() - self._last > _PACE:
            self._last = time.monotonic()
            note(f"{stage}: {done} of {of}")
