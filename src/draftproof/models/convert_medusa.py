"""Medusa heads -> an OpenVINO graph: hidden states [B, H] -> logits [B, K, Vd]. No attention, no placeholder.

Runs in the converter's process, as a part of `models/convert.py`.
Does not know: files of graphs, compression.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openvino as ov
import torch

from draftproof.models.eagle_config import CONFIG
from draftproof.models.head_files import load_medusa
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import KIND


class _WithRows(torch.nn.Module):
    """Heads with the target's output rows of their draft ids."""

    def __init__(self, heads: MedusaHeads, model: Any) -> None:
        super().__init__()
        self.heads = heads
        rows = model.get_output_embeddings().weight.detach()[heads.draft_ids]
        self.output = torch.nn.Parameter(rows.clone(), requires_grad=False)

    def forward(self, states: Any) -> Any:
        """[B, H] -> [B, K, Vd]."""
        return self.heads(states, self.output)


def load(folder: Path) -> MedusaHeads | None:
    """The heads in a folder; None where it holds another kind. Raises ModelNotFound or CorruptModel."""
    try:
        kind = json.loads((folder / CONFIG).read_text())["kind"]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # whoever reads it as another kind says what is wrong
    return load_medusa(folder) if kind == KIND else None


def build(heads: MedusaHeads, model: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The graph, and the attention layers it has: none."""
    example = torch.ones(3, heads.config.hidden_size)
    with torch.inference_mode():
        graph = ov.convert_model(_WithRows(heads, model).eval(), example_input=example, input=[[-1, example.shape[1]]])
    graph.inputs[0].get_tensor().set_names({"states"})
    graph.outputs[0].get_tensor().set_names({"logits"})
    return graph, []
