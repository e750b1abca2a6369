"""Joined products say what the single ones said, and only true siblings are joined."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as op

from draftproof.models.fuse import fuse_siblings
from draftproof.models.graph import _wide_groups

RNG = np.random.default_rng(3)


def weights(rows: int, columns: int, kind: type = np.float32) -> object:
    return op.constant(RNG.normal(size=(rows, columns)).astype(kind))


def results(graph: ov.Model, *inputs: np.ndarray) -> list[np.ndarray]:
    compiled = ov.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(value) for value in compiled(list(inputs)).values()]


@pytest.mark.parametrize("transposed", [False, True])
def test_siblings_become_one_product_with_the_same_columns(transposed: bool) -> None:
    x = op.parameter([-1, 24], np.float32)
    sizes = (32, 8, 8)
    outs = [op.matmul(x, weights(n, 24) if transposed else weights(24, n), False, transposed) for n in sizes]
    graph = ov.Model([op.result(op.relu(out)) for out in outs], [x], "siblings")
    given = RNG.normal(size=(5, 24)).astype(np.float32)
    before = results(graph, given)
    assert fuse_siblings(graph) == 1
    assert [node.get_type_name() for node in graph.get_ops()].count("MatMul") == 1
    after = results(graph, given)
    assert [part.shape for part in after] == [(5, n) for n in sizes]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-6)


def test_others_stay_as_they_are() -> None:
    x, y = op.parameter([-1, 16], np.float32), op.parameter([-1, 16], np.float32)
    products = [
        op.matmul(x, weights(16, 8), False, False),
        op.matmul(x, weights(8, 16), False, True),  # the other side transposed
        op.matmul(y, weights(16, 8), False, False),  # another input
        op.matmul(x, op.transpose(y, op.constant(np.array([1, 0]))), False, False),  # no constant
    ]
    graph = ov.Model([op.result(product) for product in products], [x, y], "strangers")
    assert fuse_siblings(graph) == 0
    assert [node.get_type_name() for node in graph.get_ops()].count("MatMul") == 4


def test_wide_quantisation_groups_need_every_matrix_to_fit() -> None:
    def graph(*widths: int) -> ov.Model:
        parts = []
        for width in widths:
            stored = op.constant(np.ones((4, width), np.uint8))
            parts.append(op.result(op.convert(stored, "f32")))
        return ov.Model(parts, [], "stored")

    assert _wide_groups(graph(64, 128))
    assert not _wide_groups(graph(64, 96))
    assert not _wide_groups(ov.Model([op.result(weights(4, 64))], [], "float"))
