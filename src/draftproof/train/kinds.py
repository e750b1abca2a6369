"""The kinds of draft heads that a run can train, and what a run needs to know of each.

Does not know: runs, texts, losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.errors import UnsupportedModel
from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, check_teachable
from draftproof.models.head_files import AnyHead, load_head, load_medusa
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig
from draftproof.train.medusa import MedusaTrainer, new_heads
from draftproof.train.start import new_head
from draftproof.train.trainer import Trainer

Target = Mapping[str, Any]  # the values of its config.json


@dataclass(frozen=True, slots=True)
class HeadKind:
    """One kind.

    check: raises UnsupportedModel for a target that none can be made for. load: the head in a folder, to train on.
    new: a fresh one from (target's module, draft ids int64[Vd], texts int64[B, S] without padding, seed).
    blank: one of given shapes, to be filled. trainer: what trains it.
    """

    name: str
    check: Callable[[Target], None]
    load: Callable[[Path, Target], AnyHead]
    new: Callable[[Any, Tensor, Tensor, int], AnyHead]
    blank: Callable[[Any], AnyHead]
    trainer: type[Trainer]


def _check_medusa(target: Target) -> None:
    for name in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
        if name not in target:
            raise UnsupportedModel(
                f"no Medusa heads can be trained for models of type {target.get('model_type')!r} yet: their "
                f"config.json tells no {name}"
            )


def _own(head: AnyHead, folder: Path) -> AnyHead:
    """The head, which must share the target's rows: others can't be trained yet."""
    if head.config.own_output or getattr(head.config, "own_embedding", False):
        raise UnsupportedModel(f"{folder} has rows of its own: only heads that share the target's train")
    return head


def _new_eagle(model: Any, ids: Tensor, sample: Tensor, seed: int) -> AnyHead:
    return new_head(EagleConfig.of_target(model.config, None, len(ids)), model, ids, sample, seed)


def _new_medusa(model: Any, ids: Tensor, sample: Tensor, seed: int) -> AnyHead:
    return new_heads(MedusaConfig.of_target(model.config, draft_vocab_size=len(ids)), model, ids)


KINDS = {
    kind.name: kind
    for kind in (
        HeadKind(
            "eagle", check_teachable, lambda at, target: _own(load_head(at, target), at), _new_eagle, EagleHead, Trainer
        ),
        HeadKind(
            "medusa", _check_medusa, lambda at, _: _own(load_medusa(at), at), _new_medusa, MedusaHeads, MedusaTrainer
        ),
    )
}
