"""openvino-genai as a peer: `LLMPipeline` or `ContinuousBatchingPipeline`, plain or with prompt lookup, on the CPU.

Options: model (a GGUF file or an OpenVINO folder), lookup (tokens of prompt lookup), ngram, pipeline ("llm" or
"batching"), properties (of the CPU plugin, such as KV_CACHE_PRECISION "f32"), attention ("PA", "SDPA", None: as it
comes), cache_gib.

Prefix caching is off in the batching pipeline; `LLMPipeline` has a switch for it in its scheduler only, which is used
where a scheduler may be given. It tells nothing of its rounds but their sums, so rounds are None.

Imports the standard library and the peer only. Does not know: draftproof, tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Options:
    """See above."""

    model: str
    lookup: int = 0
    ngram: int = 3
    pipeline: str = "llm"
    properties: Mapping[str, Any] = field(default_factory=dict)
    attention: str | None = None
    cache_gib: int | None = None


class Peer:
    """One pipeline in one configuration; one text at a time."""

    supports = frozenset({"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"})
    vocab_size: int | None = None

    def __init__(self, **options: Any) -> None:
        self._options = Options(**options)
        self._genai, self._tensor = import_module("openvino_genai"), import_module("openvino").Tensor
        if self._options.pipeline not in ("llm", "batching"):
            raise ValueError(f'pipeline must be "llm" or "batching", got {self._options.pipeline!r}')
        self._batching = self._options.pipeline == "batching"
        self._pipe = self._open()

    def _open(self) -> Any:
        options, given = self._options, dict(self._options.properties)
        if options.lookup:
            given["prompt_lookup"] = True
        scheduler = self._genai.SchedulerConfig()
        scheduler.cache_size, scheduler.enable_prefix_caching = options.cache_gib or 1, False
        if self._batching:
            return self._genai.ContinuousBatchingPipeline(options.model, scheduler, "CPU", given)
        if options.attention is not None:
            given["ATTENTION_BACKEND"] = options.attention
        if options.cache_gib is not None:
            given["scheduler_config"] = scheduler
        return self._genai.LLMPipeline(options.model, "CPU", **given)

    def facts(self) -> dict[str, Any]:
        """As of `Peer`."""
        versions = {name: version(name) for name in ("openvino-genai", "openvino")}
        return {"engine": "openvino-genai", "settings": asdict(self._options), "versions": versions}

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> dict[str, Any]:
        """As of `Peer`."""
        import numpy as np

        inputs = self._tensor(np.array([list(prompt)], np.int64))
        config = self._config(asked)
        if self._batching:
            (done,) = self._pipe.generate([inputs], [config])
            tokens = list(done.m_generation_ids[0])
        else:
            tokens = list(self._pipe.generate(inputs, config).tokens[0])
        if tokens[: len(prompt)] == list(prompt) and len(tokens) > asked["max_new_tokens"]:
            tokens = tokens[len(prompt) :]  # some pipelines repeat the prompt
        ended = bool(tokens) and tokens[-1] in asked["stop_ids"] and len(tokens) > asked["min_new_tokens"]
        return {"tokens": [int(token) for token in tokens], "finish": "stop" if ended else "length", "rounds": None}

    def scored(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> dict[str, Any]:
        """{"tokens", "logprobs"}: a text with its tokens' log-probabilities; of the batching pipeline only."""
        import numpy as np

        if not self._batching:
            raise NotImplementedError('log-probabilities come from pipeline "batching" only')
        config = self._config(asked)
        config.logprobs = 1
        handle = self._pipe.add_request(0, self._tensor(np.array([list(prompt)], np.int64)), config)
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
        (done,) = handle.read_all()
        return {"tokens": list(done.generated_ids), "logprobs": list(done.generated_log_probs), "score": done.score}

    def _config(self, asked: Mapping[str, Any]) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.min_new_tokens = asked["max_new_tokens"], asked["min_new_tokens"]
        config.do_sample = asked["temperature"] > 0
        config.repetition_penalty = asked["repetition_penalty"]
        config.presence_penalty, config.frequency_penalty = asked["presence_penalty"], asked["frequency_penalty"]
        if config.do_sample:
            if asked["min_p"]:
                config.min_p = asked["min_p"]
            config.temperature, config.top_p = asked["temperature"], asked["top_p"]
            if asked["top_k"]:
                config.top_k = asked["top_k"]
            config.rng_seed = asked["seed"] or 0
        if asked["stop_ids"]:
            config.stop_token_ids, config.eos_token_id = set(asked["stop_ids"]), asked["stop_ids"][0]
        else:
            config.ignore_eos = True
        if self._options.lookup:
            config.num_assistant_tokens, config.max_ngram_size = self._options.lookup, self._options.ngram
        return config

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> None:
        """It gives no rows."""
        raise NotImplementedError("openvino-genai gives no logits: take another reference")

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> dict[str, float]:
        """It gives no rows, so none can be compared."""
        raise NotImplementedError("no logits to compare")

    def close(self) -> None:
        """Frees the model."""
        del self._pipe
