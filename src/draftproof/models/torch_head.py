"""An EAGLE head on the torch backend: the training module over pages of its own, on the target's device, in its dtype.

Embedding and output rows are the target's own, unless the head brings some; the embedding is shared, of the output rows
those of the draft tokens are copied.

Numerics are those it is given: "fast" is one forward for all rows, "invariant" one for each row, in order, over exactly
the rows it sees. Under invariant numerics of the target a draft follows from its own text alone (D5).

Invariant: a row is written before it is read, at slot past + row; nothing else is kept between steps.
Does not know: drafts, sequences, where the states come from, how the head was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from draftproof.errors import EngineError, InputError
from draftproof.kv.pages import LayerShape, paged_store
from draftproof.models.attention import How, Step
from draftproof.models.eagle import EagleHead
from draftproof.models.hf import TorchLogits, to_host
from draftproof.models.layout import flat_step, row_steps
from draftproof.types import FloatArray, Moves, Numerics, StepBatch, TargetOutput


class TorchHead:
    """A head over a target's module. Implements the drafters' `Head`.

    head: in any dtype and place; it is copied to the model's. model: the target's causal language model.
    kv_bytes: of its pages, the zero page included; no more are made than 64 texts of full length fill.
    Raises InputError where they hold no two pages.
    """

    min_rows = packed_rows = 1

    def __init__(
        self, head: EagleHead, model: Any, *, kv_bytes: int, page_size: int = 32, numerics: Numerics = "fast"
    ) -> None:
        config = head.config
        self._head = EagleHead(config).to(model.device, model.dtype).eval()
        self._head.load_state_dict(head.state_dict())
        self._device, ids = model.device, self._head.draft_ids
        self.draft_ids: NDArray[np.int32] = ids.cpu().numpy().astype(np.int32)  # [Vd] target ids, ascending
        self._embedding = self._head.embed_tokens if config.own_embedding else model.get_input_embeddings()
        self._output = self._head.lm_head.weight if config.own_output else output_rows(model, ids)
        self.vocab_size, self.max_len, self.numerics = len(ids), config.max_len, numerics
        self.weight_bytes = weight_bytes(self._head, *(() if config.own_output else (self._output,)))
        self.page_size, self.num_pages = page_size, _num_pages(config, kv_bytes, page_size, model.dtype.itemsize)
        zeros = partial(torch.zeros, dtype=model.dtype, device=model.device)
        shape = LayerShape(config.num_kv_heads, config.head_dim, config.head_dim)
        self._store = paged_store([shape], self.num_pages + 1, page_size, zeros)
        self._how = How(config.head_dim**-0.5, None, None, {})

    @torch.inference_mode()
    def draft(
        self, batch: StepBatch, features: FloatArray | None, own: FloatArray | None
    ) -> tuple[TorchLogits, FloatArray]:
        """R rows -> logits [n, Vd] and output [n, H] of the wanted rows.

        features: [R, k * H] of the target, or None; own: [R, H] outputs of rows before, or None. One of them is given.
        Raises EngineError where not exactly one is, with a line a row.
        """
        states = features if own is None else own
        if states is None or (features is not None and own is not None) or len(states) != len(batch.input_ids):
            raise EngineError("a head takes one line of states for each row: the target's or its own")
        lines = torch.from_numpy(np.ascontiguousarray(states)).to(self._device, self._store.keys[0].dtype)
        ids, places = self._put(batch.input_ids), self._put(batch.positions)
        wanted = self._put(batch.logit_rows)
        if self.numerics == "fast":
            step = flat_step(batch, self._store, self._device)
            hidden = self._run(step, ids, lines, places, own is None)[wanted]
            return TorchLogits(self._logits(hidden)), to_host(hidden)
        rows = [
            self._run(step, ids[r : r + 1], lines[r : r + 1], places[r : r + 1], own is None)
            for r, step in enumerate(row_steps(batch, self._store, self._device))
        ]
        chosen = [rows[row] for row in batch.logit_rows.tolist()]
        if not chosen:
            return TorchLogits(self._output.new_zeros(0, self.vocab_size)), np.zeros((0, rows[0].shape[1]), np.float32)
        return TorchLogits(torch.cat([self._logits(row) for row in chosen])), to_host(torch.cat(chosen))

    def _run(self, step: Step, ids: Tensor, states: Tensor, places: Tensor, fused: bool) -> Tensor:
        """[R, H]: the head's output after rows of these ids and states; fused: the states are the target's."""

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # [R, heads, D]
            query, key, value = (part.transpose(0, 1) for part in (query, key, value))
            return step.attend(0, query, key, value, self._how)

        hidden: Tensor = self._head.fc(states) if fused else states
        out: Tensor = self._head(self._embedding(ids), hidden, places, attend)
        return out

    def _logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(self._head.norm(hidden), self._output)

    def verify(self, batch: StepBatch) -> TargetOutput:
        """Raises EngineError: a head is never run without states."""
        raise EngineError("a draft head needs the target's states")

    def move(self, moves: Moves) -> None:
        """Copies rows."""
        self._store.move(moves)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages (source, own), for branches of trees."""
        self._store.copy_pages(copies)

    def _put(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def output_rows(model: Any, ids: Tensor) -> Tensor:
    """[Vd, H]: a copy of the target's output rows of these tokens."""
    rows: Tensor = model.get_output_embeddings().weight.detach()[ids.to(model.device)]
    return rows


def weight_bytes(*parts: torch.nn.Module | Tensor) -> int:
    """Bytes of parameters and of further tensors that a forward reads (of an embedding it reads a row only)."""
    tensors: list[Tensor] = []
    for part in parts:
        tensors += [part] if isinstance(part, Tensor) else _read_whole(part)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _read_whole(module: torch.nn.Module) -> list[Tensor]:
    return [tensor for name, tensor in module.named_parameters() if not name.startswith("embed_tokens")]


def _num_pages(config: Any, kv_bytes: int, page_size: int, item_size: int) -> int:
    page = page_size * 2 * config.num_kv_heads * config.head_dim * item_size
    pages = min(kv_bytes // page - 1, 64 * -(-config.max_len // page_size))
    if pages < 2:
        raise InputError(f"a budget of {kv_bytes} bytes holds no two pages of the draft head: give more (--kv-memory)")
    return int(pages)
