"""transformers modules from a folder, whole or only their first layers (early exit), ready for either backend.

Invariant: every weight the module has was in the folder; a missing one is an error, never a random start. Weights the
module lacks are fine only when it was cut.

Does not know: downloading, GGUF, caches, tokenizers, what the module is used for.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.support import Backend, check_supported, cut_layers


def load_module(
    folder: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    num_layers: int | None = None,
    backend: Backend = "torch",
) -> Any:
    """The causal language model in `folder`, in eval mode, cut to its first `num_layers` layers when given.

    Raises UnsupportedModel before any weight is read, CorruptModel when weights are missing or of another shape.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    check_supported(config, backend=backend)
    config = cut_layers(config, num_layers)
    with silence():
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise CorruptModel(f"{folder} lacks {len(missing)} weights, the first is {missing[0]}: get the model again")
    return model.to(device).eval()


def first_layers(model: Any, num_layers: int) -> Any:
    """A second module that shares the weights of `model` but ends after `num_layers` layers; takes no memory.

    The layers, the final norm and the head are the same objects; both may be run by targets of their own.
    """
    config = cut_layers(copy.deepcopy(model.config), num_layers)
    base, name, layers = model.base_model, model.base_model_prefix, layer_list(model)
    cut, cut_base = _shallow(model), _shallow(base)
    cut.config = cut_base.config = config
    setattr(cut_base, layers, getattr(base, layers)[:num_layers])
    setattr(cut, name, cut_base)
    return cut


def layer_list(model: Any) -> str:
    """What the module's base calls its list of layers. Raises UnsupportedModel where it has none, or several."""
    base = model.base_model
    found = [str(key) for key, part in base.named_children() if isinstance(part, torch.nn.ModuleList)]
    if base is model or len(found) != 1:
        kind = model.config.model_type
        raise UnsupportedModel(f"models of type {kind!r} have no single list of layers that can be cut")
    return found[0]


def _shallow(module: Any) -> Any:
    """A copy of the module whose children can be replaced without touching the original's."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


@contextmanager
def silence() -> Iterator[None]:
    """No progress bars and no loading reports: what matters in them is checked and raised."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
