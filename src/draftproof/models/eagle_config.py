"""What an EAGLE head is, on disk: its shapes, and which target it was made for.

A head's folder holds config.json and model.safetensors. A head of another target is refused before it runs, with the
difference named: hidden size, vocabulary, layers, and the strings of the vocabulary.

Does not know: torch, weights, how a head is trained or run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from draftproof.errors import CorruptModel, DraftproofError, ModelNotFound, PairingError, UnsupportedModel

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KIND = "eagle3"
_SELDOM = ("norm_before_residual", "own_output", "own_embedding", "rope_scaling")
_LLAMA3 = "llama3"


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rotary angles of type "llama3": waves longer than the text seen in training are stretched by `factor`.

    A wave counts as long where fewer than `low_freq_factor` of it fit into `original_max_len`, as short where more than
    `high_freq_factor` do; between the two the stretch fades in.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int

    def __post_init__(self) -> None:
        low, high = self.low_freq_factor, self.high_freq_factor
        if not all(0 < value < math.inf for value in (self.factor, low, high, self.original_max_len)):
            raise CorruptModel(f"the draft head has llama3 angles of {self}: all numbers must be above 0")
        if high <= low:
            raise CorruptModel(
                f"the draft head has llama3 angles with high_freq_factor {high} and low_freq_factor {low}: the first "
                "must be the larger one"
            )

    def to_json(self) -> dict[str, Any]:
        """In the words of transformers."""
        return {
            "rope_type": _LLAMA3,
            "factor": self.factor,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_position_embeddings": self.original_max_len,
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> RopeScaling:
        """Raises UnsupportedModel for angles of another type, KeyError, TypeError or ValueError for no numbers."""
        kind = values["rope_type"]
        if kind != _LLAMA3:
            raise UnsupportedModel(f"the head has rotary angles of type {kind!r}: only plain or llama3 ones can run")
        factor, low, high = (float(values[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
        return cls(factor, low, high, int(values["original_max_position_embeddings"]))


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """Shapes of a head. `feature_layers`: after how many of the target's layers its hidden states are taken."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # the target's
    draft_vocab_size: int
    feature_layers: tuple[int, ...]
    target_layers: int
    rope_theta: float
    norm_eps: float
    max_len: int
    tokenizer: str | None = None  # `vocabulary_hash` of the target
    norm_before_residual: bool = False  # the layer adds to the normed hidden state, not to the state itself
    own_output: bool = False  # output rows of its own, not the target's
    own_embedding: bool = False  # an embedding of its own, not the target's
    rope_scaling: RopeScaling | None = None  # None: plain angles

    @classmethod
    def of_target(
        cls, config: Any, feature_layers: tuple[int, ...] | None = None, draft_vocab_size: int = 8192
    ) -> EagleConfig:
        """The head that suits a target's configuration (a transformers object).

        Its angles are plain ones of the target's base, whatever the target's are: a head reads no key of the target.
        """
        layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        rope = getattr(config, "rope_parameters", None) or {}
        return cls(
            hidden_size=int(config.hidden_size),
            intermediate_size=int(config.intermediate_size),
            num_heads=heads,
            num_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            vocab_size=int(config.vocab_size),
            draft_vocab_size=min(draft_vocab_size, int(config.vocab_size)),
            feature_layers=feature_layers or default_layers(layers),
            target_layers=layers,
            rope_theta=float(rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0),
            norm_eps=float(getattr(config, "rms_norm_eps", 1e-5)),
            max_len=int(config.max_position_embeddings),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; what most heads have not is told only where it is so."""
        values = {name: value for name, value in asdict(self).items() if value or name not in _SELDOM}
        if self.rope_scaling is not None:
            values["rope_scaling"] = self.rope_scaling.to_json()
        return {"kind": KIND} | values | {"feature_layers": list(self.feature_layers)}


def default_layers(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and a high depth."""
    return (max(1, num_layers // 10), max(1, num_layers // 2), max(1, num_layers - 1))


def read_config(folder: Path) -> EagleConfig:
    """The head in a folder. Raises ModelNotFound, CorruptModel or UnsupportedModel."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ModelNotFound(f"{folder} holds no draft head ({CONFIG} and {WEIGHTS}): make one with `draftproof train`")
    try:
        values = json.loads((folder / CONFIG).read_text())
        if values.get("kind") != KIND:
            raise CorruptModel(f"{folder}/{CONFIG} is not of an EAGLE head (its kind is {values.get('kind')!r})")
        known = {field.name for field in fields(EagleConfig)}
        chosen = {name: value for name, value in values.items() if name in known}
        if (scaling := chosen.get("rope_scaling")) is not None:
            chosen["rope_scaling"] = RopeScaling.of_json(scaling)
        return EagleConfig(**chosen | {"feature_layers": tuple(int(layer) for layer in values["feature_layers"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DraftproofError):
            raise
        raise CorruptModel(f"{folder}/{CONFIG} can't be read: get the draft head again ({error})") from error


def check_teachable(target: Mapping[str, Any]) -> None:
    """Raises UnsupportedModel, before any text is written, for a target whose shapes a head can't take over.

    target: the values of its config.json.
    """
    for name, words in (("rms_norm_eps", "RMS norms"), ("intermediate_size", "a gated feed-forward part")):
        if name not in target:
            raise UnsupportedModel(
                f"no head can be trained for models of type {target.get('model_type')!r} yet: a head is a layer "
                f"with {words} and rotary positions (Llama, Mistral, Qwen, SmolLM, ...)"
            )


class MadeFor(Protocol):
    """What the configuration of any draft head tells of its target."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def target_layers(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def tokenizer(self) -> str | None: ...


def check_target(head: MadeFor, target: Mapping[str, Any], vocabulary: Mapping[str, int] | None = None) -> None:
    """Raises PairingError, which names the difference, unless the head was made for this target.

    target: the values of its config.json; vocabulary: token -> id.
    """
    pairs = (
        ("hidden_size", head.hidden_size, "a hidden size of {}"),
        ("num_hidden_layers", head.target_layers, "{} layers"),
        ("vocab_size", head.vocab_size, "a vocabulary of {}"),
    )
    for name, ours, words in pairs:
        theirs = target.get(name)
        if theirs != ours:
            raise PairingError(
                f"the draft head was made for a target with {words.format(ours)}, this one has {theirs}: "
                "train a head for this target with `draftproof train`"
            )
    if vocabulary is not None and head.tokenizer not in (None, vocabulary_hash(vocabulary)):
        raise PairingError(
            "the draft head was made for a target with another tokenizer (the strings of some ids differ): "
            "train a head for this target with `draftproof train`"
        )


def vocabulary_hash(vocabulary: Mapping[str, int]) -> str:
    """Of all tokens with their ids; hexadecimal."""
    total = hashlib.sha256()
    for token, number in sorted(vocabulary.items(), key=lambda pair: (pair[1], pair[0])):
        total.update(f"{number}:{token}\n".encode("utf-8", "surrogatepass"))
    return total.hexdigest()[:32]


def head_files(folder: Path) -> list[Path]:
    """The files whose content decides what the head is, whoever wrote it."""
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json"), *folder.glob("*.bin")]
    return [folder / CONFIG, *sorted(weights)]
