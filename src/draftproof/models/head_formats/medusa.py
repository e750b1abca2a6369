"""Medusa heads in public formats: FasterDecoding's (which text-generation-inference reads as well) and vLLM's.

Head k (from 0) guesses token t+2+k from the target's last hidden state after token t, behind the last norm, in all of
them. They differ in names and in output rows:

    draftproof  {k}.{j}.linear.weight, .bias, d2t                       the target's rows, cut to the draft tokens, or
                {k}.{layers}.weight                                     [Vd, H] a head (`own_output`)
    medusa      {k}.{j}.linear.weight, .bias, {k}.{layers}.weight       a matrix [V, H] a head; the target's without
    vllm        blocks.{k}.layers.{j}.weight, .bias, lm_head.weight     one matrix for all heads (`original_lm_head`),
                or lm_heads.{k}.weight; token_map                       or one a head; cut to the ids of token_map

Invariant: own -> public -> own is the same heads, bit for bit.

Sources: FasterDecoding/Medusa (medusa/model/medusa_model.py), vLLM 0.32 (models/medusa.py, configs/medusa.py).
Does not know: files, how heads are run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.head_formats.told import Told
from draftproof.models.medusa_config import MedusaConfig

State = dict[str, Tensor]
FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")  # what the formats' readers look for, beside the usual
ASIDE = "draftproof"
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_VLLM_BLOCK = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
_MATRIX = re.compile(r"(\d+)\.(\d+)\.weight")
_VLLM_MATRIX = re.compile(r"lm_heads\.(\d+)\.weight")


@dataclass(frozen=True, slots=True, eq=False)
class MedusaTensors:
    """Heads as any format has them."""

    blocks: State  # {k}.{j}.linear.weight [H, H] and .bias [H]
    outputs: tuple[Tensor, ...]  # none: the target's rows; one for all heads; or one a head, [Vd, H]
    ids: Tensor | None  # int64[Vd], rising; None: the whole vocabulary
    num_heads: int
    num_layers: int

    @property
    def hidden_size(self) -> int:
        """Width of the states."""
        return int(self.blocks["0.0.linear.weight"].shape[0])


def split(values: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> MedusaTensors:
    """Public heads taken apart: every tensor has its place, or CorruptModel names the one that has none.

    values: of config.json. Biases that are not there are zero.
    """
    blocks: State = {}
    outputs: dict[int, Tensor] = {}
    shared = ids = None
    for name, tensor in tensors.items():
        plain = name.removeprefix("medusa_heads.").removeprefix("medusa_head.")
        if found := _BLOCK.fullmatch(plain) or _VLLM_BLOCK.fullmatch(plain):
            blocks[f"{found[1]}.{found[2]}.linear.{found[3]}"] = tensor
        elif found := _MATRIX.fullmatch(plain) or _VLLM_MATRIX.fullmatch(plain):
            outputs[int(found[1])] = tensor
        elif plain == "lm_head.weight":
            shared = tensor
        elif plain == "token_map":
            ids = tensor.to(torch.int64)
        elif plain == "d2t":
            ids = tensor.to(torch.int64) + torch.arange(len(tensor))
        else:
            raise CorruptModel(f"{where} holds {name}, which no Medusa head has")
    num_heads, num_layers = _counts(Told(values, where), blocks)
    given = (shared,) if shared is not None else tuple(outputs[head] for head in sorted(outputs))
    if len(given) not in (0, 1, num_heads):
        raise CorruptModel(f"{where} holds {len(given)} output matrices for {num_heads} heads")
    found_all = MedusaTensors(_complete(blocks, num_heads, num_layers, where), given, ids, num_heads, num_layers)
    _check(found_all, where)
    return found_all


def to_own(
    heads: MedusaTensors, values: Mapping[str, Any], output: Tensor, target: Mapping[str, Any], where: str
) -> tuple[MedusaConfig, State]:
    """The heads as draftproof has them, over this target; output rows that are the target's are shared again.

    output: [V, H], the target's output rows. target: the values of its config.json. Raises CorruptModel.
    """
    ids = heads.ids if heads.ids is not None else torch.arange(len(output))
    if int(ids[-1]) >= len(output) or output.shape[1] != heads.hidden_size:
        raise CorruptModel(f"{where} was made for a target of other sizes than this one ({list(output.shape)})")
    if any(len(matrix) not in (len(ids), len(output)) for matrix in heads.outputs):
        raise CorruptModel(f"{where} was made for another vocabulary than the target's {len(output)} tokens")
    matrices = [matrix if len(matrix) == len(ids) else matrix[ids] for matrix in heads.outputs]
    is_shared = all(torch.equal(matrix, output[ids].to(matrix.dtype)) for matrix in matrices)
    own = {} if is_shared else {_matrix(heads, k): matrices[k % len(matrices)] for k in range(heads.num_heads)}
    told = Told(target, "the target's config.json")
    aside = Told(values, where).part(ASIDE)
    config = MedusaConfig(
        hidden_size=heads.hidden_size,
        num_heads=heads.num_heads,
        num_layers=heads.num_layers,
        vocab_size=told.integer("vocab_size"),
        draft_vocab_size=len(ids),
        target_layers=aside.integer("target_layers", told.integer("num_hidden_layers")),
        max_len=told.integer("max_position_embeddings"),
        tokenizer=aside.values.get("tokenizer"),
        own_output=not is_shared,
    )
    return config, heads.blocks | own | {"d2t": ids - torch.arange(len(ids))}


def to_medusa(
    config: MedusaConfig, state: Mapping[str, Tensor], base_model: str, output: Tensor | None = None
) -> tuple[dict[str, Any], State]:
    """(config.json, tensors) as FasterDecoding's.

    output: [V, H], to put a matrix into every head, which TensorRT-LLM needs; the others take the target's without.
    Raises UnsupportedModel for matrices of their own that are cut to the draft tokens.
    """
    _check_cut(config)
    tensors = {name: tensor for name, tensor in state.items() if name != "d2t"}
    dtype = next(iter(tensors.values())).dtype
    if output is not None and not config.own_output:
        tensors |= {f"{head}.{config.num_layers}.weight": output.to(dtype) for head in range(config.num_heads)}
    values = {
        "medusa_num_heads": config.num_heads,
        "medusa_num_layers": config.num_layers,
        "base_model_name_or_path": base_model,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        ASIDE: _aside(config),
    }
    return values, tensors | {"d2t": state["d2t"]}


def to_vllm(config: MedusaConfig, state: Mapping[str, Tensor], output: Tensor) -> tuple[dict[str, Any], State]:
    """(config.json, tensors) as vLLM's. output: [V, H], of the target; cut to the draft tokens.

    Raises UnsupportedModel for matrices of their own that are cut to the draft tokens.
    """
    _check_cut(config)
    ids = state["d2t"] + torch.arange(len(state["d2t"]))
    tensors: State = {}
    for name, tensor in state.items():
        if found := _BLOCK.fullmatch(name):
            tensors[f"blocks.{found[1]}.layers.{found[2]}.{found[3]}"] = tensor
        elif found := _MATRIX.fullmatch(name):
            tensors[f"lm_heads.{found[1]}.weight"] = tensor
    if not config.own_output:
        tensors["lm_head.weight"] = output[ids].to(next(iter(tensors.values())).dtype)
    if config.draft_vocab_size < config.vocab_size:
        tensors["token_map"] = ids
    values = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "truncated_vocab_size": config.draft_vocab_size,
        "num_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "medusa_fc_bias": True,
        "original_lm_head": not config.own_output,
        ASIDE: _aside(config),
    }
    return values, tensors


def _matrix(heads: MedusaTensors, head: int) -> str:
    return f"{head}.{heads.num_layers}.weight"


def _check_cut(config: MedusaConfig) -> None:
    if config.own_output and config.draft_vocab_size < config.vocab_size:
        raise UnsupportedModel(
            f"output rows of their own for {config.draft_vocab_size} of {config.vocab_size} tokens: public formats of "
            "Medusa heads hold such rows for the whole vocabulary only"
        )


def _aside(config: MedusaConfig) -> dict[str, Any]:
    return {"target_layers": config.target_layers, "tokenizer": config.tokenizer}


def _counts(told: Told, blocks: State) -> tuple[int, int]:
    """Heads and blocks of each: as the configuration says, which must be what is there."""
    places = {(int(head), int(block)) for head, block, *_ in (name.split(".") for name in blocks)}
    heads, layers = len({head for head, _ in places}), len({block for _, block in places})
    for names, found in (
        (("medusa_num_heads", "num_heads"), heads),
        (("medusa_num_layers", "num_hidden_layers"), layers),
    ):
        name = next((name for name in names if told.values.get(name) is not None), None)
        if name is not None and told.integer(name) != found:
            raise CorruptModel(f"{told.where} tells {name} {told.values[name]}, its tensors are of {found}")
    if not heads:
        raise CorruptModel(f"{told.where}: there is no tensor of a Medusa head beside it")
    return heads, layers


def _complete(blocks: State, num_heads: int, num_layers: int, where: str) -> State:
    """In order, with zeros where a block has no bias."""
    whole: State = {}
    for head in range(num_heads):
        for block in range(num_layers):
            name = f"{head}.{block}.linear"
            if f"{name}.weight" not in blocks:
                raise CorruptModel(f"{where} lacks the tensor {name}.weight")
            weight = blocks[f"{name}.weight"]
            whole[f"{name}.weight"] = weight
            whole[f"{name}.bias"] = blocks.get(f"{name}.bias", torch.zeros(len(weight), dtype=weight.dtype))
    return whole


def _check(heads: MedusaTensors, where: str) -> None:
    size = heads.hidden_size
    for name, tensor in heads.blocks.items():
        wanted = (size,) if name.endswith("bias") else (size, size)
        if tuple(tensor.shape) != wanted:
            raise CorruptModel(f"{where}: {name} has the shape {list(tensor.shape)}, not {list(wanted)}")
    for matrix in heads.outputs:
        if matrix.dim() != 2 or matrix.shape[1] != size:
            raise CorruptModel(f"{where}: an output matrix has the shape {list(matrix.shape)}, not [tokens, {size}]")
    for tensor in (*heads.blocks.values(), *heads.outputs):
        if not bool(torch.isfinite(tensor).all()):
            raise CorruptModel(f"{where}: a tensor holds values that are no numbers: get the heads again")
    if heads.ids is not None and not bool((heads.ids.diff() > 0).all() & (heads.ids >= 0).all()):
        raise CorruptModel(f"{where}: its table of draft tokens names no rising ids")
