"""What a request's body holds, by who the server is: OpenAI's own fields, and what vLLM and draftproof take beside.

Endings are the job's: where a server can be told, it forgets its own and gets the job's ids.

Invariant: what has no field is an InvalidParams by name.

Does not know: connections, answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from draftproof.certify.types import Job
from draftproof.errors import InvalidParams
from draftproof.params import SamplingParams

Dialect = Literal["draftproof", "vllm", "openai"]
_DEFAULTS = SamplingParams()
_OPENAI = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "max_new_tokens"})
_COMMON = _OPENAI | {"seed", "stop", "logprobs", "ignore_eos"}
_WIDE = _COMMON | {"top_k", "min_p", "repetition_penalty", "min_new_tokens", "stop_ids"}
_KNOWN: dict[Dialect, frozenset[str]] = {
    "openai": _COMMON,
    "vllm": _WIDE,
    "draftproof": _WIDE | {"rule", "max_draft_tokens"},
}


def detect(model: Mapping[str, Any]) -> Dialect:
    """By an entry of /v1/models."""
    owner = model.get("owned_by")
    return owner if owner in ("draftproof", "vllm") else "openai"


def body_of(job: Job, dialect: Dialect, speculation: bool | None = None) -> dict[str, Any]:
    """All but model and prompt. Raises InvalidParams."""
    params = job.params
    for each in fields(params):
        if each.name not in _KNOWN[dialect] and getattr(params, each.name) != getattr(_DEFAULTS, each.name):
            raise InvalidParams(f"a server of kind {dialect} can't be asked for {each.name}: leave it out")
    body = _common(params)
    if dialect == "openai":
        return {**body, "logprobs": params.logprobs or 1}  # names of tokens come with log-probabilities only
    body |= {
        "top_k": params.top_k or -1,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "min_tokens": params.min_new_tokens,
        "ignore_eos": True,
        "stop_token_ids": sorted(job.stop_ids),
    }
    if dialect == "vllm":
        return {**body, "return_token_ids": True}
    wish: dict[str, Any] = {"trace": True, "enabled": speculation, "max_draft_tokens": params.max_draft_tokens}
    wish |= {} if params.rule == "auto" else {"rule": params.rule}
    return {**body, "speculation": {name: value for name, value in wish.items() if value is not None}}


def _common(params: SamplingParams) -> dict[str, Any]:
    if params.logprobs_mode != "raw" and params.logprobs is not None:
        raise InvalidParams("servers report raw log-probabilities: leave logprobs_mode out")
    if params.max_new_tokens is None:
        raise InvalidParams("a text needs a length: give max_new_tokens")
    body: dict[str, Any] = {
        "max_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "seed": params.seed,
    }
    if params.logit_bias:
        body["logit_bias"] = {str(token): max(-100.0, value) for token, value in params.logit_bias.items()}
    if params.stop:
        body["stop"] = list(params.stop)
    if params.logprobs is not None:
        body["logprobs"] = params.logprobs
    return body
