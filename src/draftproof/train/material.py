"""The texts a drafter is trained on: the target's own answers, written by the engine and kept in parts.

Half of the texts are greedy, half are drawn at temperature 0.8. A part asks the user's prompts or, where there are
none, shipped ones and as many that the target makes up itself: a user's turn sampled after the chat template's opening
(Magpie, Xu et al. 2024, section 2). A head that saw only shipped topics knows those and little else (docs/LOG.md). A
few prompts are about texts of the part before. What part k holds follows from the seed, the data and the parts before
it, so a killed run goes on with the part it was at.

Invariant: a part is there whole or not at all, and one that was lost is written again.
Does not know: drafters, losses, which prompts can't be asked (`questions`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from draftproof.errors import CorruptModel, InputError
from draftproof.measure.files import write_whole
from draftproof.train import prompts as shipped
from draftproof.train.questions import Asked, Fit
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
_SHORT = 3  # tokens of an answer that says too little


class Writer(Protocol):
    """What an `LLM` does."""

    @property
    def tokenizer(self) -> Any: ...

    def generate(self, prompts: Any, params: Any, *, chat: bool | None = None) -> list[Any]: ...


def written(folder: Path, vocab_size: int, target: str | None = None) -> list[Path]:
    """The parts and the held-out texts of another run. Raises InputError where they are not all there, whole, and of a
    target with this digest (as far as it is known)."""
    parts = [path for path in sorted(folder.glob("texts-*.json")) if _PART.fullmatch(path.name)]
    if not parts or not (folder / _HELD).is_file():
        raise InputError(f"{folder} holds no texts of another run (texts-00000.json, ... and {_HELD}): name its work/")
    missing = [name for number, path in enumerate(parts) if path.name != (name := _part_name(number))]
    if missing:
        raise InputError(f"{folder} lacks {missing[0]}, and has later parts: give the whole folder of the other run")
    theirs = _target_of(folder / "run.json")
    if target is not None and theirs not in (None, target):
        raise InputError(f"the texts in {folder} are another model's: a drafter learns from its own target's")
    found = [*parts, folder / _HELD]
    for path in found:
        highest = max((max(*record["prompt"], *record["tokens"], 0) for record in _read(path)), default=0)
        if highest >= vocab_size:
            raise InputError(
                f"{path} has token id {highest}, the model has {vocab_size}: the texts are another model's"
            )
    return found


def _target_of(note: Path) -> str | None:
    """The digest of the target that a run was for, where it says so."""
    try:
        target = json.loads(note.read_bytes()).get("target")
    except (OSError, ValueError, AttributeError):
        return None
    return target if isinstance(target, str) else None


class Material:
    """Texts in a folder. make_up: whether the target makes up prompts beside those of `asked`.

    fit: which prompts the target can be asked (of those that are not in `asked`).
    """

    def __init__(
        self, folder: Path, asked: Sequence[Asked], seed: int, max_new: int, fit: Fit, *, make_up: bool = False
    ) -> None:
        self._folder, self._asked, self._seed, self._max_new = folder, asked, seed, max_new
        self._fit, self._make_up = fit, make_up and fit.chat

    @property
    def num_parts(self) -> int:
        """Parts that are there, from the first one on."""
        count = 0
        while self._path(count).is_file():
            count += 1
        return count

    @property
    def has_held_out(self) -> bool:
        """True where there are texts to judge by."""
        return (self._folder / _HELD).is_file()

    def take(self, folder: Path, vocab_size: int) -> int:
        """Copies the parts and the held-out texts that another run wrote; the number of parts. Raises as `written`."""
        for path in written(folder, vocab_size):
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
            about = shipped.about(picked, self._seed + number)
            chosen += [Asked(text, "text") for text in about if self._fit.takes(text)]
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
        good = [turn for turn in turns if len(turn) in _TURN_CHARS and turn not in held and self._fit.takes(turn)]
        return [Asked(turn, "chat") for turn in good[:_MADE_UP]]

    def write_held_out(self, llm: Writer, more: Sequence[Asked]) -> None:
        """Greedy texts that no drafter is trained on: of the shipped held-out prompts, of some on texts, and `more`."""
        if self.has_held_out:
            return
        chat = [Asked(text, "chat") for text in shipped.HELD_OUT if self._fit.takes(text)]
        params = SamplingParams(max_new_tokens=_HELD_NEW)
        asked = [each.prompt for each in chat[:8]]
        texts = [output.text for output in llm.generate(asked, params, chat=self._fit.chat)] if asked else []
        about = [text for text in shipped.about(texts, self._seed + 999_983) if self._fit.takes(text)]
        chosen = [*chat, *(Asked(text, "text") for text in about), *more]
        self._write(self._folder / _HELD, chosen, [params] * len(chosen), llm)

    def texts(self, count: int) -> list[Text]:
        """Those of the first `count` parts. Raises InputError where there are none."""
        return _texts([record for number in range(count) for record in self._records(number)])

    def held_out(self) -> list[Text]:
        """What a drafter is judged by. Raises InputError where there is nothing."""
        return _texts(_read(self._folder / _HELD))

    def _write(self, path: Path, chosen: Sequence[Asked], params: Sequence[SamplingParams], llm: Writer) -> None:
        outputs = llm.generate([each.prompt for each in chosen], list(params), chat=self._fit.chat)
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
        return self._folder / _part_name(number)


def _part_name(number: int) -> str:
    return f"texts-{number:05d}.json"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(path.read_bytes())
        if not isinstance(records, list) or not all(_is_record(record) for record in records):
            raise ValueError("it holds no texts")
    except (OSError, ValueError) as error:
        raise CorruptModel(f"{path} can't be read: delete it and give the same command again") from error
    return records


def _is_record(record: object) -> bool:
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(name), str) for name in ("bucket", "text"))
        and all(
            isinstance(record.get(name), list) and all(type(token) is int and token >= 0 for token in record[name])
            for name in ("prompt", "tokens")
        )
        and len(record["prompt"]) > 0
    )


def _texts(records: Sequence[dict[str, Any]]) -> list[Text]:
    """Of answers that say something."""
    found = [
        Text(np.array([*record["prompt"], *record["tokens"]], np.int32), len(record["prompt"]), record["bucket"])
        for record in records
        if len(record["tokens"]) > _SHORT
    ]
    if not found:
        raise InputError(
            f"all {len(records)} answers of the target have at most {_SHORT} tokens, the end of the text among them: "
            "nothing can be learned from them; give --data that it answers at length"
        )
    return found
