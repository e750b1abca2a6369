"""What a model is, in the numbers that memory and price depend on: parameters, layers, key-value heads, limits.

Parameters are counted from the headers of the weight files; no weight is read. Of an early exit only the layers that
run are counted, with embedding and head. Of a draft head its own are, and the output rows of its draft vocabulary,
which engines keep packed together beside the target's; the embedding is the target's, unless the head brings one.
`engine_bytes` is what it takes in this engine, which gives it a copy of the embedding as well.

Invariant: what the files do not say is None, never a guess.
Does not know: runs, engines that run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draftproof.engine.build import Built
from draftproof.errors import CorruptModel
from draftproof.models import folder as folders
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_source import SHIPPED, HeadSource, MedusaSource
from draftproof.models.source import ModelSource, resolve
from draftproof.protocols import Target

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|blk)\.(\d+)\.")
_BUFFERS = ("rope_freqs", "inv_freq")  # tables, no parameters
_TABLES = ("d2t", "t2d")  # of draft ids, likewise


def describe_target(built: Built) -> dict[str, Any]:
    """MODEL of run.json: of the target."""
    return _model(resolve(built.info["model"]), built, built.engine.target, built.folder, None)


def describe_drafter(built: Built) -> dict[str, Any] | None:
    """MODEL of run.json: of the drafter's own model; None where it has none."""
    draft = built.draft
    if draft is not None and draft.head is not None:
        return _head(draft.head, built)
    if draft is None or draft.target is None:
        return None
    return _model(draft.source, built, draft.target, draft.folder, draft.num_layers) | {"weights": draft.weights}


def _model(
    source: ModelSource, built: Built, target: Target, folder: Path | None, num_layers: int | None
) -> dict[str, Any]:
    """num_layers: of an early exit, else None."""
    config = _config(folder)
    heads, hidden = _int(config, "num_attention_heads", "n_head"), _int(config, "hidden_size", "n_embd")
    return {
        "name": source.name,
        "weights": built.info["weights"],
        "backend": built.info["backend"],
        "numerics": target.numerics,
        "parameters": count_parameters(source, num_layers),
        "num_layers": num_layers if num_layers is not None else _int(config, "num_hidden_layers", "n_layer"),
        "hidden_size": hidden,
        "num_kv_heads": _int(config, "num_key_value_heads") or heads,
        "head_dim": _int(config, "head_dim") or (hidden // heads if hidden and heads else None),
        "vocab_size": target.vocab_size,
        "max_len": target.max_len,
    }


def _head(found: HeadSource | MedusaSource, built: Built) -> dict[str, Any]:
    """MODEL of a draft head. path: its folder as it was given; None for the one that ships, whose name says which."""
    config, draft = found.config, built.draft
    assert draft is not None
    is_shipped, graph = found.folder.parent == SHIPPED, draft.folder / "graph.bin"
    has_cache = isinstance(config, EagleConfig)
    return {
        "name": found.folder.name if is_shipped else str(found.folder),
        "path": None if is_shipped else str(found.folder),
        "weights": built.info["weights"],
        "backend": built.info["backend"],
        "numerics": getattr(draft.target, "numerics", "invariant"),  # heads without a cache have rows apart
        "parameters": head_parameters(found),
        "engine_bytes": graph.stat().st_size if graph.is_file() else None,
        "num_layers": int(has_cache),
        "hidden_size": config.hidden_size,
        "num_kv_heads": config.num_kv_heads if isinstance(config, EagleConfig) else 0,
        "head_dim": config.head_dim if isinstance(config, EagleConfig) else 0,
        "vocab_size": config.draft_vocab_size,
        "max_len": config.max_len,
    }


def head_parameters(found: HeadSource | MedusaSource) -> int | None:
    """Of a draft head, the output rows of its draft vocabulary included; None where its files don't say."""
    sizes = {name: size for name, size in _safetensors_sizes(found.folder) if not name.endswith(_TABLES)}
    if not sizes:
        return None
    own = found.config.own_output or any("lm_head" in name for name in sizes)
    return sum(sizes.values()) + (0 if own else found.config.draft_vocab_size * found.config.hidden_size)


def _config(folder: Path | None) -> dict[str, Any]:
    try:
        return {} if folder is None else folders.read_config(folder)
    except CorruptModel:
        return {}


def _int(config: dict[str, Any], *names: str) -> int | None:
    values = (config.get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def count_parameters(source: ModelSource, num_layers: int | None = None) -> int | None:
    """Parameters of the first num_layers layers (None: of all) and of everything else; None where files don't say."""
    sizes = dict(_gguf_sizes(source.path) if source.kind == "gguf" else _safetensors_sizes(source.path))
    if not sizes:
        return None
    return sum(size for name, size in sizes.items() if _counts(name, num_layers))


def _counts(name: str, num_layers: int | None) -> bool:
    layer = _LAYER.search(name)
    cut_off = num_layers is not None and layer is not None and int(layer[1]) >= num_layers
    return not cut_off and not any(buffer in name for buffer in _BUFFERS)


def _gguf_sizes(path: Path) -> Iterator[tuple[str, int]]:
    from gguf import GGUFReader  # a tenth of a second to import, for models of this kind only

    for tensor in GGUFReader(path).tensors:
        yield tensor.name, int(tensor.n_elements)


def _safetensors_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """A file begins with the length of its header, eight bytes little-endian, and the header in JSON."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                yield name, math.prod(entry["shape"])
