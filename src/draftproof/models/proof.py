"""Proof at conversion: the float32 graph against transformers' own forward, before it is cached.

Two lengths that tracing has not seen, fed in two pieces over pages in an odd order: what tracing froze (a shape, a
mask, a branch on the length) or a state outside keys and values shows as a difference, and the model is refused.

Runs in the converter's process. Does not know: caches, compression (an int8 model is another target, by design).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import torch
from numpy.typing import NDArray

from draftproof.errors import UnsupportedModel
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.openvino import OpenVINOTarget
from draftproof.types import Slots

_LENGTHS = (9, 47)
_TOLERANCE = 1e-3  # of the largest logit; rounding explains 1e-5


@torch.inference_mode()
def stock_logits(model: Any) -> list[NDArray[np.float32]]:
    """transformers' own logits [T, V] of the proof texts; call before attention is replaced."""
    model.set_attn_implementation("eager")
    return [model(torch.from_numpy(_text(model, n))[None], use_cache=False).logits[0].float().numpy() for n in _LENGTHS]


def _text(model: Any, length: int) -> NDArray[np.int64]:
    return np.random.default_rng(length).integers(1, model.config.get_text_config().vocab_size, length)


def prove(model: Any, graph: Any, meta: dict[str, Any], stock: list[NDArray[np.float32]]) -> None:
    """Raises UnsupportedModel unless the graph says what the module said."""
    kind = model.config.model_type
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ov.save_model(graph, folder / "graph.xml", compress_to_fp16=False)
        (folder / "attention.json").write_text(json.dumps(meta))
        try:
            target = OpenVINOTarget(folder, kv_bytes=1 << 26)
            ours = [_paged_logits(target, _text(model, length)) for length in _LENGTHS]
        except RuntimeError as error:
            raise UnsupportedModel(
                f"models of type {kind!r} don't run on the openvino backend ({str(error).splitlines()[-1][:160]}); "
                "use --backend torch"
            ) from error
    gap = max(float(np.abs(a - b).max() / max(1.0, float(np.abs(b).max()))) for a, b in zip(ours, stock, strict=True))
    if not gap <= _TOLERANCE:
        raise UnsupportedModel(
            f"models of type {kind!r} can't be run exactly on the openvino backend: the converted logits differ from "
            f"transformers' own by {gap:.1e} of the largest (rounding explains {_TOLERANCE:.0e}); use --backend torch"
        )


def _paged_logits(target: OpenVINOTarget, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """[T, V], fed in two pieces over pages 1 and 0."""
    tokens, half, table = ids.astype(np.int32), len(ids) // 2, np.array([1, 0], np.int32)
    parts = []
    for begin, end in ((0, half), (half, len(ids))):
        output = target.verify(flat_batch([Rows(tokens[begin:end], 1, Slots(table, begin, end - begin))], 2))
        num_rows = len(output.logits.argmax())
        if num_rows != end - begin:  # a trace may lose the experts of other texts
            raise RuntimeError(f"{end - begin} rows went in, {num_rows} came out")
        parts += [output.logits.row(row).copy() for row in range(end - begin)]
    return np.stack(parts)
