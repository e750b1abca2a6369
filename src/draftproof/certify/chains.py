"""A chain judged as a whole (rule `block`, theorem 6): what its drafts, coins and corrections are, place by place.

Whether a round reaches its k-th place depends on later drafts, too, so theirs are not the laws of theorem 2. Notation
of `rules.block`: w_k the weight of the chain so far, R_k = sum of (w_k p - q)+ at place k+1, h_k the chance of node k's
own test, and h_0 = 1. t is the number of drafts that are accepted; place k is reached iff t >= k-1.

Claims, each given x_1..x_{k-1} and that place k is reached:
(a) the candidate x_k has the law (h_{k-1} q + (1 - h_{k-1}) min(q, w_{k-1} p)) / w_{k-1};
(b) given x_k as well, it is accepted with chance w_k / (h_{k-1} + (1 - h_{k-1}) w_k);
(c) a correction has the law (w_{k-1} p - q)+ / R_{k-1}, whatever was refused.

Proof. By theorem 6, P(t >= k | x_1..x_k) = w_k. Node k-1 passes its own test, independent of later drafts and tests,
with chance h_{k-1}; so P(t >= k-1 | x_1..x_k) = h_{k-1} + (1 - h_{k-1}) w_k (at k = 1 it is 1). (b) is the quotient.
(a): before it is conditioned, x_k has law q; times that chance, with q w_k = min(q, w_{k-1} p), and divided by
P(t >= k-1 | x_1..x_{k-1}) = w_{k-1}. (c) is the rule itself, whose draw is fresh. []

All of it is known at the places that are reached: no law behind a refusal is needed. So one after the other, these
numbers are uniform given those before, as those of theorem 2 are.

Does not know: floats: on object arrays of `Fraction` it is exact arithmetic (its test enumerates the rule that way).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from draftproof.types import FloatArray


class Judged(NamedTuple):
    """One place that is reached. drawn: law float[V] of its candidate. chance: that the candidate is accepted.

    left: float[V], what a correction is drawn from. weight: of the chain with the candidate.
    """

    drawn: FloatArray
    chance: Any
    left: FloatArray
    weight: Any


def judged(law: FloatArray, draft_law: FloatArray, candidate: int, weight: Any, first: bool) -> Judged | None:
    """The place after a chain of this weight. law, draft_law: float[V], p and q. None where no chain can be there."""
    asked = weight * law
    rest = np.maximum(asked - draft_law, 0)
    missing = rest.sum()
    drawn, whole = draft_law[candidate], missing + 1 - weight
    if not drawn > 0 or not weight > 0:
        return None
    own = 1 if first or not whole > 0 else missing / whole
    longer = min(asked[candidate] / drawn, weight * 0 + 1)
    mixed = own * draft_law + (1 - own) * np.minimum(draft_law, asked)
    left = rest / missing if missing > 0 else law
    return Judged(mixed / mixed.sum(), longer / (own + (1 - own) * longer), left, longer)
