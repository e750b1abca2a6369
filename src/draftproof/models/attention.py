"""Attention over our own pages, as one function registered with transformers' attention interface.

A model's layers call `paged_attention` with the new rows' queries, keys and values of one flat batch, [1, heads, R,
dim]. It finds the running step through the `Port` on the calling module; the step writes the rows into the store and
attends over each sequence's pages. All index tensors and masks are built once a step (`FlatStep`) and used by every
layer. `RowStep` is the slow truth: one row, which attends over exactly the rows it sees, gathered in order.

Invariant: a row sees the past of its own sequence, itself, and earlier rows of this step that are its ancestors (all
of them in a chain), cut by the layer's window, which is counted in *depths*. Rows nobody may see are zeroed after the
gather, never only masked: 0 * NaN is NaN, and a freed page may hold another request's NaN.

Does not know: which model it serves, drafts, sampling. No module state: a step lives on ports while a forward runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftproof.errors import EngineError
from draftproof.kv.pages import PagedStore

NAME = "draftproof"
PORT = "draftproof_port"


@dataclass(frozen=True, slots=True)
class How:
    """What a layer asks of its attention beside the tensors."""

    scaling: float
    window: int | None  # a row sees keys less than `window` positions before it
    softcap: float | None
    others: Mapping[str, Any]  # what else the layer passed; judged once, by the probe


class Step(Protocol):
    """One running forward."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """[heads, R, D], [kv_heads, R, D], [kv_heads, R, Dv] -> [R, heads, Dv]."""
        ...


@dataclass(slots=True)
class Port:
    """Where an attention module finds the running step. Two targets may share a module: each binds before it runs."""

    step: Step | None = None
    layer: int = 0


def paged_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: [1, heads, R, D] -> ([1, R, heads, Dv], no weights)."""
    port: Port | None = module.__dict__.get(PORT)
    if port is None or port.step is None:
        raise EngineError("this model is set to draftproof's attention: run it through TorchTarget.verify")
    scaling = options.pop("scaling", None)
    how = How(
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=options.pop("sliding_window", None),
        softcap=options.pop("softcap", None),
        others={"attention_mask": attention_mask, "is_causal": getattr(module, "is_causal", None)} | options,
    )
    return port.step.attend(port.layer, query[0], key[0], value[0], how)[None], None


def mix(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """[b, h, t, D], [b, h, L, D], [b, h, L, Dv], bias [b, 1, t, L] added to the scores -> [b, h, t, Dv]."""
    if how.softcap is None:
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=how.scaling)
    scores = (query @ key.transpose(-1, -2)) * how.scaling
    scores = torch.tanh(scores / how.softcap) * how.softcap
    if bias is not None:
        scores = scores + bias
    wide = torch.promote_types(scores.dtype, torch.float32)
    return torch.softmax(scores, -1, dtype=wide).to(value.dtype) @ value


def pack_heads(query: Tensor, kv_heads: int) -> Tensor:
    """[b, t, heads, D] -> [b, kv_heads, groups * t, D]: the queries that share a key head lie in its rows."""
    b, t, heads, dim = query.shape
    return query.view(b, t, kv_heads, heads // kv_heads, dim).permute(0, 2, 3, 1, 4).reshape(b, kv_heads, -1, dim)


def unpack_heads(mixed: Tensor, t: int) -> Tensor:
    """[b, kv_heads, groups * t, Dv] -> [b, t, heads, Dv]."""
    b, kv_heads, _, dim = mixed.shape
    return mixed.view(b, kv_heads, -1, t, dim).permute(0, 3, 1, 2, 4).reshape(b, t, -1, dim)


@dataclass(slots=True, eq=False)
class Group:
    """Sequences attended together, padded to t rows and p pages."""

    rows: Tensor  # int64[b, t] flat row of each query; padding repeats the sequence's first row
    pages: Tensor  # int64[b, 1, p] page numbers; padding is the zero page
    visible: Tensor  # bool[b, t, L] with L = p * page_size
    row_depth: Tensor  # int64[b, t]
    key_depth: Tensor  # int64[b, L]
    dead: tuple[Tensor, Tensor]  # (sequence, key position) of rows in a last page that were never written for it
    places: Tensor  # int64[k] flat places in [b * t] that are not padding
    flat_rows: Tensor  # int64[k] the flat rows they belong to
    biases: dict[tuple[int | None, int], Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, groups: int, dtype: torch.dtype) -> Tensor:
        """[b, 1, groups * t, L]: 0 where a row may look, minus infinity elsewhere. Made once a step and window."""
        found = self.biases.get((window, groups))
        if found is None:
            visible = self.visible
            if window is not None:
                visible = visible & (self.row_depth[:, :, None] - self.key_depth[:, None, :] < window)
            b, t, length = visible.shape
            found = torch.zeros((b, 1, t, length), dtype=dtype, device=visible.device)
            found.masked_fill_(~visible[:, None], -torch.inf)
            found = found[:, :, None].expand(b, 1, groups, t, length).reshape(b, 1, groups * t, length)
            self.biases[window, groups] = found
        return found

    def gather(self, array: Tensor, heads: Tensor) -> Tensor:
        """[num_pages, kv_heads, page_size, D] -> [b, kv_heads, L, D], a copy in which dead rows are zero."""
        b, _, p = self.pages.shape
        got = array[self.pages, heads].view(b, len(heads), p * array.shape[2], array.shape[3])
        got[self.dead[0], :, self.dead[1]] = 0
        return got


@dataclass(slots=True, eq=False)
class FlatStep:
    """A whole ragged batch in one forward."""

    store: PagedStore
    slots: tuple[Tensor, Tensor]  # int64[R] page and offset of each row
    groups: Sequence[Group]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """Writes the rows, then attends group by group. Shapes as in `Step`."""
        keys, values = self.store.keys[layer], self.store.values[layer]
        write(keys, values, self.slots, key, value)
        kv_heads, asked = key.shape[0], query.transpose(0, 1)  # [R, heads, D]
        heads = torch.arange(kv_heads, device=query.device)[:, None]
        out = query.new_empty((query.shape[1], query.shape[0], value.shape[-1]))
        for group in self.groups:
            packed = pack_heads(asked[group.rows], kv_heads)
            bias = group.bias(how.window, query.shape[0] // kv_heads, query.dtype)
            mixed = mix(packed, group.gather(keys, heads), group.gather(values, heads), bias, how)
            unpacked = unpack_heads(mixed, group.rows.shape[1])
            out[group.flat_rows] = unpacked.flatten(0, 1)[group.places]
        return out


@dataclass(slots=True, eq=False)
class RowStep:
    """One row alone. `seen` lists the rows it sees, itself last, so that index = depth and nothing needs a mask."""

    store: PagedStore
    slots: tuple[Tensor, Tensor]  # int64[1] page and offset
    seen: tuple[Tensor, Tensor]  # int64[L] pages and offsets, by depth

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """Shapes as in `Step`, R = 1."""
        keys, values = self.store.keys[layer], self.store.values[layer]
        write(keys, values, self.slots, key, value)
        first = 0 if how.window is None else max(0, len(self.seen[0]) - how.window)
        page, offset = self.seen[0][first:], self.seen[1][first:]
        one = keys[page, :, offset].transpose(0, 1)[None].contiguous()  # [1, kv_heads, L, D]
        other = values[page, :, offset].transpose(0, 1)[None].contiguous()
        packed = pack_heads(query.transpose(0, 1)[None], key.shape[0])
        return unpack_heads(mix(packed, one, other, None, how), 1)[0]


def write(keys: Tensor, values: Tensor, slots: tuple[Tensor, Tensor], key: Tensor, value: Tensor) -> None:
    """Puts the rows' keys and values [kv_heads, R, D] into their pages."""
    page, offset = slots
    keys[page, :, offset] = key.transpose(0, 1)
    values[page, :, offset] = value.transpose(0, 1)
