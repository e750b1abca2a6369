"""The input tensors of one compiled copy of a graph, kept from step to step.

A tensor handed in anew costs a step of a small graph as much as a tenth of its time. So tensors stay where they are and
only their values are written, as long as a step has the shapes of the step before: lanes see to that.

Invariant: what the graph reads is what was put last, whole.
Does not know: what inputs mean, lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray


class Feed:
    """Inputs of one request. ports: by name."""

    def __init__(self, request: Any, ports: Mapping[str, Any]) -> None:
        self._request, self._ports = request, ports
        self._kept: dict[str, NDArray[Any]] = {}
        self._blank: set[str] = set()  # of them, those that hold zeros

    def put(self, name: str, array: NDArray[Any]) -> None:
        """The input's values, of any shape."""
        self._room(name, array.shape)[...] = array
        self._blank.discard(name)

    def put_rows(self, name: str, array: NDArray[Any] | None, rows: NDArray[np.int64], shape: tuple[int, int]) -> None:
        """These rows of an array, zeros behind them; None is zeros alone. shape: of the input."""
        room = self._room(name, shape)
        if array is not None:
            room[: len(rows)] = array[rows]
            room[len(rows) :] = 0
            self._blank.discard(name)
        elif name not in self._blank:
            room[...] = 0
            self._blank.add(name)

    def _room(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        room = self._kept.get(name)
        if room is None or room.shape != shape:
            port = self._ports[name]
            tensor = ov.Tensor(port.element_type, ov.Shape(shape))
            room = self._kept[name] = tensor.data
            self._request.set_tensor(port, tensor)
            self._blank.discard(name)
        return room
