"""Memory of target and drafter: weights in 16, 8 or 4 bits, keys and values of every sequence.

    weights   parameters * bytes each: fp16 2; int8 1 (a scale a channel is thousands of values: not counted);
              int4 0.5 and an fp16 scale for each group of 32 values, 0.5625 in all (groups of 128: 0.516)
    KV        2 (keys and values) * layers * kv_heads * head_dim * bytes of a value, a token; 16 bits unless said
Activations, the CUDA context and fragmentation are not in it: leave an engine's usual tenth of the card free.

Invariant: bytes are integers; what is not known (a model without its numbers) is None, never 0.

Does not know: loads that pay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WEIGHTS: Mapping[str, float] = {"fp16": 2.0, "int8": 1.0, "int4": 0.5}
INT4_GROUP = 32
_SCALE_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Memory of target and drafter at one load, with the weights of both in one precision. All sizes in bytes."""

    drafter: str | None  # None: the target alone
    weights: str  # fp16, int8 or int4
    concurrency: int
    context: int  # tokens of context of each sequence
    target_weights: int
    target_kv: int
    drafter_weights: int
    drafter_kv: int
    total: int
    fits: bool | None  # None without a limit


def weight_bytes(parameters: int, weights: str, group: int = INT4_GROUP) -> int:
    """Bytes of so many parameters as "fp16", "int8" or "int4" (with a scale for each `group` values)."""
    each = WEIGHTS[weights] + (_SCALE_BYTES / group if weights == "int4" else 0.0)
    return math.ceil(parameters * each)


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, value_bytes: int = 2) -> int:
    """Bytes of the keys and values of one token."""
    return 2 * num_layers * num_kv_heads * head_dim * value_bytes


def head_parameters(hidden_size: int, vocab_size: int, heads: int = 1) -> int:
    """Parameters of Medusa heads: each one hidden layer and a vocabulary matrix of its own."""
    return heads * (hidden_size * hidden_size + hidden_size + hidden_size * vocab_size)


def model_kv_bytes(model: Mapping[str, Any], value_bytes: int = 2) -> int | None:
    """Bytes of KV a token of a run's MODEL; None where its numbers are not known."""
    layers, heads, width = (model.get(name) for name in ("num_layers", "num_kv_heads", "head_dim"))
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(width, int)):
        return None
    return kv_bytes_per_token(layers, heads, width, value_bytes)


def memory_rows(
    target: Mapping[str, Any],
    drafters: Mapping[str, Mapping[str, Any] | None],
    concurrency: Sequence[int],
    context: int,
    limit: int | None,
) -> tuple[MemoryRow, ...]:
    """A row for the target alone and with each drafter, at each load, in each precision.

    target, drafters: MODEL of run.json; a drafter without a model of its own (None) adds nothing. Models whose numbers
    are not known are left out.
    """
    if not _is_known(target):
        return ()
    known = [(label, model) for label, model in drafters.items() if model is None or _is_known(model)]
    candidates: list[tuple[str | None, Mapping[str, Any] | None]] = [(None, None), *known]
    return tuple(
        _row(target, candidate, weights, (sequences, context), limit)
        for sequences in concurrency
        for candidate in candidates
        for weights in WEIGHTS
    )


def _is_known(model: Mapping[str, Any]) -> bool:
    return isinstance(model.get("parameters"), int) and model_kv_bytes(model) is not None


def _row(
    target: Mapping[str, Any],
    drafter: tuple[str | None, Mapping[str, Any] | None],
    weights: str,
    load: tuple[int, int],
    limit: int | None,
) -> MemoryRow:
    def sizes(model: Mapping[str, Any] | None) -> tuple[int, int]:
        if model is None:
            return 0, 0
        return weight_bytes(model["parameters"], weights), (model_kv_bytes(model) or 0) * load[0] * load[1]

    target_weights, target_kv = sizes(target)
    drafter_weights, drafter_kv = sizes(drafter[1])
    total = target_weights + target_kv + drafter_weights + drafter_kv
    return MemoryRow(
        drafter=drafter[0],
        weights=weights,
        concurrency=load[0],
        context=load[1],
        target_weights=target_weights,
        target_kv=target_kv,
        drafter_weights=drafter_weights,
        drafter_kv=drafter_kv,
        total=total,
        fits=None if limit is None else total <= limit,
    )
