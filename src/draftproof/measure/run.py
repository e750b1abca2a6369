"""A measurement from its settings to a complete run folder, part by part; carried on where an earlier one stopped.

Order of work: look through the data, lock the folder and compare what it holds, load the models, tokenise, then measure
`batch` prompts at a time and write each part before the next begins. What can be refused is refused first.

Invariant: the rows of a run depend on its settings, data and models alone, not on when it was interrupted; a complete
run is left as it is.
Does not know: printing, plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from draftproof.engine import prompts as prompting
from draftproof.engine.build import Built, build_each
from draftproof.measure.arrow import parquet
from draftproof.measure.bench import Bench, Runner, measure_group
from draftproof.measure.describe import describe_drafter, describe_target
from draftproof.measure.encode import Encoder, Prompt
from draftproof.measure.prompts import Prompts, Survey, read_prompts, survey
from draftproof.measure.provenance import provenance
from draftproof.measure.room import Pages, Room
from draftproof.measure.rows import prompt_table, token_table
from draftproof.measure.settings import Settings
from draftproof.measure.store import Counts, RunFolder
from draftproof.noise import PhiloxNoise

FORMAT = 1
_NEW_TOKENS = 128  # of a completion that is written, where nothing was said
_CONSISTENT = ("model", "early_exit")  # drafts depend on the text before each of them only


class Watch(Protocol):
    """Hears how a measurement goes on."""

    def stage(self, line: str) -> None:
        """A stage of loading."""

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        """Measuring begins: pairs of prompt and drafter, those done before, and most tokens of each, where known."""

    def tokens(self, count: int) -> None:
        """So many tokens more are done."""

    def pairs(self, count: int) -> None:
        """So many pairs of prompt and drafter more are done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a folder holds after a measurement. untouched: the run was complete before, and nothing was done."""

    path: Path
    untouched: bool
    log: bool
    counts: Counts
    skipped: tuple[dict[str, Any], ...]  # of skipped.jsonl
    unnamed: int = 0  # prompts without a bucket field, where this call looked


def measure(settings: Settings, command: Sequence[str], watch: Watch) -> Outcome:
    """Measures, or carries on. Raises InputError for what can't be measured or stored."""
    parquet()  # what is missing is said before a model is loaded
    found = survey(settings)
    asked = settings.asked(found.sha256)
    with RunFolder(settings.out) as folder:
        folder.check(asked)
        if folder.complete:
            return _outcome(folder, untouched=True)
        built = build_each(settings.engine_options(), watch.stage, exact_drafts=True)
        room = _room(settings, found, built)
        target = built[0].engine.target
        most = settings.max_new_tokens
        encoder = Encoder(built[0].tokenizer, target.vocab_size, settings.chat, room.check, most)
        prompts = read_prompts(settings, found, encoder)
        bench = _bench(settings, found, built, room)
        info = partial(_info, settings, found, built, prompts, list(command))
        folder.begin(asked, info, prompts.skipped_json())
        done = folder.num_prompts()
        labels = [spec.label for spec in settings.drafters]
        watch.begin(len(labels) * len(prompts.prompts), len(labels) * done, room.max_new_tokens)
        _measure_parts(bench, room, folder, prompts.prompts[done:], settings.batch, watch)
        folder.finish()
        return replace(_outcome(folder, untouched=False), unnamed=prompts.unnamed)


def _outcome(folder: RunFolder, *, untouched: bool) -> Outcome:
    log = folder.info().get("log") is True
    return Outcome(folder.path, untouched, log, folder.counts(), tuple(folder.skipped()))


def _measure_parts(
    bench: Bench, room: Room, folder: RunFolder, prompts: Sequence[Prompt], batch: int, watch: Watch
) -> None:
    labels = [runner.label for runner in bench.runners]
    first = folder.num_parts()
    for number, begin in enumerate(range(0, len(prompts), batch), start=first):
        part = prompts[begin : begin + batch]
        if folder.has_part(number):  # one before it was lost
            watch.pairs(len(labels) * len(part))
            continue
        records = [
            record for group in room.groups(part) for record in measure_group(bench, group, watch.tokens, watch.pairs)
        ]
        folder.write_part(number, token_table(records, labels), prompt_table(records))


def _room(settings: Settings, found: Survey, built: Sequence[Built]) -> Room:
    target, max_len = built[0].engine.target, built[0].engine.target.max_len
    spare = settings.gamma + target.min_rows
    models = [Pages(target.num_pages, target.page_size, max_len, spare)]
    drafts = [each.draft.target for each in built if each.draft is not None and each.draft.target is not None]
    models += [Pages(d.num_pages, d.page_size, d.max_len, settings.gamma + d.min_rows) for d in drafts]
    new_tokens = None if found.log else settings.max_new_tokens or _NEW_TOKENS
    return Room(max_len - max(0, target.min_rows - 2), new_tokens, tuple(models))


def _bench(settings: Settings, found: Survey, built: Sequence[Built], room: Room) -> Bench:
    first = built[0]
    vocab_size = first.engine.target.vocab_size
    params = replace(settings.sampling, max_new_tokens=room.max_new_tokens)
    params = prompting.resolve(params, first.tokenizer, vocab_size)
    ends = frozenset(end for end in prompting.stop_ids(params, first.tokenizer) if end < vocab_size)
    return Bench(
        target=first.engine.target,
        ledger=first.ledger,
        noise=PhiloxNoise(),
        runners=tuple(
            Runner(spec.label, each.engine, spec.kind in _CONSISTENT)
            for spec, each in zip(settings.drafters, built, strict=True)
        ),
        params=params,
        stop_ids=ends,
        gamma=settings.gamma,
        max_len=room.max_len,
        log=found.log,
        tokenizer=first.tokenizer,
    )


def _info(
    settings: Settings, found: Survey, built: Sequence[Built], prompts: Prompts, command: list[str]
) -> dict[str, Any]:
    """run.json."""
    new_tokens = settings.max_new_tokens if found.log else settings.max_new_tokens or _NEW_TOKENS
    return {
        "format": FORMAT,
        **provenance(command),
        "data": {
            "path": str(settings.data),
            "sha256": found.sha256,
            "lines": prompts.lines,
            "prompts": len(prompts.prompts),
        },
        "bucket_field": settings.bucket_field,
        "log": found.log,
        "sampling": settings.sampling_json(),
        "gamma_max": settings.gamma,
        "max_new_tokens": new_tokens,
        "model": describe_target(built[0]),
        "drafters": [
            {"name": spec.label, "kind": spec.kind, "model": describe_drafter(each)}
            for spec, each in zip(settings.drafters, built, strict=True)
        ],
    }
