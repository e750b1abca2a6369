"""Tiny random models of every tested architecture, for both backends.

A test with an argument `arch` runs once for each name in ARCHITECTURES. `tiny_config(arch)` and `tiny_model(arch,
dtype)` are fixtures that give the functions; `architectures` gives the names. Models are the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
import transformers

from draftproof.models import convert
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.openvino_head import OpenVINOHead
from draftproof.types import Slots

VOCAB = 97
_COMMON = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_COMMON |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
_COMMON |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LAYERS = ["sliding_attention", "full_attention"]

# name -> (config class, settings over the common ones; None takes one away)
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "mistral_window": ("MistralConfig", {"sliding_window": 8}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 8}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0]}),
    "gpt2": ("GPT2Config", {"n_inner": 48}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "gemma": ("GemmaConfig", {"head_dim": 8}),
    "gemma2": (
        "Gemma2Config",
        {
            "head_dim": 8,
            "sliding_window": 8,
            "layer_types": _LAYERS,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 0.5,
            "final_logit_softcapping": 2.0,
        },
    ),
    "gemma3_text": (
        "Gemma3TextConfig",
        {"head_dim": 8, "sliding_window": 8, "layer_types": _LAYERS, "query_pre_attn_scalar": 8},
    ),
    "olmo": ("OlmoConfig", {}),
    "olmo2": ("Olmo2Config", {}),
    "phi": ("PhiConfig", {}),
    "phi3": ("Phi3Config", {"sliding_window": 8}),
    "stablelm": ("StableLmConfig", {}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": None}),
    "cohere": ("CohereConfig", {}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "sliding_window": None}),
}

ARCHITECTURES = tuple(_MODELS)


def make_config(arch: str) -> Any:
    """A config of this architecture: 2 layers, hidden size 32, 4 heads over 2 key-value heads, 97 tokens."""
    class_name, settings = _MODELS[arch]
    return getattr(transformers, class_name)(**(_COMMON | settings))


def make_model(arch: str, dtype: torch.dtype = torch.float64) -> Any:
    """A random model, large enough weights that tokens depend on far context; the same one at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(1234)
        config = make_config(arch)
        config.initializer_range = 0.3
        # grouped matrix products of experts have no float64 kernel
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation="eager")
    return model.eval()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """A tiny product takes longer to hand to a second thread than to compute."""
    torch.set_num_threads(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each architecture."""
    if "arch" in metafunc.fixturenames:
        metafunc.parametrize("arch", ARCHITECTURES)


@pytest.fixture(scope="session")
def architectures() -> tuple[str, ...]:
    """All names that `tiny_config` and `tiny_model` know."""
    return ARCHITECTURES


@pytest.fixture(scope="session")
def tiny_config() -> Any:
    """tiny_config(arch) -> config."""
    return make_config


@pytest.fixture(scope="session")
def tiny_model() -> Any:
    """tiny_model(arch, dtype=torch.float64) -> a fresh model, stock attention."""
    return make_model


class Tape:
    """Sequences on a target, with page tables dealt in a shuffled order; nothing is shared and nothing freed.

    `run` feeds rows of several sequences in one step and returns their logits; `kept` is what a caller keeps of them.
    """

    def __init__(self, target: Any, num_sequences: int = 1) -> None:
        self.target = target
        order = np.random.default_rng(0).permutation(target.num_pages).astype(np.int32)
        self.tables = np.split(order[: len(order) // num_sequences * num_sequences], num_sequences)
        self.kept = [0] * num_sequences

    def rows(self, seq: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Rows:
        """Rows that follow what is kept. With `parents`, the last len(parents) tokens are draft nodes."""
        nodes = range(len(tokens) - 1) if parents is None else parents
        slots = Slots(self.tables[seq], self.kept[seq], len(tokens))
        return Rows(np.array(tokens, np.int32), len(tokens) - len(nodes), slots, np.array(nodes, np.int32))

    def run(self, *rows: Rows) -> list[np.ndarray]:
        """For each sequence float[1 + nodes, V]."""
        output = self.target.verify(flat_batch(rows, self.target.min_rows))
        logits = [output.logits.row(i).copy() for i in range(output.offsets[-1])]
        return [np.array(logits[a:b]) for a, b in zip(output.offsets, output.offsets[1:], strict=False)]

    def feed(self, tokens: Sequence[int], seq: int = 0) -> np.ndarray:
        """float[T, V]: feeds and keeps."""
        logits = self.run(self.rows(seq, tokens))[0]
        self.kept[seq] += len(tokens)
        return logits


@pytest.fixture(scope="session")
def tape() -> Any:
    """tape(target, num_sequences=1) -> Tape."""
    return Tape


@pytest.fixture(scope="session")
def stock() -> Any:
    """stock(model, ids) -> float[T, V] of transformers' own forward, and the difference its own rounding explains."""

    @torch.inference_mode()
    def forward(model: Any, ids: Sequence[int]) -> np.ndarray:
        capped = getattr(model.config, "attn_logit_softcapping", None)
        model.set_attn_implementation("eager" if capped else "sdpa")
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()

    return forward


@pytest.fixture(scope="session")
def close() -> Any:
    """close(a, b, arch) asserts equality up to rounding, in the dtype of the arrays.

    float64: 1e-10 of the largest logit. gemma2: transformers' soft-capped attention (eager) takes its softmax in
    float32 even then, so 1e-5. float32: 1e-4, a hundred times what is seen.
    """

    def check(ours: np.ndarray, theirs: np.ndarray, arch: str = "") -> None:
        assert ours.shape == theirs.shape
        limit = 1e-4 if theirs.dtype == np.float32 else 1e-5 if arch == "gemma2" else 1e-10
        assert np.abs(ours - theirs).max() <= limit * max(1.0, np.abs(theirs).max())

    return check


@pytest.fixture(scope="session")
def converted_head() -> Any:
    """converted_head(head, target's module, folder) -> the head on OpenVINO in float32, its graph in the folder."""

    def make(head: Any, model: Any, folder: Path) -> OpenVINOHead:
        graph, layers = convert.build_head_graph(head, model)
        ov.save_model(graph, folder / "graph.xml", compress_to_fp16=False)
        meta = {"layers": layers, "vocab_size": len(head.draft_ids), "max_len": 128}
        (folder / "attention.json").write_text(json.dumps(meta))
        np.save(folder / "draft_ids.npy", head.draft_ids.numpy().astype(np.int32))
        return OpenVINOHead(folder, head.config, kv_bytes=1 << 20, threads=1)

    return make
