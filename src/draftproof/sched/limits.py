"""The bounds of a step, checked once.

Invariant: every running sequence fits into one step with the rows it must have, so that none ever waits for rows.

Does not know: the ledger (pages are its own bound), models, sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.errors import InvalidParams


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may run at once.

    max_len: the model's context limit, most tokens of prompt and output together.
    max_sequences: most sequences running at once.
    max_step_rows: most rows of one forward, all sequences together.
    chunk_rows: most rows of one prompt in one step; smaller keeps running texts smooth, larger reads prompts sooner.
    min_rows: rows each sequence must have in a step (the target's); a padding row is reserved, never kept.
    prefix_cache: full pages of prompts are kept for prompts that begin alike.
    """

    max_len: int
    max_sequences: int = 32
    max_step_rows: int = 512
    chunk_rows: int = 256
    min_rows: int = 1
    prefix_cache: bool = False

    def __post_init__(self) -> None:
        for name in ("max_len", "max_sequences", "max_step_rows", "chunk_rows", "min_rows"):
            if getattr(self, name) < 1:
                raise InvalidParams(f"{name} must be an integer >= 1, got {getattr(self, name)!r}")
        if self.max_step_rows < self.max_sequences * self.min_rows:
            raise InvalidParams(
                f"max_step_rows must be at least max_sequences x min_rows = {self.max_sequences * self.min_rows}, "
                f"so that every running sequence can run in each step, got {self.max_step_rows}"
            )
