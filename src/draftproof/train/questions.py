"""The prompts a run asks: the user's, or those that ship; which of them judge, and what is wrong with a bad one.

Invariant: bad lines of the data are refused before anything is written, with their number, also those that only the
target's tokenizer, chat template or context limit can't take. No prompt is both trained on and judged by.
Does not know: texts, drafters.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.engine.prompts import encode
from draftproof.errors import InputError
from draftproof.measure.chatlog import read_sample
from draftproof.measure.lines import read_lines
from draftproof.text.tokenizer import Tokenizer
from draftproof.train import prompts as shipped

ROOM = 16  # tokens that must be left for an answer
_SHARE, _HELD = 20, 32  # one prompt in so many judges, or one in more so that they are about so many


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt: a string, or messages. line: its number in the data file."""

    prompt: Any
    bucket: str
    line: int | None = None


def asked_of_file(path: Path, bucket_field: str | None) -> list[Asked]:
    """The prompts of a data file. Raises InputError for the first line that can't be used, with its number."""
    found, named = [], False
    for line in read_lines(path):
        try:
            if line.fault is not None:
                raise InputError(line.fault)
            sample = read_sample(line.number, line.record, bucket_field)
        except InputError as error:
            raise InputError(f"line {line.number} of {path}: {error}: mend or remove it") from error
        prompt = sample.prompt if isinstance(sample.prompt, str) else list(sample.prompt)
        found.append(Asked(prompt, sample.bucket, line.number))
        named = named or sample.has_bucket
    if not found:
        raise InputError(f"{path} holds no prompts")
    if bucket_field is not None and not named:
        raise InputError(f"no line of {path} has the bucket field {bucket_field!r}")
    return found


def asked_of_shipped(seed: int) -> list[Asked]:
    """The prompts that ship, in the order of the seed."""
    return [Asked(text, "chat") for text in shipped.assembled(seed, 6000)]


def digest(prompts: Sequence[Asked]) -> str:
    """What tells one list of prompts from another: hex of 64."""
    pairs = [[each.prompt, each.bucket] for each in prompts]
    return hashlib.sha256(json.dumps(pairs, default=str).encode()).hexdigest()


def split(asked: Sequence[Asked], seed: int) -> tuple[list[Asked], list[Asked]]:
    """(prompts to train on, prompts to judge by): of each bucket one in twenty, of long data about 32 in all.

    A prompt that is there several times is on one side only. Fewer than 20 prompts are all trained on.
    """
    buckets: dict[str, dict[str, list[Asked]]] = {}
    for each in asked:
        buckets.setdefault(each.bucket, {}).setdefault(digest([each]), []).append(each)
    different = sum(map(len, buckets.values()))
    if different < _SHARE:
        return list(asked), []
    share, rng = max(_SHARE, math.ceil(different / _HELD)), np.random.default_rng([seed, 9])
    held: list[Asked] = []
    for alike in buckets.values():
        if len(alike) > 1:
            chosen = sorted(rng.choice(len(alike), math.ceil(len(alike) / share), replace=False).tolist())
            held += [list(alike.values())[i][0] for i in chosen]
    judging = {digest([Asked(each.prompt, "")]) for each in held}
    return [each for each in asked if digest([Asked(each.prompt, "")]) not in judging], held


class Fit:
    """Whether a target can be asked something. chat: a string is a user's turn; else it is given as it stands."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, limit: int) -> None:
        """limit: tokens of prompt and answer together."""
        self.chat = tokenizer.has_chat_template
        self._tokenizer, self._vocab_size, self._limit = tokenizer, vocab_size, limit

    def check(self, prompt: Any) -> None:
        """Raises InputError with what is wrong."""
        if not self.chat and not isinstance(prompt, str):
            raise InputError("the model has no chat template, so messages can't be asked: give the prompt as text")
        length = len(encode(prompt, self._tokenizer, self._vocab_size, self.chat))
        if length + ROOM > self._limit:
            raise InputError(
                f"the prompt takes {length} tokens of the model's {self._limit}, and an answer needs {ROOM}: shorten it"
            )

    def takes(self, prompt: Any) -> bool:
        """True where `check` finds nothing."""
        try:
            self.check(prompt)
        except InputError:
            return False
        return True


def fitting(asked: Sequence[Asked], fit: Fit, path: Path | None, say: Callable[[str], None]) -> list[Asked]:
    """All of a data file, whose first bad line is refused; of the shipped prompts those that the target can be asked.

    path: of the data, None for shipped prompts.
    """
    if path is None:
        good = [each for each in asked if fit.takes(each.prompt)]
        if not good:
            _refuse_all(asked[0], fit)
        if len(good) < len(asked):
            say(f"{len(asked) - len(good)} of {len(asked)} shipped prompts are left out: too long for this model")
        return good
    for each in asked:
        try:
            fit.check(each.prompt)
        except InputError as error:
            raise InputError(f"line {each.line} of {path}: {error}: mend or remove it") from error
    return list(asked)


def _refuse_all(first: Asked, fit: Fit) -> None:
    try:
        fit.check(first.prompt)
    except InputError as error:
        raise InputError(
            f"no shipped prompt can be asked ({error}): give --data with prompts for this model"
        ) from error
