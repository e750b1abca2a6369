"""Is a first difference of two greedy texts a tie within the numeric drift, or a fault? Pure numbers.

Two implementations of one model round differently. Where the two largest logits lie closer together than the logits of
the two implementations do, either may come out on top, and no text is the wrong one. That is the only excuse, and it
has to be shown:
  - each implementation's own largest logit is the token it emitted (so nobody emitted something else than it computed);
  - the two tokens are the two largest logits of both;
  - the gap between them is, in both, at most the drift measured along this very text;
  - the drift itself is what rounding explains: a fault that shifts logits would otherwise excuse itself.

Does not know: models, engines. Rows are float[n, V], teacher-forced along the reference's text by each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Largest logit difference that float32 rounding explains here: 6 times what was seen between two correct
# implementations (1.6e-4 at logits up to 33, i.e. 40 units in the last place of float32 there).
DRIFT_CEILING = 1e-3

Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two texts, with both sides' logits of both tokens."""

    position: int
    reference_token: int
    our_token: int
    reference_logits: tuple[float, float]  # of (reference_token, our_token), by the reference
    our_logits: tuple[float, float]  # of the same two, by ours
    top_two: bool  # the two tokens are the two largest of both sides
    drift: float
    ceiling: float

    @property
    def reference_gap(self) -> float:
        """By how much the reference prefers its token."""
        return self.reference_logits[0] - self.reference_logits[1]

    @property
    def our_gap(self) -> float:
        """By how much we prefer ours."""
        return self.our_logits[1] - self.our_logits[0]

    @property
    def is_tie(self) -> bool:
        """True when the difference is shown to be a tie within the drift."""
        drift_is_rounding = self.drift <= self.ceiling
        # a teacher-forced row may round to the other side of the tie than the decoding row did: hence abs
        reference_is_close = abs(self.reference_gap) <= self.drift
        we_are_close = 0 <= self.our_gap <= self.drift
        return self.top_two and drift_is_rounding and reference_is_close and we_are_close

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        gaps = {"reference_gap": self.reference_gap, "our_gap": self.our_gap}
        return {**asdict(self), **gaps, "tie": self.is_tie}


def first_difference(reference: Sequence[int], ours: Sequence[int]) -> int | None:
    """Index of the first token that differs (an end that comes too soon differs too); None for equal texts."""
    for index, (expected, got) in enumerate(zip(reference, ours, strict=False)):
        if expected != got:
            return index
    return None if len(reference) == len(ours) else min(len(reference), len(ours))


def drift(reference_rows: Rows, our_rows: Rows) -> float:
    """Largest absolute difference of any logit. Raises ValueError for rows of unlike number or width."""
    if reference_rows.shape != our_rows.shape:
        raise ValueError(f"rows {reference_rows.shape} and {our_rows.shape} are not of the same text")
    return float(np.abs(reference_rows.astype(np.float64) - our_rows).max())


def _top_two(row: Rows) -> set[int]:
    return set(np.argpartition(row, -2)[-2:].tolist())


def examine(
    position: int, tokens: tuple[int, int], rows: tuple[Rows, Rows], measured_drift: float, ceiling: float
) -> Difference:
    """The difference at `position`: tokens and rows float[V] are (reference's, ours)."""
    theirs, ours = tokens
    pair = {theirs, ours}
    return Difference(
        position,
        theirs,
        ours,
        (float(rows[0][theirs]), float(rows[0][ours])),
        (float(rows[1][theirs]), float(rows[1][ours])),
        pair == _top_two(rows[0]) and pair == _top_two(rows[1]),
        measured_drift,
        ceiling,
    )
