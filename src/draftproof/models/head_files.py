"""Heads from and to safetensors: EAGLE under the names of public EAGLE-3 checkpoints, Medusa under theirs.

Does not know: targets, graphs, training.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from draftproof.errors import CorruptModel
from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import CONFIG, WEIGHTS, read_config
from draftproof.models.head_formats.eagle import is_own, open_head
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import read_medusa_config

AnyHead = EagleHead | MedusaHeads
_Head = TypeVar("_Head", EagleHead, MedusaHeads)


def load_head(folder: Path, target: Mapping[str, Any] | None = None) -> EagleHead:
    """The head in a folder of any format, float32, in eval mode.

    target: the values of the target's config.json, which a head from elsewhere needs.
    Raises ModelNotFound or CorruptModel; for a head from elsewhere also as `open_head`.
    """
    if is_own(folder):
        return _filled(EagleHead(read_config(folder)), folder)
    opened = open_head(folder, target)
    head = EagleHead(opened.config)
    head.load_state_dict({name: _wide(tensor) for name, tensor in opened.state().items()})
    return head.eval()


def load_medusa(folder: Path) -> MedusaHeads:
    """The Medusa heads in a folder, likewise."""
    return _filled(MedusaHeads(read_medusa_config(folder)), folder)


def _filled(head: _Head, folder: Path) -> _Head:
    try:
        state = load_file(folder / WEIGHTS)
        head.load_state_dict({name: _wide(tensor) for name, tensor in state.items()})
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[-1].strip()[:200]
        raise CorruptModel(f"{folder}/{WEIGHTS} is not the head its {CONFIG} describes: {reason}") from error
    ids = head.draft_ids
    if len(ids) and not bool((ids.diff() > 0).all() & (ids[0] >= 0) & (ids[-1] < head.config.vocab_size)):
        raise CorruptModel(f"{folder}/{WEIGHTS}: its table d2t names no rising ids of the target's vocabulary")
    return head.eval()


def as_saved(head: AnyHead) -> dict[str, torch.Tensor]:
    """A head's state as it will come back from its file: rounded to bfloat16."""
    return {name: _wide(_narrow(tensor)) for name, tensor in head.state_dict().items()}


def save_head(head: AnyHead, folder: Path, more: dict[str, Any] | None = None) -> None:
    """Writes a head in bfloat16. more: what else is told of it, beside its shapes. Each file is put in place whole."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: _narrow(tensor).contiguous().cpu() for name, tensor in head.state_dict().items()}
    config = json.dumps(head.config.to_json() | (more or {}), indent=1) + "\n"
    for name, content in ((WEIGHTS, save(state)), (CONFIG, config.encode())):
        beside = folder / f".{name}.part"
        try:
            beside.write_bytes(content)
            os.replace(beside, folder / name)
        finally:
            beside.unlink(missing_ok=True)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16() if tensor.is_floating_point() else tensor
