"""`draftproof certify`: is the speculative output the target's, and how large an error would have been found?

Does not know: the tests, how a certificate is judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.certify import EXIT_CODES, STAGES, Certificate, Plan, dumps
from draftproof.certify import report as reporting
from draftproof.certify.adapters import PEERS
from draftproof.certify.adapters.foreign import Foreign
from draftproof.certify.again import Recipe
from draftproof.certify.compare import still_holds
from draftproof.certify.own import PROMPTS, OwnEngine, prepare
from draftproof.certify.session import Progress, finish
from draftproof.cli import options
from draftproof.cli.certify_subject import asked_for, before_of
from draftproof.cli.console import clean, loading, note, print_table
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.measure.files import check_place, write_whole
from draftproof.measure.provenance import provenance

_EPILOG = """examples:
  draftproof certify --drafter suffix --out cert.json
  draftproof certify --model ./target --drafter model --draft-model ./small --rule reject --temperature 0.8 \\
      --tokens 50000 --out cert.json --html cert.html
  draftproof certify --drafter early_exit --temperature 0      # greedy: identity with plain decoding
  draftproof certify --check cert.json                         # does it still hold?
  draftproof certify --model ./target --endpoint http://127.0.0.1:8000 --baseline http://127.0.0.1:8001 --out cert.json
  draftproof certify --subject transformers --subject-options '{"lookup": 4}' --temperature 0.8 --out cert.json
  draftproof certify --check cert.json --endpoint http://127.0.0.1:8000 --baseline http://127.0.0.1:8001

verdicts and exit codes: lossless 0, fault 1, not_enough_evidence 3; 2 is an input that can't be used.
"lossless" means: no fault was found, and one of the size printed would have been found with 99 % chance.

The temperature is 0.8 unless given; --max-new-tokens is the length of one sampled text. With --out, a run that is
killed is carried on by the same command. Beside --endpoint, --model is the model that the server runs: its laws, with
the --weights that are asked for, and plain decoding by the baseline are what the server is held to.

--check takes all settings from the certificate, but for what would be unwise to take from a file: addresses of servers,
keys and interpreters (--endpoint, --baseline, --api-key, --python) are given again.
"""
_LONGEST = 20_000  # characters of a line
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
    add("--request-timeout", type=float, metavar="S", help="seconds that a server's whole answer may take (600)")
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
    _check_places(args)
    before = before_of(args)
    plan = None if before is None else Plan.from_json(before["plan"])
    wanted = asked_for(args, before)
    state = None if args.out is None else Path(f"{args.out}.part")
    with ExitStack() as stack:
        with loading(args.quiet) as progress:
            own, recipe = _opened(wanted, stack, progress)
        plan = plan or _plan(args, own)
        try:
            with _watching(args.quiet) as watch:
                made = own.certify(plan, state=state, progress=watch)
        except KeyboardInterrupt:
            if state is not None and state.exists():
                note(f"what was tested so far is kept in {state}: the same command carries on")
            raise
    made["provenance"] = provenance(["draftproof", *_without_key(sys.argv[1:])])
    if recipe is not None:
        made["again"] = recipe
    if before is not None:
        made["check"] = still_holds(before, made)
    _write(args, made)
    finish(made, state)
    return EXIT_CODES[made["verdict"]]


def _check_places(args: argparse.Namespace) -> None:
    """Raises InputError where a file can't be written, or would take the place of another one."""
    for path in (args.out, args.html):
        if path is not None:
            check_place(Path(path))
    for name in ("out", "check"):
        other = getattr(args, name)
        if args.html is not None and other is not None and Path(args.html).resolve() == Path(other).resolve():
            raise InvalidParams(f"--html and --{name} are the same file: the page would take the certificate's place")


def _opened(
    wanted: EngineOptions | Recipe, stack: ExitStack, progress: Callable[[str], None]
) -> tuple[OwnEngine | Foreign, dict[str, Any] | None]:
    """Ready to be certified; of another engine, with the recipe that its certificate keeps."""
    if isinstance(wanted, EngineOptions):
        return prepare(wanted, progress), None
    return stack.enter_context(wanted.open(progress)), wanted.as_json()


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
        write_whole(Path(args.html), reporting.page(made).encode(errors="backslashreplace"))
    if args.json:
        print(dumps(made), flush=True)
        return
    print_table(reporting.HEAD, reporting.rows(made))
    for line in (*reporting.lines(made), *_of_check(made)):
        print(clean(line, _LONGEST))  # servers and files had their say in it


def _of_check(made: Certificate) -> Iterator[str]:
    check = made.get("check")
    if check is None:
        return
    if check["holds"] is None:
        why = made["reasons"][0]
        yield f"the certificate could not be run again to its end, so whether it holds is not known: {why}"
    elif check["holds"]:
        yield "the certificate still holds"
    else:
        yield f"the certificate does not hold: it said {check['before']}, now it is {check['now']}"
    for change in check["changed"]:
        yield f"changed: {change['what']} was {change['before']}, is {change['now']}"


def _without_key(words: Sequence[str]) -> list[str]:
    """A command as a certificate may show it."""
    shown = ["--api-key=***" if word.startswith("--api-key=") else word for word in words]
    return ["***" if index and shown[index - 1] == "--api-key" else word for index, word in enumerate(shown)]


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
