"""`draftproof COMMAND`: finds the command, runs it, and turns errors into one line and an exit code.

0 done; 1 the engine broke a promise, or a check found a difference; 2 the input can't be used; 130 interrupted.
A traceback is shown only for a fault of draftproof itself.

Does not know: what the commands do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from draftproof import __version__
from draftproof.cli import (
    cache,
    certify,
    cost,
    demo,
    doctor,
    export,
    generate,
    heads,
    measure,
    plan,
    query,
    rollout,
    serve,
    train,
)
from draftproof.cli.console import clean, soften
from draftproof.errors import DraftproofError, InputError

_COMMANDS = (demo, generate, certify, measure, cost, plan, export, query, serve, rollout, train, heads, doctor, cache)
_EPILOG = """examples:
  draftproof demo                                    see it work, plain against speculative
  draftproof generate "Why is the sky blue?" --drafter suffix --compare
  draftproof COMMAND --help                          options and examples of a command
"""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are input errors like any other: one line, no usage text before it."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see `{self.prog} --help`)")


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="draftproof",
        description="Speculative decoding you can prove, price and roll out.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"draftproof {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return top


def _line(message: str) -> None:
    """One line on stderr, whatever the message holds; a stderr that is gone is no reason to fail again."""
    try:
        print(f"draftproof: {clean(' '.join(message.split()), len(message))}", file=sys.stderr, flush=True)
    except OSError:
        return


def _drop_stdout() -> None:
    """The reader is gone: what is still buffered must not raise once more at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code. Only --help and --version end by SystemExit."""
    soften()
    try:
        args = parser().parse_args(argv)
        code = int(args.run(args))
        sys.stdout.flush()
    except InputError as error:
        _line(f"error: {error}")
        return 2
    except DraftproofError as error:
        _line(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _line("interrupted")
        return 130
    except BrokenPipeError:
        _drop_stdout()
        return 141  # as a shell reports SIGPIPE
    return code


if __name__ == "__main__":
    sys.exit(main())
