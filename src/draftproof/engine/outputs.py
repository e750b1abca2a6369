"""What a caller gets back: the text, its tokens, and what speculation did for it.

Rates: acceptance = accepted / tested (None when nothing was tested); tokens per round counts the correction or bonus
token, over every target pass that decided for this request, drafts or not; `acceptance_by_position[i]` is the share of
rounds with drafts whose draft token i+1 was accepted (and so were those before it).

Does not know: the engine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from draftproof.types import FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counts of one output, after its text was cut where it ends."""

    drafter: str
    rule: str
    rounds: int  # target passes that decided tokens
    drafting_rounds: int
    drafted: int
    tested: int
    accepted: int
    acceptance: float | None  # accepted / tested
    draft_acceptance_rate: float | None  # accepted / drafted
    acceptance_by_position: tuple[float, ...]
    tokens_per_round: float | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "acceptance_by_position": list(self.acceptance_by_position)}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `ttft_s` from submission to the first token; `decode_s` from there to the last one."""

    load_s: float
    ttft_s: float | None
    decode_s: float
    decode_tokens_per_second: float | None  # of the tokens after the first step's

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Output:
    """One finished request. `token_ids` include the end-of-sequence id that ended it; `text` does not."""

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: FinishReason
    logprobs: list[TokenLogprobs] | None
    speculation: Speculation
    timing: Timing
    seed: int  # resolved: the same seed gives the same tokens again
    error: str | None = None
    cached_tokens: int = 0  # of the prompt, whose rows the prefix cache had

    @property
    def usage(self) -> dict[str, int]:
        """Token counts by the names of the OpenAI API."""
        prompt, completion = len(self.prompt_token_ids), len(self.token_ids)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of a stream. `text` is final; `num_accepted` of `token_ids`, the first ones, were accepted drafts."""

    text: str
    token_ids: tuple[int, ...]
    num_accepted: int
    output: Output | None = None  # with the last chunk
