"""What Medusa heads are, on disk: their shapes, and which target they were made for.

The folder holds config.json and model.safetensors, as an EAGLE head's does. Heads of another target are refused before
they run, by the same check and in the same words.

Does not know: torch, weights, how heads are trained or run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from draftproof.errors import CorruptModel, ModelNotFound
from draftproof.models.eagle_config import CONFIG, WEIGHTS

KIND = "medusa"


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """Shapes of the heads. num_heads: how many tokens ahead they see. num_layers: residual blocks of each."""

    hidden_size: int
    num_heads: int
    num_layers: int
    vocab_size: int  # the target's
    draft_vocab_size: int
    target_layers: int
    max_len: int
    tokenizer: str | None = None  # `vocabulary_hash` of the target
    own_output: bool = False  # output rows of its own for each head, not the target's

    @classmethod
    def of_target(
        cls, config: Any, num_heads: int = 4, draft_vocab_size: int = 8192, num_layers: int = 1
    ) -> MedusaConfig:
        """The heads that suit a target's configuration (a transformers object)."""
        return cls(
            hidden_size=int(config.hidden_size),
            num_heads=num_heads,
            num_layers=num_layers,
            vocab_size=int(config.vocab_size),
            draft_vocab_size=min(draft_vocab_size, int(config.vocab_size)),
            target_layers=int(config.num_hidden_layers),
            max_len=int(config.max_position_embeddings),
        )

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """After how many of the target's layers its hidden states are taken: all, so behind the last norm."""
        return (self.target_layers,)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": KIND} | asdict(self)


def read_medusa_config(folder: Path) -> MedusaConfig:
    """The heads in a folder. Raises ModelNotFound or CorruptModel."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ModelNotFound(
            f"{folder} holds no Medusa heads ({CONFIG} and {WEIGHTS}): make them with `draftproof train medusa`"
        )
    try:
        values = json.loads((folder / CONFIG).read_text())
        kind = values.get("kind")
        config = MedusaConfig(**{name: values[name] for name in _NAMES if name in values}) if kind == KIND else None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CorruptModel(f"{folder}/{CONFIG} can't be read: get the draft heads again ({error})") from error
    if config is None:
        raise CorruptModel(f"{folder}/{CONFIG} is not of Medusa heads (its kind is {kind!r})")
    if min(config.num_heads, config.num_layers, config.hidden_size, config.draft_vocab_size) < 1:
        raise CorruptModel(f"{folder}/{CONFIG} describes no heads: every size must be at least 1")
    return config


_NAMES = tuple(field.name for field in fields(MedusaConfig))
