"""What is measured beside what: groups of configurations that run in turn, and the loads of a server.

A group is loaded at once and its members take turns prompt by prompt, so that a busy minute of the machine hits all of
them alike; figures are compared within a group only. `stream` runs one prompt at a time, `batch` eight at once,
`ttft` asks for the time to the first token.

A load keeps a number of streams busy with requests and is put to one engine under several draft policies, in turn
(`serving.py`).

Does not know: processes, statistics, which ratios are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.workloads import BUCKETS

SEED = 7
SAMPLING = {"temperature": 0.8, "top_p": 0.9, "seed": SEED, "rule": "coupled"}

Mode = Literal["stream", "batch", "ttft"]


@dataclass(frozen=True, slots=True)
class Config:
    """One engine with one set of options. engine "ours" is draftproof; else the name of a peer in `bench.peers`."""

    name: str
    engine: str
    options: Mapping[str, Any]
    environment: str | None = None  # of `bench.environments`; None is our own
    model: Literal["folder", "gguf"] | None = None  # which form of the demo model a peer takes


@dataclass(frozen=True, slots=True)
class Group:
    """Configurations that take turns."""

    name: str
    title: str
    mode: Mode
    configs: tuple[Config, ...]
    sampling: Mapping[str, Any] = field(default_factory=dict)
    repeats: float = 1.0  # times the runner's --repeats


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams that are kept busy under each of some draft policies."""

    name: str
    streams: int
    bucket: str | None  # of its prompts; None mixes all
    num_requests: int  # of one run, the prompts in turn
    num_tokens: int  # of each text
    policies: tuple[str, ...]
    repeats: float = 1.0  # times the runner's --repeats
    peer: bool = False  # beside openvino-genai's continuous batching, at as many streams


def _ours(name: str, weights: str, numerics: str, drafter: str) -> Config:
    return Config(name, "ours", {"weights": weights, "numerics": numerics, "drafter": drafter})


def _peer(name: str, engine: str, environment: str | None, model: Literal["folder", "gguf"], drafted: int) -> Config:
    return Config(name, engine, {"drafted": drafted}, environment, model)


GENAI_PLAIN = _peer("openvino-genai", "openvino-genai", "openvino-genai", "gguf", 0)
GENAI_LOOKUP = _peer("openvino-genai, lookup 4", "openvino-genai", "openvino-genai", "gguf", 4)
GENAI_BATCHING = _peer("openvino-genai, batching", "openvino-genai-batching", "openvino-genai", "gguf", 0)
TRANSFORMERS = _peer("transformers float32", "transformers", None, "folder", 0)
TRANSFORMERS_LOOKUP = _peer("transformers float32, lookup 4", "transformers", None, "folder", 4)
VLLM = _peer("vllm bfloat16", "vllm", "vllm", "folder", 0)
VLLM_NGRAM = _peer("vllm bfloat16, ngram 4", "vllm", "vllm", "folder", 4)
LLAMACPP = _peer("llama-cpp-python", "llamacpp", "llamacpp", "gguf", 0)
LLAMACPP_LOOKUP = _peer("llama-cpp-python, lookup 10", "llamacpp", "llamacpp", "gguf", 10)

FLOAT32_PLAIN = _ours("ours float32 plain", "float32", "invariant", "none")
FLOAT32_FAST = _ours("ours float32 plain, fast", "float32", "fast", "none")
INT8_PLAIN = _ours("ours int8 plain", "int8", "invariant", "none")
INT8_FAST = _ours("ours int8 plain, fast", "int8", "fast", "none")
INT8_SUFFIX = _ours("ours int8 suffix", "int8", "invariant", "suffix")
INT8_NGRAM = _ours("ours int8 ngram", "int8", "invariant", "ngram")
INT8_EARLY_EXIT = _ours("ours int8 early_exit", "int8", "invariant", "early_exit")

GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        Group(
            "float32",
            "float32, one stream, greedy",
            "stream",
            (TRANSFORMERS, FLOAT32_PLAIN, FLOAT32_FAST, TRANSFORMERS_LOOKUP),
        ),
        Group(
            "int8",
            "int8 beside openvino-genai's 4 bits, one stream, greedy",
            "stream",
            (GENAI_PLAIN, INT8_FAST, INT8_PLAIN, GENAI_LOOKUP, INT8_SUFFIX, INT8_NGRAM, INT8_EARLY_EXIT),
        ),
        Group("streams", "eight streams at once, greedy", "batch", (GENAI_BATCHING, INT8_PLAIN, INT8_SUFFIX)),
        Group(
            "sampled",
            "one stream, temperature 0.8, top-p 0.9, coupled",
            "stream",
            (INT8_PLAIN, INT8_SUFFIX),
            sampling=SAMPLING,
        ),
        Group("ttft", "time to the first token", "ttft", (INT8_PLAIN, INT8_SUFFIX), repeats=3),
        Group(
            "others",
            "further peers, for information, one stream, greedy",
            "stream",
            (LLAMACPP, LLAMACPP_LOOKUP, VLLM, VLLM_NGRAM, INT8_SUFFIX),
            repeats=1 / 3,
        ),
    )
}

AUTO, OFF = "auto", "off"
GAMMAS: dict[str, int | None] = {AUTO: None, OFF: 0, **{f"gamma {gamma}": gamma for gamma in (1, 2, 4, 8)}}
SERVED_BATCHING = Config(
    GENAI_BATCHING.name, "openvino-genai-batching", {"drafted": 0, "streams": 8}, "openvino-genai", "gguf"
)


def _one_bucket(streams: int, bucket: str) -> Load:
    requests = 1 if streams == 1 else 4 * streams
    return Load(_streams(streams), streams, bucket, requests, 64, (AUTO, OFF), repeats=4 / 3 if streams == 1 else 1.0)


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"


LOADS: tuple[Load, ...] = (
    Load("8 streams, mixed", 8, None, 24, 128, tuple(GAMMAS), peer=True),
    Load("32 streams, mixed", 32, None, 96, 64, tuple(GAMMAS)),
    *(_one_bucket(streams, bucket) for streams in (1, 4, 8, 16) for bucket in BUCKETS),
)
