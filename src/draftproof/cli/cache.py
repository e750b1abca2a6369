"""`draftproof cache list|clear`: the converted models that are kept so that the next start is quick.

Does not know: what is in an entry.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from draftproof.cli.console import print_json, print_table
from draftproof.models.cache import Cache

_EPILOG = """examples:
  draftproof cache list
  draftproof cache clear demo
  draftproof cache clear --json
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "cache",
        help="list or clear the converted models",
        description="Lists or clears the converted models that are kept so that the next start is quick.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=["list", "clear"])
    parser.add_argument("name", nargs="?", metavar="NAME", help="clear only this model's entries (name or key)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--cache-dir", metavar="DIR", help="another cache folder")
    parser.set_defaults(run=run)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"


def run(args: argparse.Namespace) -> int:
    """Exit code 0."""
    cache = Cache(args.cache_dir)
    if args.action == "clear":
        freed = cache.clear(args.name)
        print_json({"freed_bytes": freed}) if args.json else print(f"freed {_size(freed)}")
        return 0
    entries = [entry for entry in cache.entries() if args.name in (None, entry.name, entry.key)]
    if args.json:
        listed = [
            {"name": e.name, "key": e.key, "bytes": e.bytes, "created": e.created, "path": str(e.path)} for e in entries
        ]
        print_json({"dir": str(cache.dir), "entries": listed})
        return 0
    if not entries:
        print(f"nothing in {cache.dir}")
        return 0
    when = "%Y-%m-%d %H:%M"
    rows = [[e.name, e.key, _size(e.bytes), time.strftime(when, time.localtime(e.created))] for e in entries]
    print_table(["model", "key", "size", "created"], rows, title=str(cache.dir))
    return 0
