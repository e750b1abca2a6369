"""The target's embedding and output rows, read from its folder without the rest of it.

Does not know: heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftproof.errors import UnsupportedModel
from draftproof.models import folder as folders
from draftproof.models.head_formats.folder import Weights, find_weights

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TargetRows:
    """[V, H] each; one and the same where the target ties them."""

    embedding: Tensor
    output: Tensor


def target_rows(folder: Path) -> TargetRows:
    """Of a Hugging Face folder. Raises CorruptModel, or UnsupportedModel where they can't be told by their names."""
    config = folders.read_config(folder)
    weights = find_weights(folder)
    inward, outward = _only(weights, "embed_tokens.weight"), _only(weights, "lm_head.weight")
    if inward is None or (outward is None and not config.get("tie_word_embeddings", True)):
        raise UnsupportedModel(
            f"{folder}: the embedding and output rows of models of type {config.get('model_type')!r} are not found by "
            "name (embed_tokens, lm_head)"
        )
    found = weights.only({name for name in (inward, outward) if name is not None}).load()
    tied = bool(config.get("tie_word_embeddings", outward is None))
    return TargetRows(found[inward], found[inward if outward is None or tied else outward])


def _only(weights: Weights, ending: str) -> str | None:
    found = [name for name in weights.shapes if name == ending or name.endswith(f".{ending}")]
    return found[0] if len(found) == 1 else None
