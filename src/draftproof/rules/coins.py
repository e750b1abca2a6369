"""Production coins of the ratio rule: uniform numbers used once, looked up by (seed, "test", round, node).

Node i owns two numbers, 2i for its test and 2i + 1 for the draw after it, so that the order of asking changes nothing
and no number serves two purposes. The draft's own draws are another purpose of the noise.

Invariant: a test passes iff u * draft_mass < target_mass, compared in float64 (a float32 product could round u up to
1); a draw never returns a token of weight 0 nor an index out of range, also for u = 0 and for u just below 1.

Does not know: drafts, laws' origin, engines.
"""

from __future__ import annotations

import numpy as np

from draftproof.errors import RowError
from draftproof.protocols import Noise
from draftproof.types import FloatArray


def draw(weights: FloatArray, uniform: float) -> int:
    """The token whose slice of the weights float[V] holds `uniform` in [0, 1): inverse CDF, summed in float64.

    Drafters draw by this function too, from the very row they report (D1). Raises RowError if the weights have no sum.
    """
    cumulative = np.cumsum(weights, dtype=np.float64)
    total = cumulative[-1]
    if not 0 < total < np.inf:
        raise RowError(f"can't draw from weights that sum to {total}: the law of this row is broken")
    token = int(np.searchsorted(cumulative, uniform * total, side="right"))  # the first to *exceed*: weight > 0
    if token < len(cumulative):
        return token
    return int(np.searchsorted(cumulative, total, side="left"))  # uniform * total rounded up to total


class RoundCoins:
    """`protocols.Coins` of one round of one sequence."""

    def __init__(self, noise: Noise, seed: int, round_: int, num_nodes: int) -> None:
        self._numbers = noise.uniform(seed, "test", round_, 2 * (num_nodes + 1)).tolist()

    def accept(self, node: int, target_mass: float, draft_mass: float) -> bool:
        """True with probability min(1, target_mass / draft_mass), without a division."""
        return bool(self._numbers[2 * node] * float(draft_mass) < float(target_mass))

    def draw(self, node: int, weights: FloatArray) -> int:
        """A token after `node` with probability proportional to weights float[V]."""
        return draw(weights, self._numbers[2 * node + 1])
