"""Plain decoding beside speculative decoding of one prompt: same engine, same seed, no drafts.

Invariant: both runs use the same target, numerics and sampling parameters; only `max_draft_tokens` is 0 in the plain
one. Speed is decode tokens per second, after the first token, so that neither loading nor the prompt counts.

Does not know: printing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from draftproof.engine.outputs import Output
from draftproof.noise import fresh_seed
from draftproof.types import SamplingParams

if TYPE_CHECKING:
    from draftproof.engine.llm import LLM
    from draftproof.engine.prompts import Prompt


def with_seed(params: SamplingParams) -> SamplingParams:
    """The same parameters with a seed that both runs use."""
    return params if params.seed is not None else replace(params, seed=fresh_seed())


def run_plain(llm: LLM, prompt: Prompt, params: SamplingParams, chat: bool | None) -> Output:
    """The prompt without drafts."""
    return llm.generate([prompt], replace(params, max_draft_tokens=0), chat=chat)[0]


def warm_up(llm: LLM) -> None:
    """A few tokens that nobody sees: the first steps of an engine pay for memory and kernels once."""
    llm.generate([[0, 0, 0]], SamplingParams(max_new_tokens=4, ignore_eos=True))


def speedup(plain: Output, output: Output) -> float | None:
    """How many times as fast; None where a text is too short to have a speed."""
    slow, fast = plain.timing.decode_tokens_per_second, output.timing.decode_tokens_per_second
    return fast / slow if slow and fast else None


def first_difference(llm: LLM, plain: Output, output: Output) -> dict[str, Any] | None:
    """Where two outputs part, with the target's logits there; None when their tokens are equal.

    position: 0-based, in output tokens. A token (and its logit) is None where that output had already ended.
    """
    ours, theirs = plain.token_ids, output.token_ids
    if ours == theirs:
        return None
    pairs = zip(ours, theirs, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    row = llm.logits_at(plain.prompt_token_ids, ours, position)

    def logit(tokens: list[int]) -> tuple[int | None, float | None]:
        if position >= len(tokens):
            return None, None
        value = float(row[tokens[position]])
        return tokens[position], value if math.isfinite(value) else None

    plain_token, plain_logit = logit(ours)
    token, own_logit = logit(theirs)
    return {
        "position": position,
        "plain_token": plain_token,
        "token": token,
        "plain_logit": plain_logit,
        "logit": own_logit,
    }


def comparison(llm: LLM, plain: Output, output: Output) -> dict[str, Any]:
    """plain, speedup, identical and first_difference, JSON-ready."""
    same = plain.token_ids == output.token_ids and plain.text == output.text
    return {
        "plain": {"text": plain.text, "token_ids": plain.token_ids, "timing": plain.timing.as_dict()},
        "speedup": speedup(plain, output),
        "identical": same,
        "first_difference": first_difference(llm, plain, output),
    }
