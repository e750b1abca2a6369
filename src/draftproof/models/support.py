"""Which models can be run exactly, and why another can't: a refusal by name, before any weight is read.

Exactness needs that a row's state lies wholly in keys and values we keep, so that dropping rows *is* rolling back.
Facts are taken from the config and from transformers' model class; a sliding window is fine, because our pages keep
every row and a window is a mask. What the facts can't show, the torch target proves by numbers at construction
(`probe.py`).

Invariant: `check_supported` returns only for a model none of the reasons holds for; the message has the model's type.

Does not know: weights, devices, how attention is computed.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from draftproof.errors import InvalidParams, UnsupportedModel

Backend = Literal["torch", "openvino"]

_PLAIN_LAYERS = {"full_attention", "sliding_attention"}
# Arguments a layer gives its attention function that change the result, and that neither backend implements.
_EXTRA_TERMS = re.compile(r"attention_interface\([^()]*?\b(s_aux|sinks|position_bias|indices|block_indices)=")


def check_supported(config: Any, model_class: type | None = None, backend: Backend = "torch") -> None:
    """Raises UnsupportedModel, naming the model type and the reason, if this model can't be run exactly.

    config: a transformers config; model_class: its causal language model class, looked up when None.
    """
    checks: list[Callable[[Any], str | None]] = [_layer_reason, _mask_reason]
    if backend == "openvino":
        checks.append(_openvino_reason)
    reason = _class_reason(config, model_class or _causal_class(config))
    reason = reason or next(filter(None, (check(config.get_text_config()) for check in checks)), None)
    if reason:
        raise UnsupportedModel(f"models of type {config.model_type!r} can't be run exactly: {reason}")


def cut_layers(config: Any, num_layers: int | None) -> Any:
    """Cuts a config, in place, to its first `num_layers` layers (None: all), per-layer lists included; returns it."""
    text = config.get_text_config()
    total = text.num_hidden_layers
    if num_layers is None:
        return config
    if not 1 <= num_layers <= total:
        raise InvalidParams(f"a model of {total} layers can't be cut to {num_layers}: ask for 1 to {total}")
    return pick_layers(config, range(num_layers))


def pick_layers(config: Any, layers: Sequence[int]) -> Any:
    """Leaves a config, in place, these of its layers (numbers from 0), per-layer lists included; returns it."""
    text = config.get_text_config()
    total = text.num_hidden_layers
    text.num_hidden_layers = len(layers)
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == total and "layer" in name:
            setattr(text, name, [value[layer] for layer in layers])
    return config


def context_limit(config: Any) -> int | None:
    """The longest sequence whose rows do not depend on the length of others, or None where the config names none.

    Dynamic and long-range rotary embeddings change all rows of a forward once any position passes the original
    length, so such models stop there.
    """
    text = config.get_text_config()
    stretched = [rope for rope in _rope_settings(text) if rope.get("rope_type") in ("dynamic", "longrope")]
    limits = [getattr(text, "max_position_embeddings", None)]
    limits += [rope.get("original_max_position_embeddings") for rope in stretched]
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else None


def _causal_class(config: Any) -> type | None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    found: type | tuple[type, ...] | None = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


def _class_reason(config: Any, model_class: type | None) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder-decoder; only decoder-only models can be run"
    if model_class is None:
        return "transformers has no causal language model class for it"
    if getattr(model_class, "_is_stateful", False):
        return "it has recurrent state, which can't be rewound after a rejected draft"
    try:
        source = inspect.getsource(sys.modules[model_class.__module__])
    except (OSError, TypeError, KeyError):
        return None  # code made at run time: the probe of the torch target judges it
    if "ALL_ATTENTION_FUNCTIONS" not in source and re.search(r"^class \w*Attention\w*\(", source, re.MULTILINE):
        return "its attention does not go through transformers' attention interface (ALiBi and older models)"
    extra = _EXTRA_TERMS.search(source)
    if extra:
        return f"its attention has a term of its own ({extra.group(1)}: sinks, biases or selected keys)"
    return None


def _layer_reason(text: Any) -> str | None:
    kinds = set(getattr(text, "layer_types", None) or ()) - _PLAIN_LAYERS
    if kinds:
        return f"it has layers of kind {', '.join(sorted(kinds))}, whose state can't be rewound row by row"
    return None


def _mask_reason(text: Any) -> str | None:
    if getattr(text, "alibi", False) or getattr(text, "position_embedding_type", None) == "alibi":
        return "it uses ALiBi position biases"
    if getattr(text, "use_bidirectional_attention", False):
        return "its attention looks ahead (use_bidirectional_attention)"
    if getattr(text, "attention_chunk_size", None):
        return "it attends in chunks (attention_chunk_size)"
    return None


def _openvino_reason(text: Any) -> str | None:
    if getattr(text, "attn_logit_softcapping", None):
        return "the openvino backend has no soft-capped attention scores; use the torch backend"
    if "kv_lora_rank" in vars(text):
        return "the openvino backend needs keys and values of the same size (no latent attention)"
    per_layer = [name for name in ("num_key_value_heads", "num_attention_heads", "head_dim") if _varies(text, name)]
    if per_layer:
        return f"the openvino backend needs the same {per_layer[0]} in every layer; use the torch backend"
    return None


def _varies(text: Any, name: str) -> bool:
    """Whether this number differs between layers; transformers raises on reading a per-layer number globally."""
    try:
        value = getattr(text, name, None)
    except (AttributeError, ValueError, RuntimeError):
        return True
    other = getattr(text, f"global_{name}", None) or getattr(text, f"num_global_{name.removeprefix('num_')}", None)
    return isinstance(value, (list, tuple)) or (other is not None and other != value)


def _rope_settings(text: Any) -> Iterator[Mapping[str, Any]]:
    """The config's rotary settings: one mapping, or one for each kind of layer."""
    found = getattr(text, "rope_parameters", None)
    if not isinstance(found, Mapping):
        return
    nested = [value for value in found.values() if isinstance(value, Mapping)]
    yield from nested or [found]
