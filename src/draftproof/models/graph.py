"""A saved placeholder graph -> a compiled model with paged attention over our own KV tensors.

Each placeholder becomes OpenVINO's paged-attention operation. What the layers share (past lengths, block tables,
masks) are parameters made once; keys and values are one parameter a layer and side. The operation's Python name has
an underscore: OpenVINO does not promise it, so the version is pinned and a test holds it.

Does not know: batches, sequences, transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import PartialShape, Type
from openvino import opset15 as op
from openvino.op import _PagedAttentionExtension

from draftproof.errors import CorruptModel

PAGE_SIZE = 32  # rows a page: fixed by the CPU kernel
# Activations that share a scale in int8 products. OpenVINO's default of 32 is 10 to 15 % slower; 128 and more cost
# closeness to the float32 weights (docs/LOG.md has the figures).
_GROUP = 64
# Prepared kernels that a compiled copy keeps for shapes that come again. OpenVINO's default of 5000 keeps every shape
# of hours, a quarter of a MiB for each width of a prompt, and is no faster (docs/LOG.md has the figures).
_KEPT_KERNELS = 128


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One attention layer: its score scale, sliding window (0: none) and head counts and widths."""

    scale: float
    window: int
    kv_heads: int
    dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """What attention.json says of a converted model."""

    layers: tuple[LayerShape, ...]
    vocab_size: int
    max_len: int
    features: int = 0  # width of the hidden states that come out beside the logits

    def page_bytes(self, precision: str) -> int:
        """Bytes of one page over all layers, keys and values; precision "f32" or "bf16"."""
        numbers = sum(PAGE_SIZE * layer.kv_heads * (layer.dim + layer.value_dim) for layer in self.layers)
        return numbers * (2 if precision == "bf16" else 4)


def read_info(folder: Path) -> GraphInfo:
    """attention.json of a converted model."""
    try:
        meta = json.loads((folder / "attention.json").read_text())
        layers = tuple(LayerShape(**layer) for layer in meta["layers"])
        return GraphInfo(layers, meta["vocab_size"], meta["max_len"], meta.get("features", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptModel(
            f"{folder} is not a whole converted model ({error}): run `draftproof cache clear`"
        ) from error


class _Parameters:
    """Graph inputs by name, made at first use and shared by all layers."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def get(self, name: str, kind: Any, shape: list[int]) -> Any:
        if name not in self.by_name:
            node = op.parameter(PartialShape(shape), kind, name=name)
            node.output(0).get_tensor().set_names({name})
            self.by_name[name] = node
        return self.by_name[name].output(0)


def _const(value: Any, kind: Any) -> Any:
    return op.constant(np.array(value, kind)).output(0)


def _paged_attention(number: int, layer: LayerShape, inputs: list[Any], shared: _Parameters) -> Any:
    """The operation with its 28 inputs; those for eviction, rotation and sparsity stay empty."""
    none_i, none_f = _const([], np.int32), _const([], np.float32)
    node = _PagedAttentionExtension(
        [
            *inputs,
            shared.get(f"key_cache.{number}", Type.dynamic, [-1] * 4),
            shared.get(f"value_cache.{number}", Type.dynamic, [-1] * 4),
            shared.get("past_lens", Type.i32, [-1]),
            shared.get("subsequence_begins", Type.i32, [-1]),
            shared.get("block_indices", Type.i32, [-1]),
            shared.get("block_indices_begins", Type.i32, [-1]),
            _const(layer.scale, np.float32),
            _const(layer.window, np.int32),
            none_f,  # ALiBi slopes
            shared.get("max_context_len", Type.i32, []),
            *(none_i, none_i, none_i, none_f, none_f, _const(0, np.int32), _const(0, np.int32)),
            *(_const(np.zeros((0, 0, 0, 0)), np.float32), _const(0, np.int32), none_i, none_i, none_i, none_i),
            shared.get("qq_bias", Type.u8, [-1]),
            shared.get("qq_bias_begins", Type.i32, [-1]),
        ]
    )
    info = node.get_rt_info()
    info["num_k_heads"] = info["num_v_heads"] = layer.kv_heads
    info["k_head_size"], info["v_head_size"] = layer.dim, layer.value_dim
    return node


def insert_attention(graph: Any, layers: tuple[LayerShape, ...]) -> Any:
    """Replaces every placeholder in place; raises CorruptModel where one is missing."""
    shared = _Parameters()
    nodes = {node.get_friendly_name(): node for node in graph.get_ops()}
    for number, layer in enumerate(layers):
        joined, out = nodes.get(f"paged_in_{number}"), nodes.get(f"paged_out_{number}")
        if joined is None or out is None:
            raise CorruptModel(f"the converted graph lacks attention layer {number}: run `draftproof cache clear`")
        node = _paged_attention(number, layer, [joined.input_value(i) for i in range(3)], shared)
        for target in list(out.output(0).get_target_inputs()):
            target.replace_source_output(node.output(0))
    graph.add_parameters(list(shared.by_name.values()))
    graph.validate_nodes_and_infer_types()
    return graph


def _wide_groups(graph: Any) -> bool:
    """True if int8 matrices are there and the inner width of each is a multiple of `_GROUP`."""
    stored = (node for node in graph.get_ops() if node.get_type_name() == "Constant")
    int8 = [node for node in stored if node.get_output_element_type(0) in (Type.u8, Type.i8)]
    widths = [shape[-1] for shape in (node.get_output_shape(0) for node in int8) if len(shape) == 2 and shape[-1] > 1]
    return bool(widths) and all(width % _GROUP == 0 for width in widths)


def compile_graph(folder: Path, info: GraphInfo, precision: str, threads: int | None) -> Any:
    """Reads, inserts attention and compiles for the CPU. precision: "f32" or "bf16", of arithmetic and KV."""
    core = ov.Core()
    try:
        graph = core.read_model(folder / "graph.xml")
    except RuntimeError as error:
        raise CorruptModel(f"{folder}/graph.xml can't be read: run `draftproof cache clear`") from error
    hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": precision, "KV_CACHE_PRECISION": precision}
    hints["CPU_RUNTIME_CACHE_CAPACITY"] = str(_KEPT_KERNELS)
    if _wide_groups(graph):
        hints["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _GROUP
    if threads is not None:
        hints["INFERENCE_NUM_THREADS"] = threads
    return core.compile_model(insert_attention(graph, info.layers), "CPU", hints)
