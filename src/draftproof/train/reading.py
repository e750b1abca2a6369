"""Hidden states of texts from the very target that will serve: OpenVINO with the engine's own weights.

A head trained on 8-bit states drafts better from 8-bit states, and they come at twice the speed of torch's in float32.

Invariant: a text is read alone, so its states depend on nothing else (to the bit with the same number of threads).
Does not know: what the states are for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from draftproof.models.batch import Rows, flat_batch
from draftproof.models.graph import PAGE_SIZE, read_info
from draftproof.models.load import Loader, resolve_weights
from draftproof.models.openvino import OpenVINOTarget
from draftproof.models.source import ModelSource
from draftproof.train.settings import TrainSettings
from draftproof.train.trainer import Trainer
from draftproof.types import Slots


class EngineReader:
    """A `Reader` over a converted target whose last states are what meets the output rows.

    folder: of `Loader.graph` with the head's feature layers and, behind them, the target's last (once).
    width: k * H of the features. max_length: of a text.
    """

    def __init__(self, folder: Path, width: int, hidden_size: int, max_length: int, threads: int | None) -> None:
        self._pages, self._width, self._hidden = -(-max_length // PAGE_SIZE), width, hidden_size
        kv_bytes = (self._pages + 2) * read_info(folder).page_bytes("f32")
        self._target = OpenVINOTarget(folder, kv_bytes=kv_bytes, numerics="fast", threads=threads)

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """int64[S] -> features [S, k * H] and last states [S, H]; one forward over a prompt."""
        slots = Slots(np.arange(self._pages, dtype=np.int32), 0, len(tokens))
        rows = Rows(tokens.numpy(), len(tokens), slots, wide=True)
        output = self._target.verify(flat_batch([rows], 1))
        states = torch.from_numpy(np.array(output.features, np.float32))
        return states[:, : self._width], states[:, -self._hidden :]


def read_once(trainer: Trainer, loader: Loader, source: ModelSource, settings: TrainSettings) -> None:
    """Lets a run read its texts once, where that pays and the target allows it.

    It does on a CPU. Targets that do more to their last states than meet the output rows with them (scaled or capped
    logits) are run anew over every batch.
    """
    if trainer.device.type != "cpu" or not plain_output(trainer.model):
        return
    config, layers = trainer.model.config, tuple(trainer.head.config.feature_layers)
    last, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    depths = layers if layers[-1] == last else (*layers, last)  # a depth may be there twice, where layers are few
    folder = loader.graph(source, resolve_weights(settings.weights, source, "openvino"), None, depths)
    reader = EngineReader(folder, len(layers) * hidden, hidden, trainer.settings.max_length, settings.threads)
    trainer.read(reader)


@torch.no_grad()
def plain_output(model: Any) -> bool:
    """True if a target's logits are its last states times its output rows."""
    tokens = torch.arange(8, device=model.device)[None] % model.config.vocab_size
    last = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
    logits = model(input_ids=tokens, use_cache=False).logits
    rows = model.get_output_embeddings()
    if getattr(rows, "bias", None) is not None:
        return False
    return torch.allclose(logits, functional.linear(last, rows.weight), rtol=1e-4, atol=1e-4)
