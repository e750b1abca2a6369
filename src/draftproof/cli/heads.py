"""`draftproof heads show|export|import`: draft heads in the formats of other engines, there and back.

Invariant: a folder that holds something is written to only with --force.

Does not know: formats, tensors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.cli.console import clean, loading, print_json
from draftproof.errors import InputError
from draftproof.export.heads import FORMATS, serve_command
from draftproof.models.cache import Cache
from draftproof.models.head_source import resolve_head
from draftproof.models.load import Loader
from draftproof.models.source import DEMO, resolve

if TYPE_CHECKING:
    from draftproof.models.head_formats.desk import GivenTarget

_EPILOG = """examples:
  draftproof heads show                                   the head that ships for the demo model
  draftproof heads show HEAD --model MODEL                is it a head of this model?
  draftproof heads export HEAD --to speculators --model MODEL --target-name org/model --out HEAD-vllm
  draftproof heads export HEAD --to eagle3 --model MODEL --out HEAD-sglang
  draftproof heads import HEAD-vllm --model MODEL --out HEAD
"""
_DEMO_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "heads",
        help="draft heads in the formats of other engines",
        description="Shows a draft head, writes it in another engine's format, or takes one over from there. "
        "An EAGLE head in any of these formats can be given to --draft-model as it is.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    doing = parser.add_subparsers(dest="doing", metavar="WHAT", required=True)
    for name, words in (
        ("show", "what a head is, and whether it fits a model"),
        ("export", "write a head in another engine's format"),
        ("import", "write a head of another format in draftproof's own"),
    ):
        _add(doing, name, words)


def _add(doing: Any, name: str, words: str) -> None:
    parser = doing.add_parser(
        name,
        help=words,
        description=f"{words[0].upper()}{words[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    if name == "import":
        add("head", metavar="HEAD", help="a folder in any of the formats")
        add("--model", required=True, metavar="M", help="the target it was made for")
    else:
        add(
            "head", nargs="?", metavar="HEAD", help="a folder in any of the formats (the head that ships for the model)"
        )
        add("--model", metavar="M", help="the target it was made for (demo where no HEAD is given)")
    if name == "export":
        shown = ", ".join(f"{form} ({engines})" for form, engines in FORMATS.items())
        add("--to", required=True, choices=list(FORMATS), metavar="FORMAT", help=shown)
        add("--target-name", metavar="NAME", help="what the other engine calls the target (as of --model)")
        add("--draft-tokens", type=int, default=3, metavar="N", help="drafts a round that the format suggests (3)")
        add("--with-rows", action="store_true", help="put the target's embedding (Medusa: its output rows) in, too")
    if name != "show":
        add("--out", type=Path, required=True, metavar="DIR", help="a new or empty folder")
        add("--force", action="store_true", help="write over what is in DIR")
    add("--cache-dir", type=Path, metavar="DIR", help="where converted models are kept (the user's cache folder)")
    add("--json", action="store_true", help="print one object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0, or InputError for what can't be read, written or run."""
    folder = resolve_head(None, args.model or DEMO).folder if args.head is None else _folder(args.head)
    model = args.model or (DEMO if args.head is None else None)
    if model is None and args.doing == "export":
        raise InputError("which target is it a head of? Its output rows are written with it: give --model")
    with loading(args.json) as report:
        from draftproof.models.head_formats.desk import GivenTarget  # torch takes seconds to import

        target = None if model is None else GivenTarget(Loader(Cache(args.cache_dir), report), resolve(model))
        report("reading the head")
        value = _done(args, folder, target)
    if args.json:
        print_json(value)
    else:
        _show(value)
    return 0


def _folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise InputError(f"no draft head {name!r}: give the folder it lies in")
    return folder


def _done(args: argparse.Namespace, folder: Path, target: GivenTarget | None) -> dict[str, Any]:
    from draftproof.models.head_formats import desk  # as above

    if args.doing == "show" or target is None:
        return desk.look(folder, target) | {"target": None if target is None else target.source.name}
    if args.doing == "import":
        return desk.take_over(folder, args.out, target, force=args.force)
    if args.draft_tokens < 1:
        raise InputError(f"--draft-tokens must be at least 1, got {args.draft_tokens}")
    name = args.target_name or (_DEMO_NAME if target.source.name == DEMO else target.source.name)
    wishes = desk.Wishes(args.to, name, args.draft_tokens, args.with_rows)
    written = desk.write(folder, args.out, target, wishes, force=args.force)
    return written | {"command": serve_command(args.to, name, str(args.out), args.draft_tokens)}


def _show(value: dict[str, Any]) -> None:
    if "out" in value:
        print(f"written: {value['out']} ({value['format']}, {value['bytes'] / 1e6:.1f} MB)")
        if "rows" in value:
            print(f"embedding: {value['rows']['embedding']}; output rows: {value['rows']['output']}")
        if value.get("command"):
            print(f"\n{value['command']}")
        return
    for name, inner in value.items():
        if name != "more" and inner is not None:
            shown = ", ".join(map(str, inner)) if isinstance(inner, list) else str(inner)
            print(f"{name:<22}{clean(shown, 90)}")
