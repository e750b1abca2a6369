"""Input tensors that stay: what the graph reads is what was put last."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as op

from draftproof.models.feed import Feed


@pytest.fixture
def summed():
    """(request of a graph that gives a + b, [n, 3] each; ports; how often a tensor was handed in)."""
    a, b = (op.parameter(ov.PartialShape([-1, 3]), np.float32, name=name) for name in "ab")
    for node, name in ((a, "a"), (b, "b")):
        node.output(0).get_tensor().set_names({name})
    request = ov.compile_model(ov.Model([op.add(a, b)], [a, b]), "CPU").create_infer_request()
    ports = {next(iter(port.get_names())): port for port in request.model_inputs}

    class Counted:
        calls = 0

        def set_tensor(self, port, tensor):
            self.calls += 1
            request.set_tensor(port, tensor)

    return request, ports, Counted()


def _sum(request):
    request.infer()
    return request.get_output_tensor(0).data.copy()


def test_values_of_the_last_step_are_never_read_again(summed):
    request, ports, counted = summed
    feed, rng = Feed(counted, ports), np.random.default_rng(3)
    for rows in (2, 2, 4, 1, 1, 2):
        a, b = rng.random((2, rows, 3), np.float32)
        feed.put("a", a)
        feed.put("b", b)
        np.testing.assert_array_equal(_sum(request), a + b)
    assert counted.calls == 8  # two tensors for each change of shape


def test_rows_are_picked_and_the_rest_is_zero(summed):
    request, ports, counted = summed
    feed, lines = Feed(counted, ports), np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    feed.put("b", np.zeros((4, 3), np.float32))
    feed.put_rows("a", lines, np.array([2, 0, 1]), (4, 3))
    np.testing.assert_array_equal(_sum(request), [*lines[[2, 0, 1]], [0, 0, 0]])
    feed.put_rows("a", lines, np.array([1]), (4, 3))
    np.testing.assert_array_equal(_sum(request), [lines[1], *np.zeros((3, 3))])
    for _ in range(2):
        feed.put_rows("a", None, np.array([0, 1]), (4, 3))
        assert not _sum(request).any()
    feed.put_rows("a", lines, np.array([0]), (4, 3))
    assert _sum(request).any()
