"""`draftproof train eagle|medusa|draft-model`: a drafter for a target, from the target's own texts.

Does not know: how a drafter is trained.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from draftproof.cli.console import note, number, print_json, print_table
from draftproof.errors import InputError
from draftproof.train.settings import TrainSettings

_EPILOG = """examples:
  draftproof train eagle --out ./head                       three hours on two cores, prompts that ship
  draftproof train eagle --data prompts.jsonl --minutes 60 --out ./head
  draftproof train eagle --init ./head --minutes 30 --out ./better
  draftproof train medusa --minutes 30 --out ./medusa       heads that each guess one token apart: small, and weaker
  draftproof train draft-model --layers 4 --out ./small     a small model of the target's kind, for any engine
  draftproof generate "Why is the sky blue?" --drafter eagle --draft-model ./head
  draftproof generate "Why is the sky blue?" --drafter model --draft-model ./small

Killed at any time, the same command goes on. What is worse than what lies in --out is not written (exit code 1).
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "train",
        help="train a draft head or a draft model for a model",
        description="Trains an EAGLE head, Medusa heads, or a small draft model: the target writes its own texts, and "
        "the drafter learns to foresee them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("kind", choices=("eagle", "medusa", "draft-model"), help="what to train")
    add("--model", default="demo", metavar="M", help="the target: 'demo', a Hugging Face folder or id, or a GGUF file")
    add("--out", required=True, type=_folder, metavar="DIR", help="where the drafter goes, and what is under way")
    add(
        "--data",
        type=Path,
        metavar="FILE",
        help="prompts, JSONL or Parquet as of `measure` (those that ship, and as many the target makes up)",
    )
    add("--bucket-field", metavar="F", help="field of the data that names a prompt's bucket")
    add("--texts", type=Path, metavar="DIR", help="texts another run wrote (its work/): train on these, write none")
    add("--init", type=Path, metavar="DIR", help="a drafter of this kind to start from (a new one)")
    add("--minutes", type=float, default=180.0, metavar="N", help="time for texts and steps together (180)")
    add("--draft-vocab", type=int, metavar="N", help="of a head: tokens it can say (8192)")
    add("--layers", type=int, metavar="N", help="of a draft model: its layers (a tenth of the target's, at least 2)")
    add("--learning-rate", type=float, metavar="X", help="the highest (1e-3; 2e-4 with --init)")
    add("--seed", type=int, default=0, metavar="N", help="of prompts, texts and order (0)")
    add("--threads", type=int, metavar="N", help="threads to use (all cores)")
    add("--cache-dir", type=Path, metavar="DIR", help="where converted models are kept (the user's cache folder)")
    add("--json", action="store_true", help="print one object")
    add("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def _folder(text: str) -> Path:
    """An empty name would be the folder one is in."""
    if not text:
        raise argparse.ArgumentTypeError("must name a folder")
    return Path(text)


def run(args: argparse.Namespace) -> int:
    """Trains, shows the held-out figures; 1 where the gate refused what was made."""
    from draftproof.train.job import Job  # torch takes seconds to import
    from draftproof.train.kinds import KINDS

    names = ("out", "model", "data", "bucket_field", "init", "texts", "minutes", "layers", "learning_rate", "seed")
    given = {name: getattr(args, name) for name in (*names, "threads", "cache_dir")}
    if args.draft_vocab is not None:
        if args.kind == "draft-model":
            raise InputError("--draft-vocab is of heads: a draft model can say every token of its target")
        given["draft_vocab"] = args.draft_vocab
    report = Job(TrainSettings(**given), (lambda _: None) if args.quiet else note, KINDS[args.kind]).run(sys.argv)
    if args.json:
        print_json(report)
    else:
        _show(report)
    if not report["written"]:
        note(f"the new one is worse than what is in {args.out}, which stays")
    return 0 if report["written"] else 1


def _show(report: dict[str, Any]) -> None:
    places = max(len(score["acceptance"]) for score in (*report["before"].values(), *report["held_out"].values()))
    names = ("1st", "2nd", "3rd", *(f"{place}th" for place in range(4, places + 1)))[:places]
    head, rows = ["held out", "when", *names, "tokens per round"], []
    for name, scores in (("before", report["before"]), ("now", report["held_out"])):
        for bucket, score in scores.items():
            rates = [number(rate, ".2f") for rate in score["acceptance"]]
            rates += [""] * (places - len(rates))
            rows.append([bucket, name, *rates, number(score["tokens_per_round"], ".2f")])
    print_table(
        head,
        sorted(rows, key=lambda row: row[0]),
        "greedy acceptance of each draft, where the ones before it were right",
    )
    print(f"\n{report['steps']} steps on {report['texts']} texts; {report['out']}")
