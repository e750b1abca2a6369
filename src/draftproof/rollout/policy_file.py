"""A YAML file as plain values. A name that is given twice is an error: YAML readers would drop the first value.

Does not know: what the values mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from draftproof.errors import InputError


def read_yaml(path: Path) -> Any:
    """The file's value. Raises InputError where it can't be read, or PyYAML is not installed."""
    try:
        import yaml  # of the optional dependency `serve`
    except ImportError:
        raise InputError("a policy file needs PyYAML: pip install 'draftproof[serve]'") from None

    def mapping(loader: Any, node: Any) -> Any:
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        names = [loader.construct_object(key, deep=True) for key in keys]
        twice = [name for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise yaml.YAMLError(f"{twice[0]!r} is given twice, from line {node.start_mark.line + 1} on")
        loader.flatten_mapping(node)
        return loader.construct_mapping(node, deep=True)

    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(path.read_text(encoding="utf-8"), loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"can't read the policy {path}: {' '.join(str(error).split())}") from None
