"""What both halves of the equality check are given, and how they open an engine.

Does not know: what is compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.workloads import Prompt
from draftproof import LLM

# Left to itself the engine stops guessing where guessing does not pay, and then shows nothing: hence the fixed draft
# lengths. Drafting with the demo model itself, nearly every draft is accepted, in trees along one of many branches;
# with the target's first layers (untrained for it), nearly every draft is refused.
DRAFTERS: dict[str, dict[str, str | int]] = {
    "none": {},
    "ngram": {},
    "suffix": {},
    "early_exit": {"gamma": 2},
    "fixed_tree": {"draft_model": "demo", "gamma": 6},
    "model": {"draft_model": "demo", "gamma": 4},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """One run of the equality check."""

    prompts: tuple[Prompt, ...]
    num_tokens: int
    drafters: tuple[str, ...]
    scratch: Path
    say: Callable[[str], None]


def open_llm(drafter: str, weights: str, say: Callable[[str], None]) -> LLM:
    """The demo model under invariant numerics. Raises NumericsError where this machine does not hold them."""
    return LLM("demo", drafter=drafter, weights=weights, numerics="invariant", progress=say, **DRAFTERS[drafter])


def set_chunk(llm: LLM, chunk_rows: int, max_step_rows: int) -> None:
    """How many rows of a prompt go into one step. The engine has no option for it, so this reaches inside."""
    scheduler = llm.built.engine.scheduler
    limits = scheduler._limits
    scheduler._limits = dataclasses.replace(limits, chunk_rows=chunk_rows, max_step_rows=max_step_rows)
