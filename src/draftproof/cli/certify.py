"""`draftproof certify`: is the speculative output the target's, and how large an error would have been found?

Does not know: the tests, how a certificate is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.certify import EXIT_CODES, STAGES, Certificate, Plan, check_read, dumps
from draftproof.certify import report as reporting
from draftproof.certify.adapters import PEERS
from draftproof.certify.adapters.foreign import Foreign, open_endpoint, open_engine
from draftproof.certify.compare import still_holds
from draftproof.certify.endpoint import EndpointOptions
from draftproof.certify.own import PROMPTS, OwnEngine, options_of, prepare
from draftproof.certify.session import Progress
from draftproof.cli import options
from draftproof.cli.console import loading, note, print_table
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.measure.files import check_place, write_whole
from draftproof.measure.provenance import provenance
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve
from draftproof.types import SamplingParams

_EPILOG = """examples:
  draftproof certify --drafter suffix --out cert.json
  draftproof certify --model ./target --drafter model --draft-model ./small --rule reject --temperature 0.8 \\
      --tokens 50000 --out cert.json --html cert.html
  draftproof certify --drafter early_exit --temperature 0      # greedy: identity with plain decoding
  draftproof certify --check cert.json                         # does it still hold?
  draftproof certify --model ./target --endpoint http://127.0.0.1:8000 --baseline http://127.0.0.1:8001 --out cert.json
  draftproof certify --subject transformers --subject-options '{"lookup": 4}' --temperature 0.8 --out cert.json

verdicts and exit codes: lossless 0, fault 1, not_enough_evidence 3; 2 is an input that can't be used.
"lossless" means: no fault was found, and one of the size printed would have been found with 99 % chance.

The temperature is 0.8 unless given; --max-new-tokens is the length of one sampled text. With --out, a run that is
killed is carried on by the same command. Beside --endpoint, --model is the model that the server runs: its laws, with
the --weights that are asked for, and plain decoding by the baseline are what the server is held to.
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
    add("--endpoint", metavar="URL", help="certify an OpenAI-compatible server instead of our engine")
    add("--baseline", metavar="URL", help="the same without speculation (draftproof's own: the server, switched off)")
    add("--served-model", metavar="NAME", help="what the servers call the model (their first one)")
    add("--api-key", metavar="KEY", help="of the servers (DRAFTPROOF_API_KEY)")
    add("--subject", metavar="ENGINE", help=f"certify another engine here: {', '.join(PEERS)}")
    add("--subject-options", metavar="JSON", help="its options, like '{\"lookup\": 4}'")
    add("--python", metavar="PATH", help="the interpreter that has it (this one)")
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
    state = None if args.out is None else Path(f"{args.out}.part")
    with ExitStack() as stack:
        with loading(args.quiet) as progress:
            own = _subject(args, before, stack, progress)
        plan = _plan(args, own) if before is None else Plan.from_json(before["plan"])
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


def _subject(
    args: argparse.Namespace, before: Certificate | None, stack: ExitStack, progress: Callable[[str], None]
) -> OwnEngine | Foreign:
    """Our engine, or a server. Raises InvalidParams for options that exclude each other."""
    if args.endpoint is not None and args.subject is not None:
        raise InvalidParams("--endpoint and --subject exclude each other: one subject at a time")
    of = {"baseline": "endpoint", "served_model": "endpoint", "api_key": "endpoint"}
    of |= {"subject_options": "subject", "python": "subject"}
    for name, owner in of.items():
        if getattr(args, name) is not None and getattr(args, owner) is None:
            raise InvalidParams(f"--{name.replace('_', '-')} goes with --{owner}: give that, too")
    if args.endpoint is None and args.subject is None:
        return prepare(_engine(args, before), progress)
    if before is not None:
        raise InvalidParams("--check runs certificates of our own engine: run this one again as it was made")
    return stack.enter_context(_foreign(args, progress))


def _foreign(args: argparse.Namespace, progress: Callable[[str], None]) -> Foreign:
    """A server, or another engine. Raises InputError."""
    drafting = [name for name in ("draft_model", "exit_layer", "gamma", "cost_file") if getattr(args, name) is not None]
    if drafting or args.drafter != "suffix":
        name = (drafting or ["drafter"])[0].replace("_", "-")
        raise InvalidParams(f"another engine drafts as it was set up: drop --{name}")
    if args.endpoint is not None:
        key = args.api_key or os.environ.get("DRAFTPROOF_API_KEY")
        server = EndpointOptions(args.endpoint, model=args.served_model, api_key=key)
        return open_endpoint(server, args.baseline, _engine(args, None))
    progress("opening the other engine")
    folder = Loader(Cache(args.cache_dir), progress).folder(resolve(args.model))
    return open_engine(args.subject, {"model": str(folder), **_subject_options(args)}, folder, args.python)


def _subject_options(args: argparse.Namespace) -> dict[str, Any]:
    try:
        value = json.loads(args.subject_options or "{}")
    except ValueError as error:
        raise InvalidParams(f"--subject-options is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidParams("--subject-options must be a JSON object, like '{\"lookup\": 4}'")
    return value


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


def _plan(args: argparse.Namespace, own: OwnEngine | Foreign) -> Plan:
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
