"""Facts about a Hugging Face folder that need no model code: layer count, the files that hold text.

Does not know: torch, transformers, weights.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from draftproof.errors import CorruptModel, InputError

TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "config.json",
)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json as a dict (of the text part, where a model has several)."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise CorruptModel(f"{folder} has no config.json: it is not a Hugging Face model folder") from error
    except (OSError, ValueError) as error:
        raise CorruptModel(f"{path} can't be read as JSON ({error}): download the model again") from error
    if not isinstance(config, dict):
        raise CorruptModel(f"{path} does not hold a model configuration: download the model again")
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, dict) else config


def num_layers(config: dict[str, Any]) -> int:
    """Decoder layers of the model."""
    for name in ("num_hidden_layers", "n_layer"):
        if isinstance(config.get(name), int):
            return int(config[name])
    raise CorruptModel("config.json does not say how many layers the model has")


def check_exit_layer(config: dict[str, Any], layer: int) -> int:
    """The number itself where the model has more layers than that."""
    total = num_layers(config)
    if not 1 <= layer < total:
        raise InputError(f"the exit layer must be in 1..{total - 1} for a model of {total} layers, got {layer}")
    return layer


def copy_text_files(folder: Path, out: Path) -> None:
    """Tokenizer, template and configuration, so that a converted model stands on its own."""
    for name in TEXT_FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, out / name)
