"""The format of vllm-project/speculators (`speculators_model_type: eagle3`), which vLLM serves as it is.

A layer id k means the target's hidden states after k layers (0: the embedding), as it does here. vLLM sorts the ids, so
`fc` reads the states in rising order whatever order they are told in. Without ids it reads (2, n // 2, n - 3).

Sources: speculators 0.9 (models/eagle3/{config,core,model_definitions}.py), vLLM 0.32
(transformers_utils/configs/speculators, models/interfaces.py: EagleModelMixin).
Does not know: tensors, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_formats.layer import read_layer, write_layer
from draftproof.models.head_formats.told import Told

_KIND = "speculators_model_type"


def is_it(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, whatever kind of head it holds."""
    return _KIND in values


def read(told: Told) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    """(fields of an `EagleConfig`, layer ids as draftproof counts or None). Raises CorruptModel, UnsupportedModel."""
    kind = told.values[_KIND]
    if kind != "eagle3":
        raise UnsupportedModel(f"{told.where} is of the kind {kind!r}: of speculators' heads only 'eagle3' can be run")
    for name in ("norm_before_fc", "fc_norm", "norm_output"):
        told.must_be(name, False, "only heads without it can be run")
    fields = read_layer(told.part("transformer_layer_config"))
    hidden = fields["hidden_size"]
    told.must_be("target_hidden_size", hidden, f"only heads as wide as their target ({hidden}) can be run")
    if told.values.get("norm_before_residual") is None:
        raise CorruptModel(
            f"{told.where} does not tell norm_before_residual, which speculators takes for false and vLLM for true: "
            "write into it what the head was trained with"
        )
    fields["norm_before_residual"] = told.flag("norm_before_residual", False)
    fields["draft_vocab_size"] = told.integer("draft_vocab_size", fields["vocab_size"])
    return fields, told.integers("eagle_aux_hidden_state_layer_ids")


def write(config: EagleConfig, name: str, architectures: list[str], draft_tokens: int) -> dict[str, Any]:
    """config.json. name, architectures: of the target; vLLM serves it by this name when given the head's folder alone.

    draft_tokens: how many it drafts a round unless the server says otherwise.
    """
    method = {"proposal_type": "greedy", "speculative_tokens": draft_tokens}
    return {
        "architectures": ["Eagle3Speculator"],
        _KIND: "eagle3",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [method | {"verifier_accept_k": 1, "accept_tolerance": 0.0}],
            "verifier": {"name_or_path": name, "architectures": architectures},
        },
        "transformer_layer_config": write_layer(config),
        "draft_vocab_size": config.draft_vocab_size,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": False,
        "embed_requires_grad": False,
        "eagle_aux_hidden_state_layer_ids": list(config.feature_layers),
    }
