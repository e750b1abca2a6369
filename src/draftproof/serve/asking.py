"""A checked body -> prompts as ids, and sampling parameters: what the library is asked for.

Defaults are the OpenAI API's: temperature 1, 16 tokens for a completion, a chat answer up to the context limit. Where
a body leaves the seed out, a fresh one is drawn here and returned; text i of a prompt has seed + i (modulo 2**64), the
same for every prompt of a list, so that one text is `LLM.generate` with that seed.

Does not know: who speculates, what is running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.engine import prompts as prompting
from draftproof.noise import fresh_seed
from draftproof.serve.errors import ApiError, naming
from draftproof.serve.schema import Asked, ChatAsked, CompletionAsked, Message, SpeculationAsked
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Ids, SamplingParams

_COMPLETION_TOKENS = 16
_NO_WISH = SpeculationAsked()


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """One request, ready to be made into texts: `num_choices` of each prompt."""

    prompts: tuple[Ids, ...]
    params: SamplingParams  # with the seed of the first text
    num_choices: int
    is_chat: bool
    echoes: tuple[str, ...]  # what stands before each prompt's texts
    wish: SpeculationAsked
    stream: bool
    include_usage: bool

    @property
    def trace(self) -> bool:
        """True where the answer tells where each token came from."""
        return bool(self.wish.trace)

    @property
    def seed(self) -> int:
        """The seed of the first text."""
        assert self.params.seed is not None
        return self.params.seed

    def texts(self) -> list[tuple[Ids, SamplingParams]]:
        """Prompt and parameters of each text, by index."""
        each = [replace(self.params, seed=(self.seed + i) % 2**64) for i in range(self.num_choices)]
        return [(prompt, params) for prompt in self.prompts for params in each]


def wanted_chat(body: ChatAsked, tokenizer: Tokenizer, vocab_size: int) -> Wanted:
    """Raises ApiError, or InputError of the library."""
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise ApiError(
            400, "give max_tokens or max_completion_tokens, not both", code="invalid_value", param="max_tokens"
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", code="invalid_value", param="top_logprobs")
    most = body.max_tokens if body.max_tokens is not None else body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    _check_ids(body, vocab_size)
    params = prompting.resolve(_sampling(body, most, logprobs), tokenizer, vocab_size)
    with naming("messages"):
        prompt = prompting.encode([_message(message) for message in body.messages], tokenizer, vocab_size, None)
    return Wanted((prompt,), params, body.n or 1, True, (), body.speculation or _NO_WISH, *_stream(body))


def wanted_completion(body: CompletionAsked, tokenizer: Tokenizer, vocab_size: int) -> Wanted:
    """Raises ApiError, or InputError of the library."""
    if body.echo and body.logprobs is not None:
        raise ApiError(400, "echo has no logprobs of the prompt: drop one of both", code="invalid_value", param="echo")
    most = _COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    _check_ids(body, vocab_size)
    params = prompting.resolve(_sampling(body, most, body.logprobs), tokenizer, vocab_size)
    given = _prompts(body.prompt)
    with naming("prompt"):
        prompts = tuple(prompting.encode(prompt, tokenizer, vocab_size, False) for prompt in given)
    echoes = tuple(
        prompt if isinstance(prompt, str) else tokenizer.decode(prompt) for prompt in (given if body.echo else ())
    )
    return Wanted(prompts, params, body.n or 1, False, echoes, body.speculation or _NO_WISH, *_stream(body))


def _check_ids(body: Asked, vocab_size: int) -> None:
    """Raises ApiError for an id without a token, naming the field it is in."""
    for name, ids in (("logit_bias", map(int, body.logit_bias or ())), ("stop_token_ids", body.stop_token_ids or ())):
        outside = next((token for token in ids if token >= vocab_size), None)
        if outside is not None:
            message = f"token id {outside} in {name} is outside the vocabulary of {vocab_size}"
            raise ApiError(400, message, code="invalid_value", param=name)


def _stream(body: Asked) -> tuple[bool, bool]:
    """(in chunks, with a last one for the usage)."""
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true", code="invalid_value", param="stream_options")
    return bool(body.stream), bool(body.stream_options and body.stream_options.include_usage)


def num_texts(body: ChatAsked | CompletionAsked) -> int:
    """How many texts a body asks for."""
    return (body.n or 1) * (1 if isinstance(body, ChatAsked) else len(_prompts(body.prompt)))


def _prompts(prompt: str | Sequence[Any]) -> list[Any]:
    """One or several prompts as a list."""
    return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else list(prompt)


def _message(message: Message) -> dict[str, Any]:
    content = message.content
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    return {"role": message.role, "content": text} | ({} if message.name is None else {"name": message.name})


def _sampling(body: Asked, most: int | None, logprobs: int | None) -> SamplingParams:
    """What was given; the rest as `SamplingParams` has it, but for the temperature and the cap."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    wish = body.speculation or _NO_WISH
    given: dict[str, Any] = {
        "top_k": body.top_k if body.top_k and body.top_k > 0 else None,
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "min_new_tokens": body.min_tokens,
        "ignore_eos": body.ignore_eos,
        "rule": wish.rule,
        "max_draft_tokens": wish.max_draft_tokens,
    }
    return SamplingParams(
        temperature=1.0 if body.temperature is None else body.temperature,
        logit_bias={int(token): value for token, value in (body.logit_bias or {}).items()},
        max_new_tokens=most,
        stop_ids=tuple(body.stop_token_ids or ()),
        stop=tuple(stop),
        seed=fresh_seed() >> 12 if body.seed is None else body.seed,  # 52 bits: JSON readers keep them
        logprobs=logprobs,
        **{name: value for name, value in given.items() if value is not None},
    )
