"""The prompts of a data file: looked through once before a model is loaded, then tokenised, in the order of the file.

All lines are of one kind: completions are scored (a *log*) or written. Without being told which, a file where some
lines have a completion and others not is refused, since either choice would drop something.

Invariant: a bad line takes nothing else with it; each is known by its number and reason before anything is measured.
Does not know: models, runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftproof.errors import InputError
from draftproof.measure.chatlog import Sample, read_sample
from draftproof.measure.encode import Encoder, Prompt
from draftproof.measure.lines import fingerprint, read_lines
from draftproof.measure.settings import Settings


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that can't be used."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What the file holds."""

    sha256: str
    log: bool


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """What is measured, and what is not. lines: of data looked at; unnamed: prompts without a bucket field."""

    prompts: list[Prompt]
    faults: list[Fault]
    lines: int
    unnamed: int

    def skipped_json(self) -> list[dict[str, Any]]:
        """Lines of skipped.jsonl."""
        return [{"line": fault.line, "reason": fault.reason} for fault in self.faults]


def survey(settings: Settings) -> Survey:
    """Looks through the data. Raises InputError where nothing in it can be measured, or it is of two kinds.

    With `strict` also for the first line that can't be read.
    """
    sha256 = fingerprint(settings.data)
    with_completion: list[int] = []
    without: list[int] = []
    named = False
    first_fault: Fault | None = None
    for found in _samples(settings):
        if isinstance(found, Fault):
            _refuse(settings, found)
            first_fault = first_fault or found
            continue
        (without if found.completion is None else with_completion).append(found.line)
        named = named or found.has_bucket
        if len(with_completion) + len(without) == settings.limit:
            break
    if not with_completion and not without:
        reason = f"line {first_fault.line}: {first_fault.reason}" if first_fault else "the file is empty"
        raise InputError(f"{settings.data} has no line that can be measured ({reason})")
    if settings.bucket_field is not None and not named:
        raise InputError(f"no line of {settings.data} has the bucket field {settings.bucket_field!r}")
    return Survey(sha256, _is_log(settings, with_completion, without))


def _is_log(settings: Settings, with_completion: list[int], without: list[int]) -> bool:
    if settings.log is None and with_completion and without:
        raise InputError(
            f"{len(with_completion)} lines of {settings.data} have a completion (line {with_completion[0]}) and "
            f"{len(without)} have none (line {without[0]}): --log scores those that have one, --no-log writes all anew"
        )
    if settings.log and not with_completion:
        raise InputError(f"no line of {settings.data} has a completion to score: drop --log")
    return bool(with_completion) if settings.log is None else settings.log


def read_prompts(settings: Settings, found: Survey, encoder: Encoder) -> Prompts:
    """All prompts as token ids. Raises InputError where none is left; with `strict` for the first bad line."""
    prompts: list[Prompt] = []
    faults: list[Fault] = []
    lines = unnamed = 0
    for sample in _samples(settings):
        lines += 1
        prompt = sample if isinstance(sample, Fault) else _encoded(settings, found, encoder, sample, len(prompts))
        if isinstance(prompt, Fault):
            _refuse(settings, prompt)
            faults.append(prompt)
            continue
        prompts.append(prompt)
        unnamed += isinstance(sample, Sample) and not sample.has_bucket
        if len(prompts) == settings.limit:
            break
    if not prompts:
        raise InputError(
            f"{settings.data} has no line that can be measured (line {faults[0].line}: {faults[0].reason})"
            if faults
            else f"{settings.data} is empty"
        )
    return Prompts(prompts, faults, lines, unnamed if settings.bucket_field is not None else 0)


def _encoded(settings: Settings, found: Survey, encoder: Encoder, sample: Sample, number: int) -> Prompt | Fault:
    if settings.log is None and (sample.completion is not None) != found.log:  # beyond what the survey looked at
        raise InputError(
            f"line {sample.line} of {settings.data} {'lacks' if found.log else 'has'} a completion, unlike the lines "
            "before: --log scores the lines that have one, --no-log writes all anew"
        )
    try:
        return encoder.prompt(number, sample, found.log)
    except InputError as error:
        return Fault(sample.line, str(error))


def _samples(settings: Settings) -> Iterator[Sample | Fault]:
    for line in read_lines(settings.data):
        if line.fault is not None:
            yield Fault(line.number, line.fault)
            continue
        try:
            yield read_sample(line.number, line.record, settings.bucket_field)
        except InputError as error:
            yield Fault(line.number, str(error))


def _refuse(settings: Settings, fault: Fault) -> None:
    if settings.strict:
        raise InputError(f"line {fault.line} of {settings.data}: {fault.reason} (without --strict it is skipped)")
