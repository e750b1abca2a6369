"""Heads looked at, written out and taken over, from folder to folder: EAGLE-3 and Medusa, in any format.

Invariant: everything is read, checked and made before the first byte is written; a folder that holds something is
written to only when told.
Does not know: command lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.errors import InputError, PairingError, UnsupportedModel
from draftproof.models.eagle_config import check_target, vocabulary_hash
from draftproof.models.head_formats import eagle, medusa, transfer
from draftproof.models.head_formats.folder import PUBLIC, USUAL, Weights, find_weights, read_values, write_folder
from draftproof.models.head_formats.layer import check_rows
from draftproof.models.head_formats.rows import TargetRows, target_rows
from draftproof.models.head_formats.which import drafter_of
from draftproof.models.load import Loader
from draftproof.models.medusa_config import KIND, MedusaConfig, read_medusa_config
from draftproof.models.source import ModelSource
from draftproof.text.tokenizer import Tokenizer

MEDUSA, VLLM_MEDUSA = "medusa", "vllm-medusa"
EAGLE_FORMS, MEDUSA_FORMS = (eagle.SPECULATORS, eagle.EAGLE3), (MEDUSA, VLLM_MEDUSA)
_MEDUSA_FIELDS = [field.name for field in fields(MedusaConfig)]


@dataclass(frozen=True)
class GivenTarget:
    """The target a head is held against."""

    loader: Loader
    source: ModelSource

    @cached_property
    def config(self) -> dict[str, Any]:
        """Of its config.json."""
        return self.loader.config(self.source)

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Token -> id."""
        return Tokenizer.from_folder(self.loader.folder(self.source)).vocabulary()

    def rows(self) -> TargetRows:
        """Its embedding and output rows, [V, H] each."""
        return target_rows(self.loader.folder(self.source))


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a head is written. name: what engines call the target. rows: the target's own rows are put in, too."""

    form: str
    name: str
    draft_tokens: int = 3
    rows: bool = False


def look(folder: Path, target: GivenTarget | None) -> dict[str, Any]:
    """What a head is, JSON-ready; with a target, that it was made for it. Raises InputError."""
    values = read_values(folder)
    if _is_medusa(values):
        return _look_medusa(folder, values, target)
    head = eagle.open_head(folder, target.config if target else None)
    if target is not None:
        check_target(head.config, target.config, target.vocabulary)
    told = {"format": head.form, "kind": "eagle3", **eagle.told_of(head.config)}
    return _found(folder, head.weights) | told | {"verifier": dict(head.verifier) or None, "more": dict(head.more)}


def write(folder: Path, out: Path, target: GivenTarget, wishes: Wishes, *, force: bool) -> dict[str, Any]:
    """A head of any format in a public one. Returns what was written, JSON-ready. Raises InputError."""
    check_out(out, force=force)
    values = read_values(folder)
    if _is_medusa(values) != (wishes.form in MEDUSA_FORMS):
        fits = MEDUSA_FORMS if _is_medusa(values) else EAGLE_FORMS
        raise UnsupportedModel(f"{folder} can't be written as {wishes.form}: its kind has {' and '.join(fits)}")
    check_rows(target.config)
    if _is_medusa(values):
        return _write_medusa(folder, values, out, target, wishes)
    head = eagle.open_head(folder, target.config)
    check_target(head.config, target.config, target.vocabulary)
    rows = target.rows()
    transfer.check_shapes(head.config, rows)
    told = transfer.Target(wishes.name, tuple(target.config.get("architectures") or ()), wishes.draft_tokens)
    made, state = transfer.to_public(head, wishes.form, rows, told, embedding=wishes.rows)
    write_folder(out, made, state, metadata=PUBLIC)
    return _written(out, wishes.form, state)


def take_over(folder: Path, out: Path, target: GivenTarget, *, force: bool) -> dict[str, Any]:
    """A head of any format in draftproof's own, for this target. Returns what was written. Raises InputError."""
    check_out(out, force=force)
    values = read_values(folder)
    check_rows(target.config)
    if _is_medusa(values):
        made, state = _own_medusa(folder, values, target)
    else:
        head = eagle.open_head(folder, target.config)
        check_target(head.config, target.config, target.vocabulary)
        rows = target.rows()
        transfer.check_shapes(head.config, rows)
        made, state = transfer.to_own(head, rows, vocabulary_hash(target.vocabulary))
    write_folder(out, made, state)
    return _written(out, eagle.OWN, state) | {"rows": _rows_of(made)}


def check_out(out: Path, *, force: bool) -> None:
    """Raises InputError unless `out` is a new or empty folder, or may be written over."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give a folder to write the head to")
    if not force and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} holds something already: give --force to write over it, or another folder")


def _is_medusa(values: Mapping[str, Any]) -> bool:
    return drafter_of(values) == "medusa"


def _open_medusa(folder: Path, values: Mapping[str, Any]) -> tuple[Weights, medusa.MedusaTensors]:
    """Own heads have the names of public ones."""
    if values.get("kind") == KIND:
        read_medusa_config(folder)
        told = {"medusa_num_heads": values["num_heads"], "medusa_num_layers": values["num_layers"]}
        weights = find_weights(folder)
        return weights, medusa.split(told, weights.load(), str(folder))
    weights = find_weights(folder, (*medusa.FILES, *USUAL))
    return weights, medusa.split(values, weights.load(), str(folder))


def _look_medusa(folder: Path, values: dict[str, Any], target: GivenTarget | None) -> dict[str, Any]:
    weights, heads = _open_medusa(folder, values)
    form = eagle.OWN if "kind" in values else VLLM_MEDUSA if values.get("model_type") == "medusa" else MEDUSA
    if target is not None:
        _own_medusa(folder, values, target)
    told: dict[str, Any] = {"format": form, "kind": KIND, "hidden_size": heads.hidden_size}
    told |= {"num_heads": heads.num_heads, "num_layers": heads.num_layers, "output_matrices": len(heads.outputs)}
    told["draft_vocab_size"] = None if heads.ids is None else len(heads.ids)
    return _found(folder, weights) | told | {"verifier": values.get("base_model_name_or_path")}


def _own_medusa(
    folder: Path, values: Mapping[str, Any], target: GivenTarget
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights, heads = _open_medusa(folder, values)
    if values.get("kind") == KIND:
        config = read_medusa_config(folder)
        check_target(config, target.config, target.vocabulary)
        return dict(values), weights.load()
    size = target.config.get("hidden_size")
    if heads.hidden_size != size:
        raise PairingError(
            f"{folder} was made for a target with a hidden size of {heads.hidden_size}, this one has {size}"
        )
    config, state = medusa.to_own(heads, values, target.rows().output, target.config, str(folder))
    check_target(config, target.config, target.vocabulary)
    return config.to_json() | {"tokenizer": config.tokenizer or vocabulary_hash(target.vocabulary)}, state


def _write_medusa(
    folder: Path, values: dict[str, Any], out: Path, target: GivenTarget, wishes: Wishes
) -> dict[str, Any]:
    made, state = _own_medusa(folder, values, target)
    config = MedusaConfig(**{name: made[name] for name in _MEDUSA_FIELDS if name in made})
    output = target.rows().output
    if wishes.form == VLLM_MEDUSA:
        told, tensors = medusa.to_vllm(config, state, output)
        write_folder(out, told, tensors, metadata=PUBLIC)
    else:
        told, tensors = medusa.to_medusa(config, state, wishes.name, output if wishes.rows else None)
        for name in medusa.FILES:
            write_folder(out, told, tensors, name, PUBLIC)
    return _written(out, wishes.form, tensors)


def _found(folder: Path, weights: Weights) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "files": [file.name for file in weights.files],
        "bytes": sum(file.stat().st_size for file in weights.files),
    }


def _written(out: Path, form: str, state: Mapping[str, Tensor]) -> dict[str, Any]:
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    return {"out": str(out), "format": form, "tensors": len(state), "bytes": total}


def _rows_of(made: Mapping[str, Any]) -> dict[str, str]:
    own = {name: bool(made.get(f"own_{name}")) for name in ("embedding", "output")}
    return {name: "its own" if is_own else "the target's" for name, is_own in own.items()}
