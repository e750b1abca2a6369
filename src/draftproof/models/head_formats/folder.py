"""A folder that somebody wrote: its config.json and its tensors, whichever of the usual files hold them.

Names and shapes are read from the headers of safetensors files, so a head can be refused before any weight is read. A
pickled file (*.bin, *.pt) is read as plain tensors only: one that would run code is refused.

Invariant: what is written appears file by file, each whole or not at all.
Does not know: what the tensors are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from draftproof.errors import CorruptModel, InputError, ModelNotFound
from draftproof.models.eagle_config import CONFIG, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

PUBLIC = {"format": "pt"}
USUAL = (WEIGHTS, "pytorch_model.bin")  # or beside either an index that names several


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors on disk: which file holds which, and their shapes."""

    shapes: Mapping[str, tuple[int, ...]]
    places: Mapping[str, Path]

    @property
    def files(self) -> list[Path]:
        """Each file once."""
        return list(dict.fromkeys(self.places.values()))

    def load(self) -> dict[str, Tensor]:
        """All tensors in memory, in the dtypes of the files. Raises CorruptModel."""
        found: dict[str, Tensor] = {}
        for file in self.files:
            names = [name for name, place in self.places.items() if place == file]
            tensors = _pickled(file) if _is_pickled(file) else _saved(file, names)
            found |= {name: tensors[name] for name in names}
        return found

    def only(self, names: Collection[str]) -> Weights:
        """Some of them."""
        return Weights({name: self.shapes[name] for name in names}, {name: self.places[name] for name in names})


def read_values(folder: Path) -> dict[str, Any]:
    """config.json of a head's folder. Raises ModelNotFound or CorruptModel."""
    path = folder / CONFIG
    if not path.is_file():
        raise ModelNotFound(f"{folder} holds no draft head: there is no {CONFIG} in it")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} can't be read: get the draft head again ({error})") from error
    if not isinstance(values, dict):
        raise CorruptModel(f"{path} can't be read: it holds no object, get the draft head again")
    return values


def find_weights(folder: Path, usual: Sequence[str] = USUAL) -> Weights:
    """The tensors of a folder, from the first of the usual files that is there. Raises ModelNotFound, CorruptModel."""
    files = next((files for name in usual if (files := _files(folder, name))), None)
    if files is None:
        raise ModelNotFound(f"{folder} holds no draft head: none of {', '.join(usual)} is in it")
    shapes: dict[str, tuple[int, ...]] = {}
    places: dict[str, Path] = {}
    for file in files:
        for name, shape in _shapes(file).items():
            if name in shapes:
                raise CorruptModel(f"{file} holds {name} a second time: get the draft head again")
            shapes[name], places[name] = shape, file
    return Weights(shapes, places)


def write_folder(
    folder: Path,
    values: Mapping[str, Any],
    state: Mapping[str, Tensor],
    weights: str = WEIGHTS,
    metadata: dict[str, str] | None = None,
) -> None:
    """config.json and one file of tensors, which keep their dtypes; *.pt is pickled, anything else safetensors.

    metadata: of the safetensors file; transformers asks for PUBLIC. The tensors are put in place first: a configuration
    always has its tensors. Raises InputError where nothing can be written.
    """
    whole = {name: tensor.detach().contiguous().cpu().clone() for name, tensor in state.items()}
    config = json.dumps(values, indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / weights, _bytes(whole, weights, metadata))
        _put(folder / CONFIG, config.encode())
    except OSError as error:
        raise InputError(f"can't write the draft head to {folder}: {error.strerror or error}") from error


def _put(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _bytes(state: Mapping[str, Tensor], name: str, metadata: dict[str, str] | None) -> bytes:
    import io

    import torch  # seconds to import, and most of this module does without
    from safetensors.torch import save

    if not name.endswith(".pt"):
        return bytes(save(dict(state), metadata))
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def _is_pickled(file: Path) -> bool:
    return file.suffix != ".safetensors"


def _files(folder: Path, name: str) -> list[Path]:
    """The file itself, or the ones its index names; empty where there is neither."""
    index = folder / f"{name}.index.json"
    if (folder / name).is_file():
        return [folder / name]
    if not index.is_file():
        return []
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / str(part) for part in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptModel(f"{index} can't be read: get the draft head again ({error})") from error
    for file in files:
        if file.parent != folder or not file.is_file():
            raise CorruptModel(f"{index} names {file.name}, which is not there: get the draft head again")
    return files


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    if _is_pickled(file):
        return {name: tuple(tensor.shape) for name, tensor in _pickled(file).items()}
    try:
        with safe_open(file, framework="numpy") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise _unreadable(file, error) from error


def _saved(file: Path, names: Sequence[str]) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    except (OSError, RuntimeError, SafetensorError) as error:
        raise _unreadable(file, error) from error


def _pickled(file: Path) -> dict[str, Tensor]:
    import pickle

    import torch  # seconds to import, and safetensors files do without

    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CorruptModel(
            f"{file} is a pickle that holds more than tensors, or is damaged: it is not opened, as it could run code; "
            "get the head as safetensors"
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise _unreadable(file, error) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in found.items()
    ):
        raise CorruptModel(f"{file} does not hold named tensors: get the draft head again")
    return found


def _unreadable(file: Path, error: Exception) -> CorruptModel:
    reason = (str(error) or type(error).__name__).splitlines()[0][:200]
    return CorruptModel(f"{file} can't be read: get the draft head again ({reason})")
