"""Prompts as callers give them -> token ids; sampling parameters as callers give them -> resolved ones.

A prompt is a string, a list of token ids, or a list of chat messages. Resolved parameters have a seed, bad words as
token ids, and every id inside the vocabulary.

Does not know: the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftproof.errors import InvalidParams, InvalidPrompt
from draftproof.noise import fresh_seed
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Ids, SamplingParams

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


def as_list(prompts: Any) -> list[Any]:
    """A list of prompts from one prompt or several (any iterable of them)."""
    if isinstance(prompts, np.ndarray):
        prompts = prompts.tolist()
    if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, Iterable):
        return [prompts]
    many = list(prompts)
    single = not many or isinstance(many[0], (int, float, np.number, Mapping)) or many[0] is None
    return [many] if single else many


def encode(prompt: Any, tokenizer: Tokenizer, vocab_size: int, chat: bool | None) -> Ids:
    """int32[P] of a `Prompt` (arrays of ids too). chat: True makes a string a user message."""
    if isinstance(prompt, np.ndarray):
        prompt = prompt.tolist()
    if not isinstance(prompt, (str, Sequence)) or isinstance(prompt, bytes):
        raise InvalidPrompt(f"a prompt must be a string, token ids or chat messages, got a {type(prompt).__name__}")
    if not len(prompt):
        raise InvalidPrompt("the prompt is empty: give a text, token ids or chat messages")
    if isinstance(prompt, str) and any("\ud800" <= char <= "\udfff" for char in prompt):
        raise InvalidPrompt("the prompt is not valid Unicode text: it was not UTF-8 where it came from")
    if isinstance(prompt, str):
        ids = tokenizer.chat([{"role": "user", "content": prompt}]) if chat else tokenizer.encode(prompt)
    elif all(isinstance(part, Mapping) for part in prompt):
        ids = tokenizer.chat(prompt)
    elif all(isinstance(part, (int, np.integer)) and not isinstance(part, bool) for part in prompt):
        ids = [int(part) for part in prompt]
    else:
        raise InvalidPrompt("a prompt must be a string, a list of token ids, or a list of chat messages")
    if not ids:
        raise InvalidPrompt("the prompt has no tokens: give a text, token ids or chat messages")
    outside = next((i for i in ids if not 0 <= i < vocab_size), None)
    if outside is not None:
        raise InvalidPrompt(f"token id {outside} is outside the vocabulary of {vocab_size}")
    return np.array(ids, np.int32)


def resolve(params: SamplingParams, tokenizer: Tokenizer, vocab_size: int) -> SamplingParams:
    """A seed for requests without one, strings of bad words as ids (at the start of a text and after a space)."""
    words: list[tuple[int, ...]] = []
    for word in params.bad_words:
        if not isinstance(word, str):
            words.append(tuple(word))
            continue
        for form in dict.fromkeys((word, " " + word.lstrip())):
            ids = tuple(tokenizer.encode(form, special=False))
            if ids and ids not in words:
                words.append(ids)
    used = {*params.logit_bias, *params.stop_ids, *(token for word in words for token in word)}
    outside = next((token for token in used if token >= vocab_size), None)
    if outside is not None:
        raise InvalidParams(
            f"token id {outside} in logit_bias, stop_ids or bad_words is outside the vocabulary of {vocab_size}"
        )
    if params.logprobs is not None and params.logprobs > vocab_size:
        raise InvalidParams(f"logprobs must be at most the vocabulary of {vocab_size}, got {params.logprobs}")
    seed = fresh_seed() if params.seed is None else params.seed
    return replace(params, bad_words=tuple(words), seed=seed)


def stop_ids(params: SamplingParams, tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end this request's text: the model's, the request's, and stop strings that are special tokens."""
    own = frozenset() if params.ignore_eos else tokenizer.eos_ids
    marks = [ids[0] for ids in (tokenizer.encode(text, special=False) for text in params.stop) if len(ids) == 1]
    return own | frozenset(params.stop_ids) | (frozenset(marks) & tokenizer.special_ids)
