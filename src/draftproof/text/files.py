"""The files of a model folder that say how text becomes tokens: tokenizer.json and its companions.

Read once, checked, and handed on as one frozen value, so that no other module opens them.

Invariant: `eos_ids` is never a guess. It is what the model's generation_config.json says; without that its
config.json; without that the tokenizer's own `eos_token`, which the tokenizer resolves.

Does not know: what a tokenizer does with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import CorruptModel, ModelNotFound


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a folder says about its tokenizer."""

    folder: Path
    tokenizer_json: str
    config: Mapping[str, Any]  # tokenizer_config.json and, where it lists no tokens, special_tokens_map.json; may be {}
    chat_template: str | None
    eos_ids: frozenset[int] | None  # None: no config names any


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptModel(f"can't read {path} ({error}): get the model again") from error


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise CorruptModel(f"{path} is not JSON ({error}): get the model again") from error
    if not isinstance(value, dict):
        raise CorruptModel(f"{path} must hold a JSON object: get the model again")
    return value


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, or the config's (a list of named ones has a "default")."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return _text(path)
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise CorruptModel(f"chat_template in {folder / 'tokenizer_config.json'} must be text: get the model again")
    return template


def _eos(config: Mapping[str, Any], path: Path) -> frozenset[int] | None:
    value = config.get("eos_token_id")
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise CorruptModel(f"eos_token_id in {path} must be token ids, got {value!r}: mend the file")
    return frozenset(ids)


def _eos_ids(folder: Path) -> frozenset[int] | None:
    for name in ("generation_config.json", "config.json"):
        config = _object(folder / name)
        for part in (config, config.get("text_config")):
            ids = _eos(part, folder / name) if isinstance(part, dict) else None
            if ids is not None:
                return ids
    return None


def read_tokenizer_files(folder: str | Path) -> TokenizerFiles:
    """Reads and checks the files of one model folder.

    Raises ModelNotFound without the folder or its tokenizer.json; CorruptModel for a file that is not what it says.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ModelNotFound(f"no folder {path}: name the folder of a model")
    if not (path / "tokenizer.json").is_file():
        raise ModelNotFound(f"{path} has no tokenizer.json: save the model with its fast tokenizer")
    config = _object(path / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= _object(path / "special_tokens_map.json")
    return TokenizerFiles(
        folder=path,
        tokenizer_json=_text(path / "tokenizer.json"),
        config=config,
        chat_template=_chat_template(path, config),
        eos_ids=_eos_ids(path),
    )
