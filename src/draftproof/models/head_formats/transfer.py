"""EAGLE-3 heads from one format to another: what the other format needs is put in, what the target has is left out.

draftproof's heads share the target's embedding and output rows; public ones bring their own output rows, cut to the
draft tokens, and the tables d2t and t2d. Rows that are the target's own, in the head's dtype, are dropped on the way in
and put in on the way out.

Does not know: command lines, how a target's rows are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_formats import eagle3, speculators
from draftproof.models.head_formats.eagle import (
    ASIDE,
    EMBEDDING,
    OUTPUT,
    SPECULATORS,
    OpenHead,
    aside_of,
    own_values,
    public_name,
)
from draftproof.models.head_formats.rows import TargetRows

State = dict[str, Tensor]
_LAYERS = 3  # that other engines read: their fc has this width


@dataclass(frozen=True, slots=True)
class Target:
    """What a public configuration tells of the target. draft_tokens: what a server drafts unless told otherwise."""

    name: str
    architectures: tuple[str, ...] = ()
    draft_tokens: int = 3


def to_own(head: OpenHead, rows: TargetRows, tokenizer: str | None) -> tuple[dict[str, Any], State]:
    """(config.json, tensors) in draftproof's own format; rows of the target are shared again.

    tokenizer: `vocabulary_hash` of the target it is taken over for, written down where the head tells none.
    Raises CorruptModel.
    """
    state, config = head.state(), head.config
    ids = draft_ids(state)
    if config.own_output and _same(state[OUTPUT], rows.output, ids):
        del state[OUTPUT]
        config = replace(config, own_output=False)
    if config.own_embedding and _same(state[EMBEDDING], rows.embedding, None):
        del state[EMBEDDING]
        config = replace(config, own_embedding=False)
    config = replace(config, tokenizer=config.tokenizer or tokenizer)
    return own_values(config, head.more), state


def to_public(
    head: OpenHead, form: str, rows: TargetRows, target: Target, *, embedding: bool = False
) -> tuple[dict[str, Any], State]:
    """(config.json, tensors) in a public format.

    embedding: the target's embedding is put in as well; engines take it from the target where it is not.
    Raises UnsupportedModel for what the format can't say, CorruptModel.
    """
    config = head.config
    layers = config.feature_layers
    if len(layers) != _LAYERS or list(layers) != sorted(set(layers)):
        raise UnsupportedModel(
            f"the head reads the target after {', '.join(map(str, layers))} layers: other engines read {_LAYERS} "
            "different ones, in rising order"
        )
    values = (
        speculators.write(config, target.name, list(target.architectures), target.draft_tokens)
        if form == SPECULATORS
        else eagle3.write(config)
    )
    state = head.state()
    ids, dtype = draft_ids(state), state["fc.weight"].dtype
    values |= {"dtype": _said(dtype), "torch_dtype": _said(dtype), ASIDE: aside_of(config, head.more)}
    state.setdefault(OUTPUT, _cut(rows.output, ids).to(dtype))
    if embedding:
        state.setdefault(EMBEDDING, rows.embedding.to(dtype))
    state["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
    state["t2d"][ids] = True
    return values, {public_name(name, form): tensor for name, tensor in state.items()}


def draft_ids(state: Mapping[str, Tensor]) -> Tensor:
    """int64[Vd]: the target's id of each draft token."""
    return state["d2t"] + torch.arange(len(state["d2t"]))


def check_shapes(config: EagleConfig, rows: TargetRows) -> None:
    """Raises CorruptModel for rows that are not those of the target the head was checked against."""
    for name, found in (("embedding", rows.embedding), ("output", rows.output)):
        if found.shape[0] < config.vocab_size or found.shape[1] != config.hidden_size:
            raise CorruptModel(
                f"the target's {name} rows have the shape {list(found.shape)}, its config.json asks for "
                f"{[config.vocab_size, config.hidden_size]}"
            )


def _same(ours: Tensor, theirs: Tensor, ids: Tensor | None) -> bool:
    """Whether rows are the target's own, rounded to the head's dtype."""
    wanted = theirs[: len(ours)] if ids is None else _cut(theirs, ids)
    return torch.equal(ours, wanted.to(ours.dtype))


def _cut(rows: Tensor, ids: Tensor) -> Tensor:
    return rows[ids]


def _said(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
