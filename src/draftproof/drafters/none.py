"""No drafts: plain decoding through the same loop, the baseline of every comparison.

Does not know: anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.protocols import Noise
from draftproof.types import EMPTY_DRAFT, Commit, Draft, StepItem


class NoneDrafter:
    """Proposes nothing (D4: an empty draft is always legal)."""

    name = "none"
    wants: frozenset[str] = frozenset()

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One empty draft for each item."""
        return [EMPTY_DRAFT] * len(items)

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to drop."""
