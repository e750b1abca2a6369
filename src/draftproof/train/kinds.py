"""The kinds of drafters that a run can train, and what a run needs to know of each.

Does not know: runs, losses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftproof.errors import InputError, UnsupportedModel
from draftproof.models.eagle_config import EagleConfig, check_target, check_teachable, vocabulary_hash
from draftproof.models.head_files import AnyHead, as_saved, load_head, load_medusa, save_head
from draftproof.models.medusa_config import MedusaConfig
from draftproof.models.student import Student, new_student
from draftproof.models.student_files import check_folder, load_student, save_student
from draftproof.text.tokenizer import Tokenizer
from draftproof.train.medusa import MedusaTrainer, new_heads
from draftproof.train.settings import VOCAB, TrainSettings
from draftproof.train.start import new_head
from draftproof.train.student import StudentTrainer
from draftproof.train.texts import Text, frequent
from draftproof.train.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a drafter is trained for: its Hugging Face folder, and the values of the config.json in it."""

    folder: Path
    config: Mapping[str, Any]
    name: str = ""  # what the user calls it


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind; a drafter is a module of torch whose state is what is learned, with `config` and `draft_ids`.

    check: raises InputError (UnsupportedModel, mostly) for a target that none can be made for, or not as asked. load:
    the one in a folder, to train on or to compare with; refuses one of another target. new: a fresh one from (target's
    module, texts, what is asked for). as_saved: its state as it will come back from its file. save: writes it with its
    card; raises OSError. trainer: what trains it.
    """

    name: str
    check: Callable[[Target, TrainSettings], None]
    load: Callable[[Path, Target], Any]
    new: Callable[[Any, Sequence[Text], TrainSettings], Any]
    as_saved: Callable[[Any], dict[str, Tensor]]
    save: Callable[[Any, Path, Target, dict[str, Any]], None]
    trainer: type[Trainer]


# -- heads -------------------------------------------------------------------------------------------------------------


def _check_eagle(target: Target, settings: TrainSettings) -> None:
    _check_head(settings)
    check_teachable(target.config)


def _check_medusa(target: Target, settings: TrainSettings) -> None:
    _check_head(settings)
    for name in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
        if name not in target.config:
            raise UnsupportedModel(
                f"no Medusa heads can be trained for models of type {target.config.get('model_type')!r} yet: their "
                f"config.json tells no {name}"
            )


def _check_head(settings: TrainSettings) -> None:
    if settings.layers is not None:
        raise InputError("--layers is of draft models: a head has no layers to choose")


def _own(head: AnyHead, folder: Path, target: Target) -> AnyHead:
    """The head, which must be of this target and share its rows: others can't be trained yet."""
    if head.config.own_output or getattr(head.config, "own_embedding", False):
        raise UnsupportedModel(f"{folder} has rows of its own: only heads that share the target's train")
    check_target(head.config, target.config)
    return head


def _new_eagle(model: Any, texts: Sequence[Text], settings: TrainSettings) -> AnyHead:
    ids = _frequent(model, texts, settings.draft_vocab or VOCAB)
    length = min(64, max(len(text.tokens) for text in texts))
    sample = np.stack([text.tokens[:length] for text in texts if len(text.tokens) >= length][:16])
    config = EagleConfig.of_target(model.config, None, len(ids))
    return new_head(config, model, ids, torch.from_numpy(sample.astype(np.int64)), settings.seed)


def _new_medusa(model: Any, texts: Sequence[Text], settings: TrainSettings) -> AnyHead:
    ids = _frequent(model, texts, settings.draft_vocab or VOCAB)
    return new_heads(MedusaConfig.of_target(model.config, draft_vocab_size=len(ids)), model, ids)


def _frequent(model: Any, texts: Sequence[Text], num: int) -> Tensor:
    """int64[Vd], ascending: the tokens that are frequent in the texts, what a head's output is cut to."""
    return torch.from_numpy(frequent(texts, num, int(model.config.vocab_size)))


def _save_head(head: AnyHead, out: Path, target: Target, card: dict[str, Any]) -> None:
    """The head with the tokenizer it was made for."""
    named = copy.copy(head)
    named.config = replace(head.config, tokenizer=vocabulary_hash(Tokenizer.from_folder(target.folder).vocabulary()))
    save_head(named, out, {"card": card})


# -- draft models ------------------------------------------------------------------------------------------------------


def _check_student(target: Target, settings: TrainSettings) -> None:
    check_folder(target.folder, settings.layers)


def _save_student(student: Student, out: Path, target: Target, card: dict[str, Any]) -> None:
    save_student(student, out, target.folder, target.name, card)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "eagle",
            _check_eagle,
            lambda at, target: _own(load_head(at, target.config), at, target),
            _new_eagle,
            as_saved,
            _save_head,
            Trainer,
        ),
        Kind(
            "medusa",
            _check_medusa,
            lambda at, target: _own(load_medusa(at), at, target),
            _new_medusa,
            as_saved,
            _save_head,
            MedusaTrainer,
        ),
        Kind(
            "draft-model",
            _check_student,
            lambda at, target: load_student(at, target.folder),
            lambda model, _, settings: new_student(model, settings.layers),
            Student.as_saved,
            _save_student,
            StudentTrainer,
        ),
    )
}
