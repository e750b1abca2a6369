"""The format of public EAGLE-3 checkpoints (`LlamaForCausalLMEagle3`), which SGLang and SafeAILab/EAGLE read.

Layer ids come in two conventions. `eagle_config.eagle_aux_hidden_state_layer_ids` is SGLang's, SpecForge's and
ModelOpt's: id i means the output of layer i, counted from 0, so the hidden states after i + 1 layers. The same name
outside `eagle_config` is vLLM's: after so many layers. Both are written, so that each engine finds its own; where both
are read, they must agree. Without ids every engine reads the states after (2, n // 2, n - 3) layers, in rising order.

Sources: SGLang (srt/models/llama_eagle3.py, set_eagle3_layers_to_capture), SafeAILab/EAGLE (model/cnets.py,
model/modeling_llama_kv.py), vLLM 0.32 (v1/worker/gpu_model_runner.py).
Does not know: tensors, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_formats.layer import read_layer, write_layer
from draftproof.models.head_formats.told import Told

_ARCHITECTURE, _IDS = "LlamaForCausalLMEagle3", "eagle_aux_hidden_state_layer_ids"


def is_it(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format."""
    named = values.get("architectures")
    architectures = named if isinstance(named, list) else []
    return any("eagle3" in str(name).lower() for name in architectures) or "draft_vocab_size" in values


def read(told: Told) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    """(fields of an `EagleConfig`, layer ids as draftproof counts or None). Raises CorruptModel, UnsupportedModel."""
    fields = read_layer(told)
    inner = told.part("eagle_config")
    for part in (told, inner):
        for name in ("norm_before_fc", "fc_norm", "norm_output", "use_mtp_layernorm", "parallel_drafting"):
            part.must_be(name, False, "only heads without it can be run")
        for name in ("use_aux_hidden_state", "use_last_layernorm", "use_input_layernorm_in_first_layer"):
            part.must_be(name, True, "only heads with it can be run")
    told.must_be("tie_word_embeddings", False, "its output rows would be its embedding")
    fields["norm_before_residual"] = told.flag("norm_before_residual", False)
    fields["draft_vocab_size"] = told.integer("draft_vocab_size", fields["vocab_size"])
    after, outputs = told.integers(_IDS), inner.integers(_IDS)
    ours = None if outputs is None else tuple(layer + 1 for layer in outputs)
    if after is not None and ours is not None and set(after) != set(ours):
        raise CorruptModel(
            f"{told.where} tells {_IDS} {list(after)} (after so many layers) and in eagle_config {list(outputs or ())} "
            "(output of these layers, from 0): they name different layers, keep the right one"
        )
    return fields, after or ours


def write(config: EagleConfig) -> dict[str, Any]:
    """config.json. Raises UnsupportedModel for a layer that SGLang would run as another one."""
    if config.norm_before_residual:
        raise UnsupportedModel("a head with norm_before_residual can't be written for SGLang, whose layer has no such")
    outputs = [layer - 1 for layer in config.feature_layers]
    return write_layer(config) | {
        "architectures": [_ARCHITECTURE],
        "draft_vocab_size": config.draft_vocab_size,
        "pad_token_id": 0,
        "eagle_config": {_IDS: outputs, "use_aux_hidden_state": True},
        _IDS: list(config.feature_layers),
    }
