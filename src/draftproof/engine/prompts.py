"""Prompts as callers give them -> token ids; sampling parameters as callers give them -> resolved ones.

A prompt is a string, a list of token ids, or a list of chat messages. Resolved parameters have a seed, bad words as
token ids, and every id inside the vocabulary.

Does not know: the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftproof.errors import InvalidParams, InvalidPrompt
from draftproof.noise import fresh_seed
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Ids, SamplingParams

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


def is_single(prompts: object) -> bool:
    """True for one prompt, False for a list of prompts."""
    if isinstance(prompts, str):
        return True
    if not isinstance(prompts, Sequence) or not prompts:
        return False
    return isinstance(prompts[0], (int, np.integer, Mapping))


def encode(prompt: Any, tokenizer: Tokenizer, vocab_size: int, chat: bool | None) -> Ids:
    """int32[P] of a `Prompt` (arrays of ids too). chat: True makes a string a user message."""
    if isinstance(prompt, np.ndarray):
        prompt = prompt.tolist()
    if not isinstance(prompt, (str, Sequence)) or not len(prompt):
        raise InvalidPrompt("the prompt is empty: give a text, token ids or chat messages")
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
    """Ids that end this request's text."""
    own = frozenset() if params.ignore_eos else tokenizer.eos_ids
    return own | frozenset(params.stop_ids)
