"""Matrix products of one input, joined: query, key and value in one product, gate and up in another.

A product over few rows costs little arithmetic and much set-up: its activations are quantised, its threads are called
together. Sibling products (same input, constant weights, same side transposed) become one product over joined output
columns and a split. Each output column is computed as before, so nothing is rounded anew by definition; what the
kernels make of a wider matrix is covered by the proof at conversion and the self-check at load.

Does not know: which products are queries, keys or gates; attention; compression (it comes after).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from openvino import opset15 as op


def fuse_siblings(graph: Any) -> int:
    """Joins sibling products in place; returns how many joined products there are now."""
    families = [nodes for nodes in _families(graph).values() if len(nodes) > 1]
    for nodes in families:
        _join(nodes)
    graph.validate_nodes_and_infer_types()
    return len(families)


def _families(graph: Any) -> dict[tuple[Any, ...], list[Any]]:
    """Products with constant matrices [., .], by what they read and how."""
    families: dict[tuple[Any, ...], list[Any]] = {}
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul" or node.get_attributes()["transpose_a"]:
            continue
        weights = node.input_value(1).get_node()
        if weights.get_type_name() != "Constant" or len(weights.get_output_shape(0)) != 2:
            continue
        source = node.input_value(0)
        read = (source.get_node().get_friendly_name(), source.get_index())
        how = (node.get_attributes()["transpose_b"], str(weights.get_output_element_type(0)))
        families.setdefault((*read, *how), []).append(node)
    return families


def _join(nodes: list[Any]) -> None:
    """One product in the place of several; each reader gets its own columns."""
    transposed = bool(nodes[0].get_attributes()["transpose_b"])
    axis = 0 if transposed else 1
    matrices = [node.input_value(1).get_node().get_data() for node in nodes]
    joined = op.matmul(nodes[0].input_value(0), op.constant(np.concatenate(matrices, axis)), False, transposed)
    joined.set_friendly_name("+".join(node.get_friendly_name() for node in nodes))
    widths = np.array([matrix.shape[axis] for matrix in matrices], np.int64)
    parts = op.variadic_split(joined, op.constant(np.int64(-1)), op.constant(widths))
    for index, node in enumerate(nodes):
        for reader in list(node.output(0).get_target_inputs()):
            reader.replace_source_output(parts.output(index))
