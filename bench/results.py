"""Result files: one JSON file a group, with its provenance and every single run, one a line.

Invariant: a file is replaced whole or not at all. Does not know: what the runs mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def _rounded(value: Any) -> Any:
    """Seconds to the microsecond: more digits are noise that makes files long."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def render(content: Mapping[str, Any]) -> str:
    """JSON; a list of objects has one object a line."""
    parts = []
    for key, value in content.items():
        value = _rounded(value)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            body = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        else:
            body = json.dumps(value, indent=1).replace("\n", "\n ")
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(render(content))
    os.replace(temporary, path)


def read(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What is there of these groups, by name."""
    paths = {name: folder / f"{name}.json" for name in names}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}
