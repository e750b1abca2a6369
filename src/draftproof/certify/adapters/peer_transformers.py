"""transformers' `generate` as a peer: plain, with prompt lookup, or with an assistant model.

Options: model (a folder), lookup (tokens of prompt lookup), ngram (longest n-gram that is looked up), assistant (a
folder), assistant_layers (the model's own first layers as its assistant), assistant_noise (weights of that assistant
are moved by this share of their spread: 0 and all layers is the model itself), assistant_tokens, threads, dtype.

Rounds are told by looking on: the candidate generator is asked through a wrapper that writes down where each round
began and what was offered. A refused candidate is never what is emitted in its place (the residual leaves it out; and
without draft laws it is refused *because* another token was drawn), so the accepted drafts are the common beginning.

Imports the standard library and the peer only. Does not know: draftproof, tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Options:
    """See above."""

    model: str
    lookup: int = 0
    ngram: int = 3
    assistant: str | None = None
    assistant_layers: int | None = None
    assistant_noise: float = 0.0
    assistant_tokens: int = 4
    threads: int | None = None
    dtype: str = "float32"


class Peer:
    """One model in one configuration; one text at a time."""

    supports = frozenset({"top_k", "top_p", "min_p", "repetition_penalty"})

    def __init__(self, **options: Any) -> None:
        import torch
        import transformers

        self._options = Options(**options)
        if self._options.lookup and (self._options.assistant or self._options.assistant_layers):
            raise ValueError("give lookup, or an assistant, not both")
        if self._options.threads is not None:
            torch.set_num_threads(self._options.threads)
        self._torch, self._transformers = torch, transformers
        self._model = self._load(self._options.model)
        self.vocab_size: int | None = int(self._model.config.vocab_size)
        self._extra = self._speculation()
        self._watched: list[tuple[int, list[int]]] = []  # of each round: tokens before it, what was offered
        if self._extra:
            self._watch()

    def _load(self, folder: str) -> Any:
        kind = getattr(self._torch, self._options.dtype)
        model = self._transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=kind).eval()
        model.generation_config = self._transformers.GenerationConfig()  # nothing but what is asked for
        return model

    def _speculation(self) -> dict[str, Any]:
        options = self._options
        if options.lookup:
            return {"prompt_lookup_num_tokens": options.lookup, "max_matching_ngram_size": options.ngram}
        if options.assistant:
            helper = self._load(options.assistant)
        elif options.assistant_layers:
            helper = self._shortened(options.assistant_layers, options.assistant_noise)
        else:
            return {}
        helper.generation_config.num_assistant_tokens = options.assistant_tokens
        return {"assistant_model": helper}

    def _shortened(self, num_layers: int, noise: float) -> Any:
        """The model's first layers, with its own embedding and head, its weights moved at random."""
        torch = self._torch
        helper = self._load(self._options.model)
        base = getattr(helper, helper.base_model_prefix)
        base.layers = base.layers[:num_layers]
        helper.config.num_hidden_layers = num_layers
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for layer in base.layers if noise else ():
                for weight in layer.parameters():
                    if weight.dim() > 1:
                        weight += noise * weight.std() * torch.randn(weight.shape, generator=rng).to(weight.dtype)
        return helper

    def _watch(self) -> None:
        """Every candidate generator of this model is looked over the shoulder of."""
        make, watched = self._model._get_candidate_generator, self._watched

        def making(*args: Any, **kwargs: Any) -> Any:
            generator = make(*args, **kwargs)
            offer = generator.get_candidates

            def offering(input_ids: Any, *more: Any, **named: Any) -> Any:
                candidates, logits = offer(input_ids, *more, **named)
                before = input_ids.shape[1]
                watched.append((before, candidates[0, before:].tolist()))
                return candidates, logits

            generator.get_candidates = offering
            return generator

        self._model._get_candidate_generator = making

    def facts(self) -> dict[str, Any]:
        """As of `Peer`."""
        settings = {name: value for name, value in asdict(self._options).items() if value}
        versions = {name: version(name) for name in ("transformers", "torch")}
        return {"engine": "transformers", "settings": settings, "versions": versions}

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> dict[str, Any]:
        """As of `Peer`."""
        torch = self._torch
        config = self._config(asked)
        torch.manual_seed(asked["seed"] or 0)
        self._watched.clear()
        inputs = torch.tensor([list(prompt)])
        helper = {name: value for name, value in self._extra.items() if name == "assistant_model"}
        with torch.inference_mode():
            out = self._model.generate(
                inputs, attention_mask=torch.ones_like(inputs), generation_config=config, **helper
            )
        tokens = out[0, len(prompt) :].tolist()
        ended = bool(tokens) and tokens[-1] in asked["stop_ids"] and len(tokens) > asked["min_new_tokens"]
        rounds = self._rounds(len(prompt), tokens) if self._extra else None
        return {"tokens": tokens, "finish": "stop" if ended else "length", "rounds": rounds}

    def _config(self, asked: Mapping[str, Any]) -> Any:
        temperature, lookup = asked["temperature"], {k: v for k, v in self._extra.items() if k != "assistant_model"}
        given: dict[str, Any] = {
            "max_new_tokens": asked["max_new_tokens"],
            "eos_token_id": list(asked["stop_ids"]) or None,
            "pad_token_id": 0,
            "do_sample": temperature > 0,
            "repetition_penalty": asked["repetition_penalty"],
        }
        if asked["min_new_tokens"]:
            given["min_new_tokens"] = asked["min_new_tokens"]
        if temperature > 0:
            given |= {"temperature": temperature, "top_k": asked["top_k"] or 0, "top_p": asked["top_p"]}
            if asked["min_p"]:
                given["min_p"] = asked["min_p"]
        return self._transformers.GenerationConfig(**given, **lookup)

    def _rounds(self, num_prompt: int, tokens: Sequence[int]) -> list[list[int]]:
        begins = [before - num_prompt for before, _ in self._watched]
        rounds = []
        for begin, end, (_, offered) in zip(begins, [*begins[1:], len(tokens)], self._watched, strict=True):
            said = tokens[begin:end]
            accepted = next((i for i, (a, b) in enumerate(zip(said, offered, strict=False)) if a != b), None)
            num = min(len(said), len(offered)) if accepted is None else accepted
            rounds.append([len(said), num, min(num + 1, len(offered), len(said)), len(offered)])
        return rounds

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> None:
        """As of `Peer`: one forward over all ids, without a cache."""
        with self._torch.inference_mode():
            inputs = self._torch.tensor([list(ids)])
            rows = self._model(input_ids=inputs, use_cache=False, logits_to_keep=num_rows).logits[0]
        rows.float().numpy().tofile(path)

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> dict[str, float]:
        """Largest difference of any logit from the forward over all ids, by how many tokens a step feeds."""
        torch, key = self._torch, "cache" if "cache" in inspect.signature(self._model.forward).parameters else None
        key = key or "past_key_values"
        text = torch.tensor([list(ids)])
        found = {}
        with torch.inference_mode():
            whole = self._model(input_ids=text, use_cache=False, logits_to_keep=len(ids) - num_prompt).logits[0]
            for width in widths:
                out, worst = self._model(input_ids=text[:, :num_prompt], use_cache=True), 0.0
                for begin in range(num_prompt, len(ids), width):
                    part = text[:, begin : begin + width]
                    out = self._model(input_ids=part, use_cache=True, **{key: getattr(out, key)})
                    same = whole[begin - num_prompt : begin - num_prompt + part.shape[1]]
                    worst = max(worst, float((out.logits[0] - same).abs().max()))
                found[str(width)] = worst
        return found

    def close(self) -> None:
        """Nothing is held."""
