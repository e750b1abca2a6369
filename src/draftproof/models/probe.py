"""What a module's attention looks like, found by running it, not by reading its config.

`find_layers` runs one row through the module with a recorder in place of attention: which submodules call the
attention function, in which order, with what shapes and options. Anything our attention does not implement is refused
here, by name, so that nothing a layer asks for is silently ignored.

Invariant: after `find_layers`, exactly the attention modules carry a `Port`; ports already there (modules shared with
another target) are kept.

Does not know: the store, batches, devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from draftproof.errors import UnsupportedModel
from draftproof.kv.pages import LayerShape
from draftproof.models.attention import NAME, PORT, How, Port, Step, paged_attention

# Options that change nothing in inference on one flat row of tokens, or repeat what the step knows already.
_HARMLESS = {"dropout", "position_ids", "use_cache", "cache", "past_key_values", "position_embeddings", "layer_idx"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the attention function."""

    module: int  # index in the module list
    shape: LayerShape
    how: How


@dataclass(slots=True, eq=False)
class Recorder:
    """A step of one row: the row sees only itself, so attention gives its value back."""

    calls: list[Call] = field(default_factory=list)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """Shapes as in `Step`; notes the call."""
        self.calls.append(Call(layer, LayerShape(key.shape[0], key.shape[-1], value.shape[-1]), how))
        return value.transpose(0, 1).repeat_interleave(query.shape[0] // key.shape[0], dim=1)


@contextmanager
def bound(ports: Sequence[Port], step: Step) -> Iterator[None]:
    """The ports lead to `step` inside, and nowhere afterwards."""
    for layer, port in enumerate(ports):
        port.step, port.layer = step, layer
    try:
        yield
    finally:
        for port in ports:
            port.step = None


def set_attention(model: Any, name: str) -> None:
    """Sets the module, and every config a submodule reads, to the attention function `name`.

    Submodules shared with another module (`module.first_layers`) keep that module's config, so all are set.
    """
    AttentionInterface.register(NAME, paged_attention)
    model.set_attn_implementation(name)
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_attn_implementation", name) != name:
            config._attn_implementation = name


def find_layers(model: Any) -> tuple[list[Port], list[LayerShape]]:
    """The ports and KV shapes of the attention layers, in the order in which they are called."""
    modules = list(model.modules())
    fresh = [module for module in modules if PORT not in module.__dict__]
    for module in fresh:
        module.__dict__[PORT] = Port()
    recorder = Recorder()
    try:
        row = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
        with torch.inference_mode(), bound([module.__dict__[PORT] for module in modules], recorder):
            model(input_ids=row, position_ids=row, use_cache=False)
    finally:
        called = {call.module for call in recorder.calls}
        for index, module in enumerate(modules):
            if index not in called and module in fresh:
                del module.__dict__[PORT]
    _judge(model.config, recorder.calls)
    return [modules[call.module].__dict__[PORT] for call in recorder.calls], [call.shape for call in recorder.calls]


def _judge(config: Any, calls: Sequence[Call]) -> None:
    text = config.get_text_config()
    reasons: list[str] = []
    if len({call.module for call in calls}) != len(calls):
        reasons.append("a layer runs more than once in a forward")
    if len(calls) != text.num_hidden_layers:
        reasons.append(f"{len(calls)} of its {text.num_hidden_layers} layers call the attention interface")
    extra = sorted({name for call in calls for name in _unknown(call.how)})
    if extra:
        reasons.append(f"its attention is given {', '.join(extra)}, which changes the result")
    if not _windows_agree(text, calls):
        reasons.append("the windows its layers tell their attention are not those of its config")
    if reasons:
        raise UnsupportedModel(f"models of type {config.model_type!r} can't be run exactly: {'; '.join(reasons)}")


def _unknown(how: How) -> Iterator[str]:
    for name, value in how.others.items():
        if name == "is_causal":
            if value is False:
                yield "is_causal=False"
        elif name not in _HARMLESS and value is not None and value is not False:
            yield name


def _windows_agree(text: Any, calls: Sequence[Call]) -> bool:
    """The window reaches us through the call alone, so a layer that says too little would be attended in full."""
    told = [call.how.window is not None for call in calls]
    kinds = getattr(text, "layer_types", None)
    if kinds:
        return told == [kind == "sliding_attention" for kind in kinds]
    return not getattr(text, "sliding_window", None) or not getattr(text, "use_sliding_window", True) or all(told)
