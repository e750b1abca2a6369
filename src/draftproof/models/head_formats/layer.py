"""The decoder layer of an EAGLE-3 head in the words of a transformers configuration (Llama), both ways.

Invariant: what is read computes here what it computes there; a layer that would compute something else is refused by
name, not read in part.

Source: the layer as vLLM 0.32 (models/llama_eagle3.py), SGLang (srt/models/llama_eagle3.py) and SafeAILab/EAGLE
(model/cnets.py) run it. Does not know: layer ids, vocabularies, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.eagle_config import EagleConfig, RopeScaling
from draftproof.models.head_formats.told import Told

_LLAMA_THETA, _LLAMA_EPS, _LLAMA_LENGTH = 10_000.0, 1e-6, 2048  # what a Llama configuration means by silence
_ROPE = ("rope_parameters", "rope_scaling")  # what transformers 5 and 4 call them
_SCALED_ROWS = ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text")
_ROW_SCALES = ("embedding_multiplier", "scale_emb", "emb_scale")


def read_layer(told: Told) -> dict[str, Any]:
    """The fields of an `EagleConfig` that the layer's configuration decides. Raises CorruptModel, UnsupportedModel."""
    told.must_be("model_type", "llama", "only heads made of a Llama layer can be run")
    told.must_be("num_hidden_layers", 1, "only heads of one layer can be run")
    told.must_be("hidden_act", "silu", "only heads with silu can be run")
    for name in ("attention_bias", "mlp_bias", "bias", "parallel_draft"):
        told.must_be(name, False, "only heads without it can be run")
    for name in ("partial_rotary_factor", "logit_scale"):
        told.must_be(name, 1.0, "only heads without it can be run")
    hidden, heads = told.integer("hidden_size"), told.integer("num_attention_heads")
    told.must_be("target_hidden_size", hidden, f"only heads as wide as their target ({hidden}) can be run")
    return {
        "hidden_size": hidden,
        "intermediate_size": told.integer("intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": told.integer("num_key_value_heads", heads),
        "head_dim": told.integer("head_dim", max(1, hidden // heads)),
        "vocab_size": told.integer("vocab_size"),
        "rope_theta": _theta(told),
        "rope_scaling": _scaling(told),
        "norm_eps": told.number("rms_norm_eps", _LLAMA_EPS),
        "max_len": told.integer("max_position_embeddings", _LLAMA_LENGTH),
    }


def write_layer(config: EagleConfig) -> dict[str, Any]:
    """The layer as a Llama configuration; rotary angles in the words of transformers 4 and 5."""
    scaling = {} if config.rope_scaling is None else config.rope_scaling.to_json()
    return {
        "model_type": "llama",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_theta": config.rope_theta} | (scaling or {"rope_type": "default"}),
        "max_position_embeddings": config.max_len,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": False,
    } | ({"rope_scaling": scaling} if scaling else {})


def check_rows(target: Mapping[str, Any]) -> None:
    """Raises UnsupportedModel for a target that scales its embedding: its rows mean something else in other engines.

    target: the values of its config.json.
    """
    kind = target.get("model_type")
    scale = next((name for name in _ROW_SCALES if target.get(name) not in (None, 1, 1.0)), None)
    if kind in _SCALED_ROWS or scale is not None:
        raise UnsupportedModel(
            f"heads for targets of type {kind!r} can't be taken over: the target scales its embedding rows"
            f"{f' ({scale})' if scale else ''}, draftproof's heads read them scaled, other engines' do not"
        )


def _theta(told: Told) -> float:
    """The base of rotary angles; angles that are neither plain nor of type "llama3" are refused."""
    found = set()
    for name in _ROPE:
        part, kind = told.part(name), _kind(told.part(name))
        if kind not in ("default", "llama3"):
            raise UnsupportedModel(
                f"{told.where} has {name} of type {kind!r}: only heads with plain or llama3 angles can be run"
            )
        part.must_be("partial_rotary_factor", 1.0, "only heads that turn all of each head can be run")
        if part.values.get("rope_theta") is not None:
            found.add(part.number("rope_theta"))
    if told.values.get("rope_theta") is not None:
        found.add(told.number("rope_theta"))
    if len(found) > 1:
        raise CorruptModel(f"{told.where} tells several bases of rotary angles: {sorted(found)}")
    return found.pop() if found else _LLAMA_THETA


def _scaling(told: Told) -> RopeScaling | None:
    """How the angles are stretched; None where they are plain."""
    parts = [told.part(name) for name in _ROPE]
    found = {_stretch(part) for part in parts if "rope_type" in part.values or "type" in part.values}
    if len(found) > 1:
        raise CorruptModel(f"{told.where} tells several kinds of rotary angles: keep those it was trained with")
    return found.pop() if found else None


def _stretch(part: Told) -> RopeScaling | None:
    if _kind(part) == "default":
        return None
    factor, low, high = (part.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    return RopeScaling(factor, low, high, part.integer("original_max_position_embeddings"))


def _kind(part: Told) -> Any:
    return part.values.get("rope_type", part.values.get("type", "default"))
