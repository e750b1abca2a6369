"""llama-cpp-python as a peer: `Llama.generate` on token ids, plain or with `LlamaPromptLookupDecoding`.

Options: model (a GGUF file), lookup (tokens of prompt lookup), ngram (longest n-gram looked up), threads, context,
flash (its fused attention, which is off as it comes).

Rounds are told by looking on: the draft model is asked through a wrapper that writes down where each round began and
what was offered. The engine draws from its target at every place and keeps a draft while it is what was drawn, so the
accepted drafts are the common beginning. Rows come from a second context over the same file, opened when first asked.

What it means otherwise than we do is refused: it cuts by top-p and min-p *before* the temperature, and its repetition
penalty leaves out the prompt.

Imports the standard library and the peer only. Does not know: draftproof, tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

_SEEDS = (1 << 32) - 1  # its own default seed, which means "any", is this number


class Peer:
    """One model in one configuration; one text at a time."""

    supports = frozenset({"top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty"})

    def __init__(
        self,
        model: str,
        *,
        lookup: int = 0,
        ngram: int = 3,
        threads: int | None = None,
        context: int = 1024,
        flash: bool = False,
    ) -> None:
        self._settings = {"model": model, "lookup": lookup, "ngram": ngram, "threads": threads, "context": context}
        self._settings["flash"] = flash
        self._watched: list[tuple[int, list[int]]] = []  # of each round: tokens before it, what was offered
        self._lookup, self._context = lookup, context
        self._scoring: Any = None
        self._llm = self._open(self._looking_on(lookup, ngram) if lookup else None)
        self.vocab_size: int | None = int(self._llm.n_vocab())

    def _open(self, draft: Any = None, rows: bool = False) -> Any:
        """rows: of every token; with a draft it keeps them, too, and without room for them a long text breaks off."""
        threads, context = self._settings["threads"], self._context
        given = {"n_ctx": context, "n_threads": threads, "n_threads_batch": threads, "last_n_tokens_size": context}
        given["flash_attn"] = self._settings["flash"]
        llama = import_module("llama_cpp").Llama
        return llama(
            self._settings["model"], verbose=False, draft_model=draft, logits_all=rows or draft is not None, **given
        )

    def _looking_on(self, lookup: int, ngram: int) -> Any:
        speculative = import_module("llama_cpp.llama_speculative")
        offer = speculative.LlamaPromptLookupDecoding(max_ngram_size=ngram, num_pred_tokens=lookup)
        watched = self._watched

        def offering(input_ids: Any, /, **named: Any) -> Any:
            offered = offer(input_ids, **named)
            watched.append((len(input_ids), [int(token) for token in offered]))
            return offered

        return offering

    def facts(self) -> dict[str, Any]:
        """As of `Peer`."""
        versions = {"llama-cpp-python": version("llama-cpp-python")}
        return {"engine": "llama-cpp-python", "settings": self._settings, "versions": versions}

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> dict[str, Any]:
        """As of `Peer`."""
        _check(asked)
        self._check_length(len(prompt) + asked["max_new_tokens"])
        tokens: list[int] = []
        finish = "length"
        self._watched[:] = [(len(prompt), [])]  # the prompt's own forward offers nothing
        self._llm.reset()
        self._llm.set_seed(_seed(asked["seed"] or 0))
        for token in self._llm.generate(list(prompt), reset=True, **_given(asked, tokens)):
            tokens.append(int(token))
            if token in asked["stop_ids"]:
                finish = "stop"
                break
            if len(tokens) == asked["max_new_tokens"]:
                break
        return {"tokens": tokens, "finish": finish, "rounds": self._rounds(len(prompt), tokens)}

    def _check_length(self, length: int) -> None:
        if length > self._context:
            raise ValueError(f"{length} tokens do not fit a context of {self._context}: raise the option context")

    def _rounds(self, num_prompt: int, tokens: Sequence[int]) -> list[list[int]] | None:
        if not self._lookup:
            return None
        begins = [before - num_prompt for before, _ in self._watched]
        rounds = []
        for begin, end, (_, offered) in zip(begins, [*begins[1:], len(tokens)], self._watched, strict=True):
            said = tokens[begin:end]
            accepted = next((i for i, (a, b) in enumerate(zip(said, offered, strict=False)) if a != b), None)
            num = min(len(said), len(offered)) if accepted is None else accepted
            rounds.append([len(said), num, min(num + 1, len(offered), len(said)), len(offered)])
        return rounds

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> None:
        """As of `Peer`: one forward over all ids."""
        self._logits(ids, len(ids) - num_rows, len(ids)).tofile(path)

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> dict[str, float]:
        """Largest difference of any logit from the forward over all ids, by how many tokens a step feeds."""
        whole = self._logits(ids, num_prompt, len(ids))
        found = {}
        for width in widths:
            rows = self._logits(ids, num_prompt, width)
            found[str(width)] = float(abs(rows - whole).max())
        return found

    def _logits(self, ids: Sequence[int], first: int, width: int) -> Any:
        """float32[len(ids) - first, V]: width >= len(ids) feeds all at once, else the first `first`, then by width."""
        self._check_length(len(ids))
        if self._scoring is None:
            self._scoring = self._open(rows=True)
        llm, text = self._scoring, [int(token) for token in ids]
        llm.reset()
        begin = first if width < len(text) else 0
        if begin:
            llm.eval(text[:begin])
        for start in range(begin, len(text), width):
            llm.eval(text[start : start + width])
        return llm.scores[first : len(text)].copy()

    def close(self) -> None:
        """Frees the model."""
        self._llm.close()
        if self._scoring is not None:
            self._scoring.close()


def _check(asked: Mapping[str, Any]) -> None:
    """Raises NotImplementedError for what would mean something else here."""
    cuts = [name for name, none in (("top_p", 1.0), ("min_p", 0.0)) if asked[name] != none]
    if cuts and asked["temperature"] not in (0, 1):
        raise NotImplementedError(f"llama.cpp cuts by {cuts[0]} before the temperature: leave it out, or ask for 1.0")


def _given(asked: Mapping[str, Any], tokens: list[int]) -> dict[str, Any]:
    """Arguments of `generate`; tokens: the text as it grows, which a minimum length looks at."""
    given: dict[str, Any] = {
        "temp": asked["temperature"],
        "top_k": asked["top_k"] or 0,
        "top_p": asked["top_p"],
        "min_p": asked["min_p"],
        "repeat_penalty": 1.0,
        "presence_penalty": asked["presence_penalty"],
        "frequency_penalty": asked["frequency_penalty"],
    }
    least, stops = asked["min_new_tokens"], list(asked["stop_ids"])
    if least and stops:

        def not_yet(_: Any, scores: Any) -> Any:  # what it is told of the text holds drafts, too: it is not used
            if len(tokens) < least:
                scores[stops] = -float("inf")
            return scores

        given["logits_processor"] = [not_yet]
    return given


def _seed(seed: int) -> int:
    """Its seeds have 32 bits: two that differ above them must not be the same text."""
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little") % _SEEDS
