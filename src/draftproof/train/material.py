"""The texts a drafter is trained on: the target's own answers, written by the engine and kept in parts.

Half of the texts are greedy, half are drawn at temperature 0.8. A part asks the user's prompts or, where there are
none, shipped ones and as many that the target makes up itself: a user's turn sampled after the chat template's opening
(Magpie, Xu et al. 2024, section 2). A head that saw only shipped topics knows those and little else (docs/LOG.md). A
few prompts are about texts of the part before. What part k holds follows from the seed, the data and the parts before
it, so a killed run goes on with the part it was at.

Invariant: a part is there whole or not at all; bad lines of the data are refused before anything is written.
Does not know: drafters, losses.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from draftproof.errors import CorruptModel, InputError
from draftproof.measure.chatlog import read_sample
from draftproof.measure.files import write_whole
from draftproof.measure.lines import read_lines
from draftproof.train import prompts as shipped
from draftproof.train.texts import Text
from draftproof.types import SamplingParams

PART = 128  # prompts of a part
_ABOUT = 24  # of them about texts of the part before
_MADE_UP, _TRIES = 52, 96  # of them at most made up by the target, and how many turns are tried for that
_TURN = SamplingParams(temperature=0.9, rule="follow", max_new_tokens=48)
_TURN_CHARS = range(12, 401)
# How an engine writes them soonest: many at once. The last bit of a training text is free.
WRITING: dict[str, Any] = {"max_sequences": 96, "kv_memory": 2 << 30, "numerics": "fast"}
_HELD, _PART = "held-out.json", re.compile(r"texts-\d{5}\.json")
_HELD_NEW = 96  # tokens of a held-out text


class Writer(Protocol):
    """What an `LLM` does."""

    @property
    def tokenizer(self) -> Any: ...

    def generate(self, prompts: Any, params: Any, *, chat: bool | None = None) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt: a string, or messages."""

    prompt: Any
    bucket: str


def asked_of_file(path: Path, bucket_field: str | None) -> list[Asked]:
    """The prompts of a data file. Raises InputError for the first line that can't be used, with its number."""
    found = []
    for line in read_lines(path):
        try:
            if line.fault is not None:
                raise InputError(line.fault)
            sample = read_sample(line.number, line.record, bucket_field)
        except InputError as error:
            raise InputError(f"line {line.number} of {path}: {error}: mend or remove it") from error
        prompt = sample.prompt if isinstance(sample.prompt, str) else list(sample.prompt)
        found.append(Asked(prompt, sample.bucket))
    if not found:
        raise InputError(f"{path} holds no prompts")
    return found


def asked_of_shipped(seed: int) -> list[Asked]:
    """The prompts that ship, in the order of the seed."""
    return [Asked(text, "chat") for text in shipped.assembled(seed, 6000)]


def digest(prompts: Sequence[Asked]) -> str:
    """What tells one list of prompts from another: hex of 64."""
    return hashlib.sha256(json.dumps([[each.prompt, each.bucket] for each in prompts]).encode()).hexdigest()


def written(folder: Path) -> list[Path]:
    """The parts and the held-out texts of another run. Raises InputError where they are not all there and whole."""
    parts = [path for path in sorted(folder.glob("texts-*.json")) if _PART.fullmatch(path.name)]
    if not parts or not (folder / _HELD).is_file():
        raise InputError(f"{folder} holds no texts of another run (texts-00000.json, ... and {_HELD}): name its work/")
    found = [*parts, folder / _HELD]
    for path in found:
        _read(path)
    return found


class Material:
    """Texts in a folder. make_up: whether the target makes up prompts beside those of `asked`."""

    def __init__(self, folder: Path, asked: Sequence[Asked], seed: int, max_new: int, *, make_up: bool = False) -> None:
        self._folder, self._asked, self._seed, self._max_new = folder, asked, seed, max_new
        self._make_up = make_up

    @property
    def num_parts(self) -> int:
        """Parts that are there, from the first one on."""
        count = 0
        while self._path(count).is_file():
            count += 1
        return count

    def take(self, folder: Path) -> int:
        """Copies the parts and the held-out texts that another run wrote; the number of parts."""
        for path in written(folder):
            write_whole(self._folder / path.name, path.read_bytes())
        return self.num_parts

    def write_part(self, llm: Writer) -> None:
        """The next part."""
        number = self.num_parts
        rng = np.random.default_rng([self._seed, 5, number])
        first = number * (PART - _ABOUT)
        chosen = [self._asked[i % len(self._asked)] for i in range(first, first + PART - _ABOUT)]
        if self._make_up:
            turns = self._made_up(llm, number)
            chosen[: len(turns)] = turns
        if number:
            before = [record["text"] for record in self._records(number - 1)]
            picked = [before[i] for i in rng.choice(len(before), min(_ABOUT, len(before)), replace=False)]
            chosen += [Asked(text, "text") for text in shipped.about(picked, self._seed + number)]
        params = [
            SamplingParams(
                temperature=0.0 if index % 2 else 0.8,
                seed=int(rng.integers(1 << 31)),
                rule="follow",
                max_new_tokens=self._max_new,
            )
            for index in range(len(chosen))
        ]
        self._write(self._path(number), chosen, params, llm)

    def _made_up(self, llm: Writer, number: int) -> list[Asked]:
        """User turns sampled from the target, each once; none that has no end, says next to nothing or is held out."""
        opening = llm.tokenizer.user_opening()
        if not opening:
            return []
        rng = np.random.default_rng([self._seed, 6, number])
        params = [replace(_TURN, seed=int(seed)) for seed in rng.integers(1 << 31, size=_TRIES)]
        outputs = llm.generate([opening] * _TRIES, params, chat=False)
        turns = dict.fromkeys(output.text.strip() for output in outputs if output.finish_reason == "stop")
        held = set(shipped.HELD_OUT)
        good = [turn for turn in turns if len(turn) in _TURN_CHARS and turn not in held]
        return [Asked(turn, "chat") for turn in good[:_MADE_UP]]

    def write_held_out(self, llm: Writer, more: Sequence[Asked]) -> None:
        """Greedy texts that no drafter is trained on: of the shipped held-out prompts, of some on texts, and `more`."""
        path = self._folder / _HELD
        if path.is_file():
            return
        chat = [Asked(text, "chat") for text in shipped.HELD_OUT]
        params = SamplingParams(max_new_tokens=_HELD_NEW)
        texts = [output.text for output in llm.generate([a.prompt for a in chat[:8]], params, chat=True)]
        chosen = [*chat, *(Asked(text, "text") for text in shipped.about(texts, self._seed + 999_983)), *more]
        self._write(path, chosen, [params] * len(chosen), llm)

    def texts(self, count: int) -> list[Text]:
        """Those of the first `count` parts."""
        return [text for number in range(count) for text in _texts(self._records(number))]

    def held_out(self) -> list[Text]:
        """What a drafter is judged by."""
        return list(_texts(_read(self._folder / _HELD)))

    def _write(self, path: Path, chosen: Sequence[Asked], params: Sequence[SamplingParams], llm: Writer) -> None:
        outputs = llm.generate([each.prompt for each in chosen], list(params), chat=True)
        records = [
            {
                "bucket": each.bucket,
                "prompt": list(output.prompt_token_ids),
                "tokens": list(output.token_ids),
                "text": output.text,
            }
            for each, output in zip(chosen, outputs, strict=True)
        ]
        write_whole(path, json.dumps(records).encode())

    def _records(self, number: int) -> list[dict[str, Any]]:
        return _read(self._path(number))

    def _path(self, number: int) -> Path:
        return self._folder / f"texts-{number:05d}.json"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(path.read_bytes())
        assert isinstance(records, list)
    except (OSError, ValueError, AssertionError) as error:
        raise CorruptModel(f"{path} can't be read: delete it and give the same command again") from error
    return records


def _texts(records: Sequence[dict[str, Any]]) -> Iterator[Text]:
    for record in records:
        prompt, tokens = record["prompt"], record["tokens"]
        if len(tokens) > 3:
            yield Text(np.array([*prompt, *tokens], np.int32), len(prompt), record["bucket"])
