"""`draftproof measure`: how much of one's own prompts each drafter would have guessed, stored token by token.

Does not know: how it is measured, stored, or planned with.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.cli import options
from draftproof.cli.console import note, number, percent, print_json, print_table
from draftproof.cli.measure_watch import watching
from draftproof.errors import DraftproofError
from draftproof.measure.run import Outcome, measure
from draftproof.measure.settings import DEFAULT_BATCH, DEFAULT_GAMMA, Settings
from draftproof.measure.specs import parse_drafters
from draftproof.measure.store import is_begun
from draftproof.measure.summary import Summary, summarise_run
from draftproof.planner.interval import Interval

_ENGINE = ("weights", "draft_weights", "backend", "numerics", "kv_memory", "threads", "cache_dir")
_EPILOG = """examples:
  draftproof measure --model demo --drafter suffix --drafter ngram --data prompts.jsonl --out RUN
  draftproof measure --model ./target --drafter model:./small --drafter early_exit:8 \\
      --data chats.parquet --bucket-field task --temperature 0.8 --top-p 0.95 --out RUN
  draftproof measure --model ./target --drafter suffix --data logged.jsonl --log --out RUN
  draftproof measure --model ./target --drafter eagle --draft-model HEAD --data prompts.jsonl --out RUN

drafters: ngram, suffix, early_exit[:LAYERS], model:PATH, eagle[:HEAD], medusa:HEADS, cascade[:HEAD] (suffix, and eagle
where that has nothing); NAME=DRAFTER gives one another name. Without a HEAD it is the one that ships for the model.

data: JSONL or Parquet, a prompt a line: {"prompt": ...} or {"messages": [...]}, optionally "completion"; chat requests,
logged pairs {"request": ..., "response": ...}, batch lines {"body": ...} and fine-tuning lines are read as they are.
Where lines have completions these are scored, else texts are written. Sampling is this command's, not a line's.
A line without the bucket field goes into the bucket "default". The seed is 0 unless given; each line has its own,
made from it.

A head is asked as a round would ask it, at every place of a text: it reads the target's hidden states of all before,
and drafts on with its own output along its own draft. One run takes heads that read the same layers of the target.

The same command carries on a run that was interrupted.
"""
_HEAD = ("bucket", "drafter", "prompts", "tokens", "accepted", "counted", "tok/round")  # 80 columns
_SHOWN = 5  # bad lines that are printed
_EXCLUDED = 0.01  # share of a log's tokens that its law may exclude before it is said


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "measure",
        help="measure drafters on your own prompts or logged completions",
        description="Measures how many drafts of each drafter are accepted on your own prompts, or on logged "
        "completions: counted in real rounds, and expected from the laws at every token. Rows go to the folder RUN.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, flag = parser.add_argument, argparse.BooleanOptionalAction
    add("--drafter", action="append", default=[], metavar="D", help="a drafter to measure; repeatable (see below)")
    add("--draft-model", metavar="M", help="the model or head of the one drafter that takes one and names none")
    options.add_draft_weights(add)
    add("--data", required=True, metavar="FILE", help="prompts or logged completions, JSONL or Parquet")
    add("--out", required=True, metavar="RUN", help="the folder of this run; given again, the run is carried on")
    add("--bucket-field", metavar="NAME", help="the field that names a line's bucket; dots go inwards")
    add("--gamma", type=int, default=DEFAULT_GAMMA, metavar="G", help=f"longest draft ({DEFAULT_GAMMA})")
    add("--limit", type=int, metavar="N", help="measure the first N usable lines only")
    add("--log", action=flag, help="score the data's completions, or write texts anew (as the data is)")
    add("--chat", action=flag, help="wrap plain prompts in the model's chat template (where it has one)")
    add("--strict", action="store_true", help="end at the first bad line instead of skipping it")
    help_batch = f"prompts run at once and stored together ({DEFAULT_BATCH})"
    add("--batch", type=int, default=DEFAULT_BATCH, metavar="N", help=help_batch)
    add("--json", action="store_true", help="print one JSON object, at the end")
    add("--quiet", action="store_true", help="no progress")
    options.add_model_options(parser, drafter=None)
    options.add_sampling_options(parser, logprobs=False)
    parser.set_defaults(run=run)


def settings_of(args: argparse.Namespace) -> Settings:
    """What was given, checked. Raises InputError."""
    sampling = options.sampling_params(args)
    if sampling.seed is None:
        sampling = replace(sampling, seed=0)  # the same command gives the same rows
    return Settings(
        model=args.model,
        drafters=parse_drafters(args.drafter, args.draft_model),
        data=Path(args.data),
        out=Path(args.out),
        sampling=sampling,
        max_new_tokens=getattr(args, "max_new_tokens", None),
        gamma=args.gamma,
        limit=args.limit,
        bucket_field=args.bucket_field,
        log=args.log,
        chat=args.chat,
        strict=args.strict,
        batch=args.batch,
        engine={name: getattr(args, name) for name in _ENGINE},
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0; what was bad in the data is said, not an error."""
    settings = settings_of(args)
    with watching(args.quiet) as watch:
        try:
            outcome = measure(settings, ["draftproof", *sys.argv[1:]], watch)
        except (KeyboardInterrupt, DraftproofError):
            if watch.measuring and is_begun(settings.out):
                note(f"what is measured so far is kept in {settings.out}: the same command carries on")
            raise
    summary = summarise_run(outcome.path)
    if args.json:
        print_json(as_json(outcome, summary))
    else:
        _show(outcome, summary, settings)
    return 0


def as_json(outcome: Outcome, summary: Summary) -> dict[str, Any]:
    """The end of a run, JSON-ready."""
    return {
        "run": str(outcome.path),
        "complete": True,
        "untouched": outcome.untouched,
        "log": outcome.log,
        "prompts": outcome.counts.prompts,
        "gamma": summary.gamma,
        "skipped": list(outcome.skipped),
        "excluded_tokens": outcome.counts.excluded,
        "failed_texts": outcome.counts.failed,
        "results": [line.as_dict() for line in summary.lines],
        "next": next_commands(outcome.path),
    }


def next_commands(path: Path) -> list[str]:
    """What to type next."""
    name = shlex.quote(str(path))
    return [f"draftproof cost --run {name}", f"draftproof plan {name}"]


def _show(outcome: Outcome, summary: Summary, settings: Settings) -> None:
    if outcome.untouched:
        note(f"{outcome.path} is complete: nothing was measured")
    rows = [
        [
            line.bucket,
            line.drafter,
            str(line.prompts),
            str(line.tokens),
            percent(_mean(line.acceptance)) + _ends(line.acceptance, 100, ".0f"),
            percent(_mean(line.acceptance_counted)),
            number(_mean(line.tokens_per_round), ".2f") + _ends(line.tokens_per_round, 1, ".1f"),
        ]
        for line in summary.lines
    ]
    print_table(_HEAD, rows, title=f"at most {summary.gamma} drafts a round; 95 % intervals")
    _faults(outcome, settings)
    print("next:")
    for command in next_commands(outcome.path):
        print(f"  {command}")


def _faults(outcome: Outcome, settings: Settings) -> None:
    """What a reader of the table must know of the data."""
    for entry in outcome.skipped[:_SHOWN]:
        note(f"line {entry['line']} skipped: {entry['reason']}")
    if len(outcome.skipped) > _SHOWN:
        note(f"{len(outcome.skipped) - _SHOWN} lines more were skipped, see {outcome.path / 'skipped.jsonl'}")
    if outcome.unnamed:
        note(f"{outcome.unnamed} prompts have no {settings.bucket_field!r}: they are in the bucket 'default'")
    if outcome.counts.failed:
        note(f"{outcome.counts.failed} texts broke off: the model gave a row without a largest logit")
    tokens, excluded = outcome.counts.tokens, outcome.counts.excluded
    if tokens and excluded > _EXCLUDED * tokens:
        note(
            f"{percent(excluded / tokens)} of the tokens can't come from this model under these sampling "
            "parameters: is this its log, and was it sampled so?"
        )


def _mean(interval: Interval | None) -> float | None:
    return None if interval is None else interval.mean


def _ends(interval: Interval | None, factor: float, form: str) -> str:
    """ " (low-high)" of a 95 % interval, or nothing where there is none."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f" ({format(factor * interval.low, form)}-{format(factor * interval.high, form)})"
