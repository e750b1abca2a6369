"""Students to and from folders: whole Hugging Face models, with a note in config.json of what they were made of.

Any program that loads the target's architecture loads one. The weights are bfloat16 where the target's rows are, else
float32, so that these rows come back to the bit.

Invariant: a student is read only for the target it was made of; what differs is named.

Does not know: training, engines.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from draftproof.errors import CorruptModel, ModelNotFound, PairingError
from draftproof.models import folder as folders
from draftproof.models.module import load_module, silence
from draftproof.models.student import OTHER_ROWS, Student, StudentConfig, check_student, rows_of

KIND = "draft-model"
_NOTE = "draftproof"  # the key of config.json
_README = """---
library_name: transformers
tags: [speculative-decoding, draft-model]
---

# A draft model

For speculative decoding with the target `{target}`, made by `draftproof train draft-model`. It is a model of the same
architecture (`{model_type}`) with {num} of the target's {total} layers: it started from its layers {layers} (numbers
from 0), and its embedding and output rows are the target's own. It was distilled from the target's own texts to say
what the target says next, and is no model to talk to. What it may be used for, the target's licence says.

Use: `draftproof generate "..." --model {target} --drafter model --draft-model THIS-FOLDER`, or as the draft model
(assistant) of any engine that takes one with the target's tokenizer.

What it was made from, and its figures on texts it was not trained on (`acceptance`: share of greedy drafts accepted at
each position of a round that gets there; `tokens_per_round` at three drafts a round):

{told}"""


def check_folder(folder: Path, num_layers: int | None) -> None:
    """`check_student` of a target's folder."""
    check_student(AutoConfig.from_pretrained(folder, local_files_only=True), num_layers)


def load_student(folder: Path, target: Path) -> Student:
    """The student in a folder, float32. target: the folder of the target it is to draft for.

    Raises ModelNotFound, CorruptModel for what no student is, PairingError for one of another target.
    """
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} holds no draft model: make one with `draftproof train {KIND}`")
    note, theirs = _note_in(folder), AutoConfig.from_pretrained(target, local_files_only=True)
    for name, asked in note["target"].items():
        found = getattr(theirs, name, None)
        if found != asked:
            raise PairingError(
                f"the draft model in {folder} was made for a target whose {name} is {asked!r}, this one's is "
                f"{found!r}: train one for this target, with another --out"
            )
    module = load_module(folder)
    for part in rows_of(module):
        name = next(name for name, each in module.named_parameters() if each is part.weight)
        stored = _stored(target, name)
        if stored is not None and not torch.equal(stored.float(), part.weight):
            raise PairingError(f"the draft model in {folder} {OTHER_ROWS}")
    return Student(module, StudentConfig(tuple(note["layers"]), theirs.num_hidden_layers, theirs.vocab_size))


def _note_in(folder: Path) -> dict[str, Any]:
    note = folders.read_config(folder).get(_NOTE)
    note = note if isinstance(note, dict) else {}
    wanted = {"layers": list, "target": dict}
    if note.get("kind") == KIND and all(isinstance(note.get(name), kind) for name, kind in wanted.items()):
        return note
    raise CorruptModel(f"{folder} holds no draft model that `draftproof train {KIND}` wrote")


def _stored(folder: Path, name: str) -> torch.Tensor | None:
    """One tensor of a model's folder, where its files name it."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            if name in opened.keys():  # noqa: SIM118 (no mapping)
                tensor: torch.Tensor = opened.get_tensor(name)
                return tensor
    return None


def save_student(student: Student, out: Path, target: Path, name: str, card: Mapping[str, Any]) -> None:
    """Writes a student as a Hugging Face folder, with the target's tokenizer and generation settings, and a README.

    target: its folder; name: what the user calls it. card: what else config.json and README tell of the student.
    All is written beside, then put in place file by file. Raises OSError; what is there stays then.
    """
    beside = out / ".draft-model.part"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        whole = copy.deepcopy(student.module).to(student.dtype)
        try:
            with silence():
                whole.save_pretrained(beside, max_shard_size="1000GB")
        except (SafetensorError, RuntimeError) as error:  # how a full disk is said there
            raise OSError(str(error).splitlines()[0]) from error
        config = json.loads((beside / "config.json").read_text())
        folders.copy_text_files(target, beside)
        config[_NOTE] = _note(student) | {"card": dict(card)}
        (beside / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (beside / "README.md").write_text(_readme(student, name, card))
        for file in sorted(beside.iterdir(), key=lambda file: file.name == "config.json"):
            shutil.copymode(beside / "config.json", file)  # safetensors lets the owner alone read
            os.replace(file, out / file.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _note(student: Student) -> dict[str, Any]:
    """What it was made of; of the target what must be the same wherever it is read again."""
    config, made = student.module.config, student.config
    facts = {"model_type": config.model_type, "hidden_size": config.hidden_size, "vocab_size": made.vocab_size}
    return {"kind": KIND, "layers": list(made.layers), "target": facts | {"num_hidden_layers": made.target_layers}}


def _readme(student: Student, name: str, card: Mapping[str, Any]) -> str:
    layers, told = student.config.layers, "```json\n" + json.dumps(card, indent=1) + "\n```\n"
    return _README.format(
        target=name,
        model_type=student.module.config.model_type,
        num=len(layers),
        total=student.config.target_layers,
        layers=", ".join(map(str, layers)),
        told=told,
    )
