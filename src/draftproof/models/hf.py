"""The torch backend: any decoder-only transformers module as a `Target` over our own paged KV store.

GPUs, and the oracle in float64 on a CPU. The module's code is transformers' own; only attention is ours, by
registration. At construction the target runs the module in two pieces against transformers' eager attention in one:
a model whose state does not lie wholly in its keys and values is refused by its numbers, whatever its config says, and
so are hidden states that are not those of its rows.

Numerics: "fast" (one forward for all rows) or "invariant" (each row in a forward of its own, in order, attending over
exactly the rows it sees: bit-identical at any draft length, batch and chunking, tree nodes included; slow, the truth
that fast paths are compared with). Hidden states keep the same promise.

Invariant: a row is written once a step, before it is read, at slot past + row; nothing else is kept between steps.

Does not know: sampling, drafters, scheduling, text, where the module came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.errors import InvalidParams, UnsupportedModel
from draftproof.kv.pages import PagedStore, paged_store
from draftproof.models.attention import NAME, Step
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.layout import flat_step, row_steps
from draftproof.models.probe import bound, find_layers, set_attention
from draftproof.models.support import check_supported, context_limit
from draftproof.types import FloatArray, Moves, Numerics, Slots, StepBatch, TargetOutput

Output = tuple[Tensor, Tensor | None]  # logits [n, V] of the wanted rows, hidden states [R, F] where asked for
_PROOF_ROWS = 5  # tokens of the proof at construction, fed as 3 + 2
# Largest difference allowed there, of a logit or of a hidden state of one depth, relative to the largest: rounding,
# with a wide margin, by dtype. Eager attention takes its softmax in float32 even in a float64 model.
_PROOF_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}


class TorchLogits:
    """Rows of logits [n, V] on the target's device; what is asked for comes to the host."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def argmax(self) -> NDArray[np.int64]:
        """int64[n], ties to the lowest id (torch promises no order), -1 where the largest is not finite (or a NaN)."""
        if not len(self._values):
            return np.zeros(0, np.int64)
        size = self._values.shape[-1]
        best = self._values.amax(-1, keepdim=True)  # NaN where a row holds one: then nothing equals it
        ids = torch.arange(size, device=self._values.device)
        usable = (self._values == best) & best.isfinite()
        first = torch.where(usable, ids, size).amin(-1).cpu().numpy()
        return np.where(first == size, -1, first)

    @cached_property
    def _host(self) -> FloatArray:
        rows = to_host(self._values)
        rows.setflags(write=False)
        return rows

    def row(self, index: int) -> FloatArray:
        """float32[V] (float64 where the target computes in it), read-only."""
        row: FloatArray = self._host[index]
        return row


def to_host(values: Tensor) -> FloatArray:
    """The same values as float32, or float64 where they are that; a copy where they are not on the host."""
    wide = values if values.dtype == torch.float64 else values.float()
    rows: FloatArray = wide.cpu().numpy()
    return rows


class TorchTarget:
    """A transformers module run over pages; see the module's docstring. Implements `protocols.Target`.

    model: a causal language model of transformers, on its device and in its dtype; it is set to our attention.
    num_pages, page_size: room for num_pages * page_size rows. A contiguous store is page_size = max_len.
    max_len: the context limit, at most the model's own (the default).
    features: after how many layers hidden states are given beside the logits (0: the embedding; all: behind the last
    norm), side by side in this order.
    Raises UnsupportedModel if the model can't be run exactly.
    """

    def __init__(
        self,
        model: Any,
        *,
        num_pages: int,
        page_size: int = 32,
        numerics: Numerics = "fast",
        max_len: int | None = None,
        features: Sequence[int] = (),
    ) -> None:
        check_supported(model.config, type(model))
        self.max_len = _resolve_max_len(model.config, max_len, num_pages * page_size)
        self.numerics, self.num_pages, self.page_size = numerics, num_pages, page_size
        self.min_rows = self.packed_rows = 1
        self._model, self._device, self._features = model.eval(), model.device, _depths(model.config, features)
        stock = _stock(model, self._features)
        set_attention(model, NAME)
        self._ports, self._shapes = find_layers(model)
        self.vocab_size = int(stock[0].shape[-1])
        self.weight_bytes = _read_bytes(model)
        _prove(self, stock)
        self._store = self._new_store(num_pages, page_size)

    @staticmethod
    def pages_for(model: Any, kv_bytes: int, page_size: int = 32) -> int:
        """How many pages of this model's rows fit into `kv_bytes`, beside the zero page.

        Runs one row to learn what a row takes. Raises InvalidParams when not even one page fits.
        """
        set_attention(model, NAME)
        page = page_size * sum(shape.numbers for shape in find_layers(model)[1]) * int(model.dtype.itemsize)
        pages = kv_bytes // page - 1
        if pages < 1:
            raise InvalidParams(
                f"the KV budget is {kv_bytes} bytes, but two pages take {2 * page}: give it more, or smaller pages"
            )
        return pages

    def verify(self, batch: StepBatch) -> TargetOutput:
        """One forward (one a row when invariant): writes the rows into their slots, returns the wanted logits.

        Hidden states, where they are asked for, are of all rows, float32 (float64 where the target computes in it).
        """
        logits, states = self._forward(batch, self._store)
        features = None if states is None else to_host(states)
        return TargetOutput(TorchLogits(logits), batch.logit_offsets, features)

    def move(self, moves: Moves) -> None:
        """Copies kept rows together after a tree round."""
        self._store.move(moves)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages before a sequence writes into one it shared."""
        self._store.copy_pages(copies)

    @property
    def store(self) -> PagedStore:
        """The physical pages; the last one of each array is the zero page, beyond `num_pages`."""
        return self._store

    def _new_store(self, num_pages: int, page_size: int) -> PagedStore:
        zeros = partial(torch.zeros, dtype=self._model.dtype, device=self._device)
        return paged_store(self._shapes, num_pages + 1, page_size, zeros)

    @torch.inference_mode()
    def _forward(self, batch: StepBatch, store: PagedStore) -> Output:
        """[n, V] logits of the wanted rows, and [R, F] hidden states of all."""
        ids, positions = self._put(batch.input_ids), self._put(batch.positions)
        if self.numerics == "fast":
            return self._run(flat_step(batch, store, self._device), ids, positions, self._put(batch.logit_rows))
        wanted = set(batch.logit_rows.tolist())
        one, none = self._put(np.zeros(1, np.int64)), self._put(np.zeros(0, np.int64))
        rows = [
            self._run(step, ids[r : r + 1], positions[r : r + 1], one if r in wanted else none)
            for r, step in enumerate(row_steps(batch, store, self._device))
        ]
        states = [state for _, state in rows if state is not None]
        return torch.cat([logits for logits, _ in rows]), torch.cat(states) if states else None

    def _run(self, step: Step, ids: Tensor, positions: Tensor, wanted: Tensor) -> Output:
        with bound(self._ports, step):
            output = self._model(
                input_ids=ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=wanted,
                output_hidden_states=bool(self._features),
            )
        return _output(output, self._features)

    def _put(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _resolve_max_len(config: Any, asked: int | None, rows: int) -> int:
    limit = context_limit(config)
    if asked is not None and limit is not None and asked > limit:
        raise InvalidParams(f"max_len {asked} is past the model's own context limit of {limit}")
    return asked or limit or rows


def _proof_tokens(config: Any) -> NDArray[np.int32]:
    return np.linspace(1, config.get_text_config().vocab_size - 1, _PROOF_ROWS).astype(np.int32)


def _read_bytes(model: Any) -> int:
    """Bytes of weights that a forward reads: a few rows of an embedding, unless it is the output rows as well."""
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    aside = None if outer is None or inner is None or inner.weight is outer.weight else inner.weight
    return sum(part.numel() * part.element_size() for part in model.parameters() if part is not aside)


def _depths(config: Any, asked: Sequence[int]) -> tuple[int, ...]:
    total = config.get_text_config().num_hidden_layers
    if any(not 0 <= layer <= total for layer in asked):
        raise InvalidParams(f"hidden states after {list(asked)} layers were asked for, this model has 0 to {total}")
    return tuple(asked)


def _output(output: Any, features: tuple[int, ...]) -> Output:
    """transformers' output of one flat batch -> logits [n, V] and hidden states [R, F]."""
    logits: Tensor = output.logits[0]
    return logits, torch.cat([output.hidden_states[layer][0] for layer in features], -1) if features else None


@torch.inference_mode()
def _stock(model: Any, features: tuple[int, ...]) -> Output:
    """[_PROOF_ROWS, V] and [_PROOF_ROWS, F] of transformers' own eager attention, all rows in one forward."""
    set_attention(model, "eager")
    ids = torch.from_numpy(_proof_tokens(model.config).astype(np.int64)).to(model.device)
    return _output(model(input_ids=ids[None], use_cache=False, output_hidden_states=bool(features)), features)


@torch.inference_mode()
def _prove(target: TorchTarget, stock: Output) -> None:
    """Feeds the proof tokens in two pieces over pages of two rows and compares with `stock`."""
    tokens, store = _proof_tokens(target._model.config), target._new_store(3, 2)
    table, parts = np.array([2, 0, 1], np.int32), []
    for start, end in ((0, 3), (3, _PROOF_ROWS)):
        rows = Rows(tokens[start:end], 1, Slots(table, start, end - start), np.arange(end - start - 1, dtype=np.int32))
        parts.append(target._forward(flat_batch([rows], 1), store))
    kind, (logits, states) = target._model.config.model_type, stock
    _compare(kind, "logits", torch.cat([part for part, _ in parts]), logits)
    if states is not None:
        ours = torch.cat([part for _, part in parts if part is not None])
        for index, layer in enumerate(target._features):
            mine, truth = (side.chunk(len(target._features), -1)[index] for side in (ours, states))
            _compare(kind, f"hidden states after {layer} layers", mine, truth)


def _compare(kind: str, name: str, ours: Tensor, stock: Tensor) -> None:
    """The scale is the largest number; that of logits at least 1."""
    scale = max(1.0 if name == "logits" else 1e-30, stock.abs().max().item())
    gap, allowed = (ours - stock).abs().max().item() / scale, _PROOF_TOLERANCE.get(stock.dtype, 0.2)
    if gap > allowed:
        raise UnsupportedModel(
            f"models of type {kind!r} can't be run exactly: fed in two pieces, the {name} differ from transformers' "
            f"own by {gap:.1e} of the largest (rounding explains {allowed:.0e})"
        )
