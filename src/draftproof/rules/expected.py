"""How likely a draft is accepted, before the coin is thrown and once the text is known: less noise than counting.

p is the target law at a node, q the law the draft of that node comes from, x the token that the text has there.
`accept` is the chance that the draft is accepted; `keep` the chance that x came as an accepted draft, given the text.

- A draft d that was not drawn (theorem 1): accepted iff the target says d, so accept = p(d); keep = 1 if x = d, else 0.
- Rule `reject` (theorem 2): the mass accepted at y is min(p, q)(y), so accept = sum of min(p, q) = 1 - TV(p, q), and
  keep = min(p, q)(x) / p(x) = min(1, q(x)/p(x)).
- Rule `coupled` (theorem 5): both races are won by y with m(y) = 1 / sum_z max(p_z/p_y, q_z/q_y), so accept = sum of m,
  and keep = m(x) / p(x). As m <= min(p, q): (1 - TV)/(1 + TV) <= accept <= 1 - TV.

Statement. E[keep | the text before x] = accept, where x has law p. Given the text, drafts at different places are kept
independently, each with its `keep`: the chance that a round accepts k drafts is a product of keeps, and its mean over
texts is the frequency of such rounds. Proof: sum_x p(x) keep(x) is the sum of the accepted masses; a place's coins and
noise are its own, and what follows depends on the token, not on how it came. []

`meet` takes O(V log V): p_z/p_y >= q_z/q_y iff p_z/q_z >= p_y/q_y, so with the tokens sorted by p/q the sum over z is a
tail sum of p over p_y plus a head sum of q over q_y. A token with p = 0 or q = 0 never meets.

Does not know: logits, sequences, drafters. On object arrays of `Fraction` it is exact arithmetic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftproof.types import FloatArray


class Chance(NamedTuple):
    """Of one draft at one place of a text."""

    accept: float
    keep: float


def fixed(target_law: FloatArray, draft: int, token: int) -> Chance:
    """Of a draft that was not drawn. target_law float[V]."""
    return Chance(float(target_law[draft]), float(draft == token))


def reject(target_law: FloatArray, draft_law: FloatArray, token: int) -> Chance:
    """Of a draft drawn from draft_law float[V] and judged by the ratio test. A token that p excludes was no draft."""
    smaller = np.minimum(target_law, draft_law)
    return _chance(smaller.sum(dtype=_wide(smaller)), smaller[token], target_law[token])


def coupled(target_law: FloatArray, draft_law: FloatArray, token: int) -> Chance:
    """Of a draft that raced with the target's own noise. Laws float[V]."""
    ids, masses = _meetings(target_law, draft_law)
    return _chance(masses.sum(), masses[ids == token].sum(), target_law[token])


def meet(target_law: FloatArray, draft_law: FloatArray) -> FloatArray:
    """float64[V]: the probability that two races with shared noise are both won by each token."""
    ids, masses = _meetings(target_law, draft_law)
    dense = np.zeros(len(target_law), masses.dtype)
    dense[ids] = masses
    return dense


def _meetings(target_law: FloatArray, draft_law: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """(ids, masses) of the tokens that both laws have, in rising order of p/q."""
    exact = _wide(target_law)
    in_target, in_draft = target_law > 0, draft_law > 0
    both = np.flatnonzero(in_target & in_draft)
    p, q = target_law[both].astype(exact), draft_law[both].astype(exact)
    order = np.argsort(p / q)
    p, q = p[order], q[order]
    above = target_law[~in_draft].sum(dtype=exact) + np.cumsum(p[::-1])[::-1]  # of own and higher ratios
    below = draft_law[~in_target].sum(dtype=exact) + np.cumsum(q) - q
    return both[order], 1 / (above / p + below / q)


def _wide(array: FloatArray) -> np.dtype[Any]:
    return array.dtype if array.dtype == object else np.dtype(np.float64)


def _chance(accept: float, mass: float, target_mass: float) -> Chance:
    """Laws in float32 sum to 1 within rounding; chances never exceed it."""
    keep = float(mass) / float(target_mass) if target_mass > 0 else 0.0
    return Chance(min(1.0, float(accept)), min(1.0, keep))
