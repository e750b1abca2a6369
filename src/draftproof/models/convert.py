"""A transformers model -> an OpenVINO graph on disk, with a placeholder where each attention goes.

Runs as a child process (`python -m draftproof.models.convert`), so that torch, its threads and its memory are gone
before the engine starts. Two jobs: `gguf` (a GGUF file -> a Hugging Face folder in float32) and `graph` (a Hugging
Face folder -> graph.xml / graph.bin + attention.json).

How: an attention function registered with transformers calls one small custom operation on flat q, k, v; conversion
turns it into a recognisable placeholder (concat + slice) and notes scale, window and widths of each layer. The
placeholder graph is plain OpenVINO, so it can be saved, loaded and compressed; `models/graph.py` puts paged attention
in its place at load.

Does not know: the cache, engines, sampling.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import openvino as ov
import torch
from openvino import opset15 as op
from openvino.frontend.pytorch import ConversionExtension
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.masking_utils import AttentionMaskInterface
from transformers.utils import logging

from draftproof.errors import DraftproofError, UnsupportedModel
from draftproof.models import convert_medusa
from draftproof.models import folder as folders
from draftproof.models.eagle import EagleHead
from draftproof.models.fuse import fuse_siblings
from draftproof.models.head_files import load_head
from draftproof.models.module import load_module
from draftproof.models.proof import prove, stock_logits
from draftproof.models.support import context_limit

_NAME = "draftproof_placeholder"


def _report(stage: str) -> None:
    """One line a stage on stdout: the parent shows it."""
    print(f"stage: {stage}", flush=True)


def gguf_to_folder(path: Path, out: Path) -> None:
    """De-quantises a GGUF file into a Hugging Face folder (float32 safetensors and tokenizer)."""
    _report("reading the GGUF file and de-quantising")
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    model.hf_quantizer = None  # transformers refuses to save what it still believes to be quantised
    if hasattr(model.config, "quantization_config"):
        delattr(model.config, "quantization_config")
    _report("reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(**where)
    _report("writing safetensors")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _attention(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **kwargs: Any) -> Any:
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        raise UnsupportedModel(
            f"{type(module).__name__} caps attention scores or has attention sinks, which the openvino backend can't "
            "run exactly: use --backend torch"
        )
    heads, rows, dim = query.shape[1], query.shape[2], query.shape[3]
    value_dim = value.shape[3]

    def flat(tensor: Any) -> Any:  # [1, heads, R, dim] -> [R, heads * dim]
        return tensor.transpose(1, 2).reshape(tensor.shape[2], -1)

    scale = float(scaling) if scaling is not None else dim**-0.5
    window = int(kwargs.get("sliding_window") or 0)
    out = torch.ops.draftproof.placeholder(
        flat(query), flat(key), flat(value), scale, window, key.shape[1], dim, value_dim
    )
    return out.reshape(1, rows, heads, value_dim), None


@cache
def _register() -> None:
    """Makes the operation and the attention function known, once a process."""
    library = torch.library
    library.define(
        "draftproof::placeholder",
        "(Tensor q, Tensor k, Tensor v, float scale, int window, int kv_heads, int dim, int value_dim) -> Tensor",
    )
    library.impl(
        "draftproof::placeholder",
        "cpu",
        lambda q, k, v, scale, window, kv_heads, dim, value_dim: q[:, : q.shape[1] // dim * value_dim] * 1.0,
    )
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, lambda *args, **kwargs: None)


class _Flat(torch.nn.Module):
    """input_ids [R], position_ids [R], rows [n] -> logits [n, V] of the chosen rows.

    With feature layers also [R, k * H]: every row's hidden states after so many layers, side by side.
    """

    def __init__(self, model: Any, features: Sequence[int] = ()) -> None:
        super().__init__()
        self.model = model
        self.features = tuple(features)

    def forward(self, input_ids: Any, position_ids: Any, rows: Any) -> Any:
        """One flat forward without a cache: the placeholder stands for everything between rows."""
        output = self.model(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            use_cache=False,
            logits_to_keep=rows,
            output_hidden_states=bool(self.features),
        )
        if not self.features:
            return output.logits[0]
        return output.logits[0], torch.cat([output.hidden_states[layer][0] for layer in self.features], -1)


class _FlatHead(torch.nn.Module):
    """An EAGLE head with the target's embedding and output rows, or its own: the same inputs as `_Flat`, and for each
    row either features [R, k * H] of the target or the head's own output [R, H] (zeros in the place of the other) ->
    logits [n, Vd] and output [n, H] of the chosen rows."""

    def __init__(self, head: EagleHead, model: Any) -> None:
        super().__init__()
        self.head = head
        self.embedding = head.embed_tokens if head.config.own_embedding else model.get_input_embeddings()
        if head.config.own_output:
            self.output = head.lm_head
            return
        rows = model.get_output_embeddings().weight.detach()[head.draft_ids]
        self.output = torch.nn.Linear(rows.shape[1], rows.shape[0], bias=False)
        self.output.weight = torch.nn.Parameter(rows.clone(), requires_grad=False)

    def forward(self, input_ids: Any, position_ids: Any, rows: Any, features: Any, own: Any) -> Any:
        """One flat forward without a cache, as `_Flat`."""
        config = self.head.config
        hidden = self.head.fc(features) + own

        def attend(query: Any, key: Any, value: Any) -> Any:  # [R, heads, D]
            return torch.ops.draftproof.placeholder(
                query.reshape(-1, config.num_heads * config.head_dim),
                key.reshape(-1, config.num_kv_heads * config.head_dim),
                value.reshape(-1, config.num_kv_heads * config.head_dim),
                config.head_dim**-0.5,
                0,
                config.num_kv_heads,
                config.head_dim,
                config.head_dim,
            )

        hidden = self.head(self.embedding(input_ids), hidden, position_ids, attend)[rows]
        return self.output(self.head.norm(hidden)), hidden


def _integer(context: Any, index: int) -> int:
    return int(np.ravel(context.get_values_from_const_input(index))[0])


def build_graph(model: Any, features: Sequence[int] = ()) -> tuple[Any, list[dict[str, Any]]]:
    """The placeholder graph and, for each layer in order, {scale, window, kv_heads, dim, value_dim}."""
    _register()
    model.set_attn_implementation(_NAME)
    example = (torch.arange(5) + 3, torch.arange(5), torch.arange(5))
    outputs = ("logits", "features") if features else ("logits",)
    heads = model.config.get_text_config().num_attention_heads
    return _converted(_Flat(model, features), example, ("input_ids", "position_ids", "rows"), outputs, heads)


def build_head_graph(head: EagleHead, model: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The same of an EAGLE head over its target, with the inputs `features` and `own` and the output `hidden`."""
    _register()
    config = head.config
    states = torch.ones(5, len(config.feature_layers) * config.hidden_size)
    example = (torch.arange(5) + 3, torch.arange(5), torch.arange(5), states, torch.ones(5, config.hidden_size))
    inputs = ("input_ids", "position_ids", "rows", "features", "own")
    return _converted(_FlatHead(head, model).eval(), example, inputs, ("logits", "hidden"), config.num_heads)


def _converted(
    module: Any, example: tuple[Any, ...], inputs: Sequence[str], outputs: Sequence[str], num_heads: int
) -> tuple[Any, list[dict[str, Any]]]:
    layers: list[dict[str, Any]] = []

    def placeholder(context: Any) -> Any:
        query, key, value = (context.get_input(i) for i in range(3))
        scale = float(np.ravel(context.get_values_from_const_input(3))[0])
        window, kv_heads, dim, value_dim = (_integer(context, i) for i in range(4, 8))
        number = len(layers)
        width = num_heads * value_dim
        layers.append({"scale": scale, "window": window, "kv_heads": kv_heads, "dim": dim, "value_dim": value_dim})
        joined = op.concat([query, key, value], 1)
        joined.set_friendly_name(f"paged_in_{number}")

        def const(x: int) -> Any:
            return op.constant(np.array([x], np.int64))

        out = op.slice(joined, const(0), const(width), const(1), const(1))
        out.set_friendly_name(f"paged_out_{number}")
        return [out.output(0)]

    extension = ConversionExtension("draftproof::placeholder", placeholder)
    with torch.inference_mode():
        graph = ov.convert_model(module, example_input=example, extension=[extension])
    for ports, names in ((graph.inputs, inputs), (graph.outputs, outputs)):
        for port, name in zip(ports, names, strict=True):
            port.get_tensor().set_names({name})
    fuse_siblings(graph)
    return graph, layers


def compress(graph: Any, weights: str) -> Any:
    """int8: each matrix by NNCF, asymmetric, one scale an output row. float32 and bfloat16 stay as they are."""
    if weights != "int8":
        return graph
    import nncf  # seconds to import, and needed for this one job only

    return nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT8_ASYM)


def folder_to_graph(
    folder: Path, weights: str, num_layers: int | None, out: Path, features: Sequence[int] = ()
) -> None:
    """Converts a Hugging Face folder, cut to its first `num_layers` layers if given; with these hidden states."""
    _report("loading the model")
    model = load_module(folder, torch.float32, "cpu", num_layers, backend="openvino")
    stock = stock_logits(model)
    _report("converting to OpenVINO")
    graph, layers = build_graph(model, features)
    vocab_size = model.config.get_text_config().vocab_size
    meta = {"layers": layers, "vocab_size": vocab_size, "max_len": context_limit(model.config) or 2048}
    meta["features"] = len(features) * model.config.get_text_config().hidden_size
    _report("proving the graph against transformers")
    prove(model, graph, meta, stock)
    if weights == "int8":
        _report("compressing weights to 8 bits")
    graph = compress(graph, weights)
    _write(graph, meta, out)
    folders.copy_text_files(folder, out)


def head_to_graph(folder: Path, head_folder: Path, weights: str, out: Path) -> None:
    """Converts an EAGLE head or Medusa heads, with the embedding and output rows of their target in `folder`."""
    _report("loading the draft head")
    model = load_module(folder, torch.float32, "cpu", None, backend="openvino")
    head = convert_medusa.load(head_folder) or load_head(head_folder, folders.read_config(folder))
    _report("converting to OpenVINO")
    graph, layers = build_head_graph(head, model) if isinstance(head, EagleHead) else convert_medusa.build(head, model)
    meta = {"layers": layers, "vocab_size": head.config.draft_vocab_size, "max_len": head.config.max_len}
    _write(compress(graph, weights), meta, out)
    np.save(out / "draft_ids.npy", head.draft_ids.numpy().astype(np.int32))


def _write(graph: Any, meta: dict[str, Any], out: Path) -> None:
    _report("writing the graph")
    ov.save_model(graph, out / "graph.xml", compress_to_fp16=False)
    (out / "attention.json").write_text(json.dumps(meta, indent=1))


def main(argv: list[str] | None = None) -> int:
    """Entry of the child process; a clear refusal is one line `refused: Kind: ...` and exit code 2."""
    parser = argparse.ArgumentParser(prog="draftproof.models.convert")
    parser.add_argument("job", choices=("gguf", "graph", "head"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", default="float32")
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--features", type=int, nargs="*", default=())
    parser.add_argument("--head", type=Path, default=None)
    options = parser.parse_args(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        if options.job == "gguf":
            gguf_to_folder(options.source, options.out)
        elif options.job == "head":
            head_to_graph(options.source, options.head, options.weights, options.out)
        else:
            folder_to_graph(options.source, options.weights, options.layers, options.out, options.features)
    except DraftproofError as error:
        print(f"refused: {type(error).__name__}: {error}", flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
