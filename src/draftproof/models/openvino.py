"""The CPU target: OpenVINO paged attention over our own pages, one flat ragged forward a step.

Numerics. Under "invariant" a row's logits do not depend on what else is in the step, bit for bit: `flat.py` shows each
row after the prompt to attention as a sequence of its own, prompt rows together, and never runs a product of one row;
each branch of a tree runs as a forked sequence (`forks.py`). `selfcheck.py` proves it on the machine and model at hand.
Under "fast" a lone row is not doubled, and trees go as one masked sequence.

Rolling back is saying a smaller past length. Logits are views of OpenVINO's output memory: valid until the next step.

Does not know: sampling, drafters, scheduling, text, torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from draftproof.errors import InputError
from draftproof.kv.pages import PagedStore
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.feed import Feed
from draftproof.models.flat import layout, padded
from draftproof.models.forks import Forks
from draftproof.models.graph import PAGE_SIZE, GraphInfo, compile_graph, read_info
from draftproof.models.lanes import Lanes
from draftproof.rules.host import HostLogits
from draftproof.types import Moves, Numerics, Slots, StepBatch, TargetOutput

Lines = tuple[NDArray[np.float32] | None, int]


class OpenVINOTarget:
    """A converted model (folder with graph.xml and attention.json), compiled, with its KV pages.

    kv_bytes: the memory budget of keys and values; scratch_pages of it are set aside for the branches of trees.
    precision: "f32" or "bf16", of arithmetic and KV. threads: None leaves it to OpenVINO (all cores).
    lanes: compiled copies of the graph, each with its weights, so that steps of changing width find theirs ready.
    """

    page_size = PAGE_SIZE

    def __init__(
        self,
        folder: Path,
        *,
        kv_bytes: int,
        numerics: Numerics = "invariant",
        precision: str = "f32",
        threads: int | None = None,
        scratch_pages: int = 0,
        lanes: int = 1,
    ) -> None:
        self.info: GraphInfo = read_info(folder)
        self.vocab_size = self.info.vocab_size
        self.max_len = self.info.max_len
        self.weight_bytes = self._bytes_read((folder / "graph.bin").stat().st_size)
        self.numerics: Numerics = numerics
        self.min_rows = 2 if numerics == "invariant" else 1
        self.packed_rows = 1
        self._page_bytes = self.info.page_bytes(precision)
        total = kv_bytes // self._page_bytes
        set_aside = scratch_pages + 1  # the last one is written by rows that nobody reads
        most = set_aside + -(-self.max_len // PAGE_SIZE) * 64  # no use for more: 64 sequences of full length
        total = min(total, most)
        self.num_pages = total - set_aside
        if self.num_pages < 2:
            raise InputError(
                f"a KV budget of {kv_bytes} bytes holds {total} pages of {self._page_bytes} bytes; give at least "
                f"{(set_aside + 4) * self._page_bytes} (--kv-memory)"
            )
        self._compiled = [compile_graph(folder, self.info, precision, threads) for _ in range(lanes)]
        self._ports = {next(iter(port.get_names())): port for port in self._compiled[0].inputs}
        self._requests = [compiled.create_infer_request() for compiled in self._compiled]
        self._feeds = [Feed(request, self._ports) for request in self._requests]
        self._lanes = Lanes(lanes, self._rows_of_a_shape())
        self._store = self._allocate(total)
        self._spare_page = total - 1
        self._forks = Forks(self, self._store, range(self.num_pages, total - 1)) if scratch_pages else None

    def _allocate(self, num_pages: int) -> PagedStore:
        """Keys and values of each layer, [pages, kv_heads, 32, dim], handed to the graph once.

        NumPy shows bfloat16 memory as float16: rows are only copied, never computed with, so the bits are kept.
        """
        sides: dict[str, list[Any]] = {"key": [], "value": []}
        for side, arrays in sides.items():
            for number, layer in enumerate(self.info.layers):
                width = layer.dim if side == "key" else layer.value_dim
                port = self._ports[f"{side}_cache.{number}"]
                tensor = ov.Tensor(port.element_type, ov.Shape([num_pages, layer.kv_heads, PAGE_SIZE, width]))
                for request in self._requests:
                    request.set_tensor(port, tensor)
                arrays.append(tensor.data)
        return PagedStore(sides["key"], sides["value"])

    def _bytes_read(self, stored: int) -> int:
        """Of the stored bytes, those that each forward goes through."""
        return stored

    def _rows_of_a_shape(self) -> float:
        """What preparing another shape costs, in rows (as measured with int8 weights on two cores)."""
        shape_ms, row_ms = 0.2 * len(self.info.layers), 4.5e-9 * self.weight_bytes
        return shape_ms / row_ms

    def rows_like(self, num_rows: int) -> float:
        """Rows, all prepared, that a step of so many rows behind prompts costs as much as (`models.lanes`)."""
        return self._lanes.rows_like(max(num_rows, self.min_rows))  # a lone row goes twice

    @property
    def kv_bytes(self) -> int:
        """Bytes of all pages, scratch included."""
        return self._page_bytes * int(self._store.keys[0].shape[0])

    @property
    def num_lanes(self) -> int:
        """Compiled copies: so many widths of step can be ready at once."""
        return len(self._requests)

    @property
    def num_threads(self) -> int:
        """Threads OpenVINO really uses."""
        return int(self._compiled[0].get_property("INFERENCE_NUM_THREADS"))

    def verify(self, batch: StepBatch) -> TargetOutput:
        """One forward. Logits rows are views, valid until the next call."""
        if self.min_rows > 1 and any(mask is not None for mask in batch.ancestors):
            if self._forks is None:
                raise InputError("this target was loaded without scratch pages for trees: pass scratch_pages")
            return self._forks.verify(batch)
        logits, features = self.forward(batch)
        return TargetOutput(HostLogits(logits), batch.logit_offsets, features)

    def forward(self, batch: StepBatch) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """float32[n, V]: the wanted rows, as OpenVINO's own output memory; float32[R, F]: states of all, a copy."""
        request, places = self.infer(batch, {})
        logits: NDArray[np.float32] = request.get_output_tensor(0).data[: len(batch.logit_rows)]
        features = request.get_output_tensor(1).data[places] if self.info.features else None
        return logits, features

    def infer(self, batch: StepBatch, more: Mapping[str, Lines]) -> tuple[Any, NDArray[np.int64]]:
        """One forward; the request that ran it, and where each of the batch's rows is in outputs of a row each.

        more: further inputs of a graph that has them, ([R, width] or None for zeros, width).
        """
        laid = layout(batch, doubled=self.min_rows > 1)
        inputs = laid.inputs
        if any(batch.wide or ()) or any(mask is not None for mask in batch.ancestors):
            lane = self._lanes.prompt()
        else:
            lane, num_rows = self._lanes.choose(len(laid.rows))
            inputs = padded(inputs, num_rows, self._spare_page)
        return self._infer_on(lane, inputs, more, laid.rows), laid.places

    def _infer_on(
        self, lane: int, inputs: Mapping[str, NDArray[Any]], more: Mapping[str, Lines], rows: NDArray[np.int64]
    ) -> Any:
        request, feed = self._requests[lane], self._feeds[lane]
        for name, array in inputs.items():
            feed.put(name, array)
        for name, (lines, width) in more.items():
            feed.put_rows(name, lines, rows, (len(inputs["input_ids"]), width))
        request.infer()
        return request

    def warm_up(self) -> None:
        """A step that nobody reads in each compiled copy: at its first one a copy lays out its weights anew."""
        table = np.array([self._spare_page], np.int32)
        row = Rows(np.zeros(1, np.int32), 1, Slots(table, 0, 1))
        laid = layout(flat_batch([row], 1), doubled=self.min_rows > 1)
        inputs = padded(laid.inputs, len(laid.rows), self._spare_page)
        for lane in range(len(self._requests)):
            self._infer_on(lane, inputs, self._more_inputs(), laid.rows)
        self._lanes = Lanes(len(self._requests), self._rows_of_a_shape())  # what was ready is not any more

    def _more_inputs(self) -> Mapping[str, Lines]:
        """What the graph takes beside tokens, as zeros."""
        return {}

    def move(self, moves: Moves) -> None:
        """Copies kept rows together after a tree round."""
        if moves:
            self._store.move(moves)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages (source, own)."""
        if copies:
            self._store.copy_pages(copies)
