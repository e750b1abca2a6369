"""What a span says of a request: the attributes of vLLM's request spans by name, and draftproof's own.

`gen_ai.*` are OpenTelemetry's semantic conventions for generative AI, with the names that vLLM adds to them
(`gen_ai.latency.*`, `gen_ai.request.id`, `gen_ai.request.n`, `gen_ai.usage.num_sequences`) and its older pair of token
counts beside the current one; `draftproof.*` say who speculated and what came of it, named as in the answer.

Invariant: no prompt, no text, no key; what is not known is left out. Times are seconds. Counts of drafts are those of
the texts that ended.

Does not know: OpenTelemetry, where spans go.
"""

from __future__ import annotations

from typing import Any

from draftproof.serve.asking import Wanted
from draftproof.serve.errors import ApiError
from draftproof.serve.running import Settled

Attributes = dict[str, Any]  # str, bool, int, float, or a list of str


def of_request(wanted: Wanted, model: str, end: Settled) -> Attributes:
    """Of a request that was let in, however it ended."""
    note = end.note
    found = {
        **_asked(wanted, model),
        **_times(end),
        "gen_ai.request.id": note["id"],
        "gen_ai.response.id": note["id"],
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": note["finish"] or None,
        "gen_ai.usage.input_tokens": note["prompt_tokens"],
        "gen_ai.usage.output_tokens": note["completion_tokens"],
        "gen_ai.usage.prompt_tokens": note["prompt_tokens"],
        "gen_ai.usage.completion_tokens": note["completion_tokens"],
        "gen_ai.usage.num_sequences": len(wanted.prompts) * wanted.num_choices,
        "http.response.status_code": end.status,
        "error.type": None if end.status == 200 else str(end.status),
        **_speculation(note, wanted.params.resolved_rule),
    }
    return _known(found)


def of_refusal(error: ApiError) -> Attributes:
    """Of a request that was not let in."""
    return _known({"http.response.status_code": error.status, "error.type": error.code})


def _asked(wanted: Wanted, model: str) -> Attributes:
    params = wanted.params
    return {
        "gen_ai.operation.name": "chat" if wanted.is_chat else "text_completion",
        "gen_ai.provider.name": "draftproof",
        "gen_ai.request.model": model,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k,
        "gen_ai.request.max_tokens": params.max_new_tokens,
        "gen_ai.request.seed": _int64(params.seed),
        "gen_ai.request.n": wanted.num_choices,
        "gen_ai.request.choice.count": wanted.num_choices if wanted.num_choices > 1 else None,
        "gen_ai.request.stream": wanted.stream,
    }


def _times(end: Settled) -> Attributes:
    queue, first, whole = end.queue_s, end.ttft_s, end.seconds
    prefill = None if queue is None or first is None else first - queue
    return {
        "gen_ai.latency.time_in_queue": queue,
        "gen_ai.latency.time_to_first_token": first,
        "gen_ai.latency.e2e": whole,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_in_model_decode": None if first is None else whole - first,
        "gen_ai.latency.time_in_model_inference": None if queue is None else whole - queue,
    }


def _speculation(note: Attributes, rule: str) -> Attributes:
    tested, accepted = note["tested"], note["accepted"]
    return {
        "draftproof.bucket": note["bucket"],
        "draftproof.mode": note["mode"],
        "draftproof.stage": note["stage"],
        "draftproof.drafter": note["drafter"] or "none",
        "draftproof.rule": rule,
        "draftproof.num_draft_tokens": note["drafted"],
        "draftproof.num_tested_draft_tokens": tested,
        "draftproof.num_accepted_draft_tokens": accepted,
        "draftproof.acceptance": accepted / tested if tested else None,
    }


def _int64(value: int | None) -> int | None:
    """OpenTelemetry has no larger integers: a seed beyond them is left out."""
    return value if value is not None and value < 2**63 else None


def _known(found: Attributes) -> Attributes:
    return {name: value for name, value in found.items() if value is not None}
