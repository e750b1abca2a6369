"""A student: a model of a target's own architecture with few of its layers, to be distilled into a draft model.

It starts as the target with layers picked evenly, the first and the last among them. Its embedding and its output rows
are the target's own, and stay so: what is learned is the layers and what else the target's body has (the last norm).

Invariant: a student is what transformers makes of its configuration; what is frozen is no part of its state, so
checkpoints hold what is learned and no more.

Does not know: files, losses, texts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from draftproof.errors import InputError, PairingError, UnsupportedModel
from draftproof.models.module import layer_list, silence
from draftproof.models.support import check_supported, pick_layers

_LEAST = 2  # layers: the target's first and its last
_SHARE = 0.1  # of the target's layers, by default


@dataclass(frozen=True, slots=True)
class StudentConfig:
    """What a student was made of. layers: which of the target's it started from, numbers from 0."""

    layers: tuple[int, ...]
    target_layers: int
    vocab_size: int

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """After how many of the target's layers the states are taken that it learns from: all, so its law."""
        return (self.target_layers,)


class Student(torch.nn.Module):
    """A module of transformers, of which the body's parts are learned.

    module: a causal language model with the student's layers; its embeddings and output rows are frozen.
    """

    def __init__(self, module: Any, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        self._whole = (module.eval().requires_grad_(False),)  # in a tuple: torch sees no part of this module in it
        for name, part in module.base_model.named_children():
            if not isinstance(part, torch.nn.Embedding) and next(part.parameters(), None) is not None:
                self.add_module(name, part.requires_grad_(True))

    @property
    def module(self) -> Any:
        """The whole model."""
        return self._whole[0]

    @property
    def draft_ids(self) -> Tensor:
        """int64[V]: it can say every token."""
        return torch.arange(self.config.vocab_size, device=self.module.device)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64[B, S], padded on the right -> [B, S, H] what meets the output rows."""
        hidden: Tensor = self.module.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return hidden

    def logits(self, tokens: Tensor) -> Tensor:
        """int64[B, S], padded on the right -> [B, S, V]."""
        logits: Tensor = self.module(input_ids=tokens, use_cache=False).logits
        return logits

    def share(self, target: Any) -> None:
        """Takes the target's own rows in the place of copies. Raises PairingError where they differ."""
        for mine, theirs in zip(rows_of(self.module), rows_of(target), strict=True):
            if mine is not theirs and not torch.equal(mine.weight, theirs.weight.to(mine.weight.device)):
                raise PairingError(f"the draft model {OTHER_ROWS}")
        self.module.set_input_embeddings(target.get_input_embeddings())
        self.module.set_output_embeddings(target.get_output_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        """How it is written: bfloat16 where what is frozen are such numbers, else float32: that stays to the bit."""
        frozen = [part for part in self.module.parameters() if not part.requires_grad]
        narrow = all(torch.equal(part.bfloat16().to(part.dtype), part) for part in frozen)
        return torch.bfloat16 if narrow else torch.float32

    def as_saved(self) -> dict[str, Tensor]:
        """Its state as it will come back from its files."""
        dtype = self.dtype
        return {
            name: part.to(dtype).to(part.dtype) if part.is_floating_point() else part
            for name, part in self.state_dict().items()
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Student:
        """A student of its own, over the same frozen rows."""
        shared = {id(part): part for part in rows_of(self.module)}
        return Student(copy.deepcopy(self.module, memo | shared), self.config)


OTHER_ROWS = "has other embedding or output rows than this target: it was made for another one"


def rows_of(model: Any) -> tuple[Any, Any]:
    """The modules of a model's embedding and output rows; they may share one weight."""
    return model.get_input_embeddings(), model.get_output_embeddings()


def picked(num_target: int, num_layers: int | None) -> tuple[int, ...]:
    """Which layers of a target a student of `num_layers` (None: a tenth, at least two) starts from: evenly spread.

    Raises InputError for a number that leaves no choice of layers with the first and the last among them.
    """
    num = max(_LEAST, round(_SHARE * num_target)) if num_layers is None else num_layers
    if not _LEAST <= num < num_target:
        raise InputError(
            f"a draft model has at least {_LEAST} layers (the target's first and last) and fewer than the target: "
            f"this one has {num_target}, got {num}"
        )
    return tuple(round(index * (num_target - 1) / (num - 1)) for index in range(num))


def check_student(config: Any, num_layers: int | None) -> None:
    """Raises UnsupportedModel, before a weight is read, for a target whose layers can't be picked; InputError for a
    number of layers that it has not.

    config: the target's (a transformers object).
    """
    check_supported(config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config))
        try:
            total = len(getattr(model.base_model, layer_list(model)))
        except UnsupportedModel as error:
            raise UnsupportedModel(f"no draft model can be trained for this target yet: {error}") from error
        if total != getattr(config, "num_hidden_layers", None) or model.get_output_embeddings() is None:
            raise _unalike(config)
        layers = picked(total, num_layers)
        small = AutoModelForCausalLM.from_config(pick_layers(copy.deepcopy(config), layers))
    wanted, found = small.state_dict(), _renumbered(model, layers)
    if wanted.keys() != found.keys() or any(part.shape != found[name].shape for name, part in wanted.items()):
        raise _unalike(config)


def new_student(target: Any, num_layers: int | None) -> Student:
    """The student of a target (a transformers module) before its first step."""
    config = target.config
    layers = picked(int(config.num_hidden_layers), num_layers)
    with torch.random.fork_rng(), silence():  # its random start is written over
        module = AutoModelForCausalLM.from_config(pick_layers(copy.deepcopy(config), layers), dtype=target.dtype)
    module.load_state_dict(_renumbered(target, layers))
    student = Student(module.to(target.device), StudentConfig(layers, config.num_hidden_layers, config.vocab_size))
    student.share(target)
    return student


def _renumbered(target: Any, layers: Sequence[int]) -> Mapping[str, Tensor]:
    """The target's state with these of its layers, numbered from 0."""
    start, found = f"{target.base_model_prefix}.{layer_list(target)}.", dict[str, Tensor]()
    places = {str(layer): place for place, layer in enumerate(layers)}
    for name, part in target.state_dict().items():
        layer, _, rest = name.removeprefix(start).partition(".")
        if not name.startswith(start):
            found[name] = part
        elif layer in places:
            found[f"{start}{places[layer]}.{rest}"] = part
    return found


def _unalike(config: Any) -> UnsupportedModel:
    return UnsupportedModel(
        f"no draft model can be trained for models of type {config.model_type!r} yet: their layers can't be picked by "
        "number (they differ in shape, or their number is not num_hidden_layers)"
    )
