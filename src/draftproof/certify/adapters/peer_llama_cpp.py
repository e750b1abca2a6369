"""llama-cpp-python as a peer: `Llama.generate` on token ids, plain or with `LlamaPromptLookupDecoding`.

Options: model (a GGUF file), lookup (tokens of prompt lookup), ngram, threads, context.

It tells nothing of its rounds, so rounds are None.

Imports the standard library and the peer only. Does not know: draftproof, tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any


class Peer:
    """One model in one configuration; one text at a time."""

    supports = frozenset({"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"})

    def __init__(
        self, model: str, *, lookup: int = 0, ngram: int = 3, threads: int | None = None, context: int = 2048
    ) -> None:
        llama_cpp = import_module("llama_cpp")

        draft = None
        if lookup:
            speculative = import_module("llama_cpp.llama_speculative")
            draft = speculative.LlamaPromptLookupDecoding(max_ngram_size=ngram, num_pred_tokens=lookup)
        self._settings = {"model": model, "lookup": lookup, "ngram": ngram, "threads": threads, "context": context}
        self._llm = llama_cpp.Llama(
            model, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False, draft_model=draft
        )
        self.vocab_size: int | None = int(self._llm.n_vocab())

    def facts(self) -> dict[str, Any]:
        """As of `Peer`."""
        versions = {"llama-cpp-python": version("llama-cpp-python")}
        return {"engine": "llama-cpp-python", "settings": self._settings, "versions": versions}

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> dict[str, Any]:
        """As of `Peer`."""
        if asked["min_new_tokens"] and asked["stop_ids"]:
            raise NotImplementedError("a minimum length can't be asked of llama-cpp-python's generate")
        self._llm.reset()
        self._llm.set_seed((asked["seed"] or 0) % (1 << 32))
        told = self._llm.generate(
            list(prompt),
            temp=asked["temperature"],
            top_k=asked["top_k"] or 0,
            top_p=asked["top_p"],
            min_p=asked["min_p"],
            repeat_penalty=asked["repetition_penalty"],
            present_penalty=asked["presence_penalty"],
            frequency_penalty=asked["frequency_penalty"],
            reset=True,
        )
        tokens: list[int] = []
        for token in told:
            tokens.append(int(token))
            if token in asked["stop_ids"]:
                return {"tokens": tokens, "finish": "stop", "rounds": None}
            if len(tokens) == asked["max_new_tokens"]:
                break
        return {"tokens": tokens, "finish": "length", "rounds": None}

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> None:
        """Not asked for yet."""
        raise NotImplementedError("llama-cpp-python's logits are not read: take another reference")

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> dict[str, float]:
        """It gives no rows, so none can be compared."""
        raise NotImplementedError("no logits to compare")

    def close(self) -> None:
        """Frees the model."""
        self._llm.close()
