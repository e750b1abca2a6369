"""Where the time of a step goes, and what came of the drafts. Counts; never steers.

Seconds are wall-clock sums over steps: `forward` inside the target's `verify`, `draft` inside `propose`, `total` the
whole step. Rates follow MISSION: acceptance = accepted / tested; tokens per round counts the correction or bonus.

Does not know: requests' texts, the clock's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.types import Commit


@dataclass(slots=True)
class Meter:
    """Running sums since the engine started (or since `reset`)."""

    steps: int = 0
    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    empty_residuals: int = 0
    forward_s: float = 0.0
    draft_s: float = 0.0
    total_s: float = 0.0

    def observe(self, commits: Sequence[Commit]) -> None:
        """Adds one step's outcomes; prompt chunks and failed rows decide nothing and are not rounds."""
        self.steps += 1
        for commit in commits:
            if commit.verdict is None:
                continue
            self.rounds += 1
            self.tokens += len(commit.tokens)
            self.drafted += commit.num_drafted
            self.tested += commit.num_tested
            self.accepted += commit.num_accepted
            self.empty_residuals += commit.verdict.empty_residuals

    def reset(self) -> None:
        """Back to zero."""
        fresh = Meter()
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    @property
    def overhead(self) -> float | None:
        """Share of the steps' time spent outside model forwards and drafting; None before the first step."""
        return (self.total_s - self.forward_s - self.draft_s) / self.total_s if self.total_s else None
