"""Theorem 6 (`block`): a chain of drawn tokens judged as a whole, never shorter than token by token.

Notation. X_1..X_g is the chain, q_i the law that X_i was drawn from given the ones before, p_i the target's law there;
Q and P are their products along a path. The *weight* of a path is w_0 = 1, w_i = min(w_{i-1} p_i(X_i)/q_i(X_i), 1).

Rule. With R_i = sum over x of (w_i p_{i+1}(x) - q_{i+1}(x))+, test node i with chance h_i = R_i / (R_i + 1 - w_i) for
i < g, and node g with h_g = w_g; the tests are independent. Accept up to the deepest node that passes, t (0 if none
does: h_0 is not tested). Then emit one token: a draw from p_{g+1} if t = g, else from (w_t p_{t+1} - q_{t+1})+,
normalised.

Statement. (a) The text has the target's law. (b) A path of i tokens is drawn and accepted at least as often as under
theorem 2, for every i and path.

Proof. Let S_i = sum of min(w_i p_{i+1}, q_{i+1}); then R_i = w_i - S_i and h_i = (w_i - S_i) / (1 - S_i).
*First*: given X_1..X_i, P(t >= i) = w_i. True for i = g. Going up, given X_1..X_i the chance of t >= i+1 is the mean of
w_{i+1}, which is the sum of q_{i+1} min(w_i p_{i+1}/q_{i+1}, 1) = S_i, and h_i + (1 - h_i) S_i = w_i. (Where S_i = 1,
w_i = 1 and any h_i will do.)
*Then* (a), by induction on length: let E_i(x) be the chance that the first i tokens of the text are the path x, those
after the round being the target's. Suppose E_i = P_i. A text begins with x and y if the chain was accepted up to y, or
ended at x with y as its correction, or ended before x and the target went on: E_{i+1} = Q_i min(w_i p, q)(y) +
Q_i (w_i - S_i) (w_i p - q)+(y) / R_i + (E_i - Q_i w_i) p(y) = Q_i w_i p(y) + (P_i - Q_i w_i) p(y) = P_{i+1}, and the
same at i = g with the bonus.
(b) Theorem 2 accepts i tokens with Q_i times the product of min(p_j/q_j, 1), which is at most w_i, as min(w r, 1) >=
min(w, 1) min(r, 1). []

Source: Sun et al., "Block Verification Accelerates Speculative Decoding" (2024), algorithm 2; this proof is ours.

Invariant: every row of the chain is read, so a broken one is a RowError for its sequence wherever it lies.
Edges: a draft law that is no law ends the chain before its node, which is exact, and is counted. An empty residual (by
rounding only) leaves the target's law, and is counted.

Does not know: logits, where randomness comes from, floats: on object arrays of `Fraction` it is exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from draftproof.protocols import Coins
from draftproof.rules.reject import drawn_from
from draftproof.types import Draft, FloatArray, Source, Verdict


def is_chain(draft: Draft) -> bool:
    """True for a chain of drawn tokens: what this rule judges."""
    return draft.siblings == "iid" and draft.parents.tolist() == list(range(len(draft)))


def block(draft: Draft, target_law: Callable[[int], FloatArray], coins: Coins) -> Verdict:
    """Judges a chain of drawn tokens; target_law(node) is float[V], asked once for each node of the chain."""
    draft_laws = _whole_laws(draft)
    length = len(draft_laws)
    laws = [target_law(node) for node in range(length + 1)]
    weights = _weights(draft.tokens[:length].tolist(), laws, draft_laws)
    last = _accepted(weights, laws, draft_laws, coins)
    path, broken = tuple(range(1, last + 1)), length < len(draft)
    if last == length:
        source: Source = "correction" if broken else "bonus"
        tested = min(last + 1, len(draft))
        return Verdict(path, coins.draw(last, laws[last]), source, tested, int(broken))
    left = np.maximum(weights[last] * laws[last] - draft_laws[last], 0)
    empty = not left.sum() > 0
    token = coins.draw(last, laws[last] if empty else left)
    return Verdict(path, token, "correction", last + 1, int(empty))


def _whole_laws(draft: Draft) -> list[FloatArray]:
    """The laws of the chain's tokens, up to the first that is no law."""
    found: list[FloatArray] = []
    for node in range(1, len(draft) + 1):
        law = drawn_from(draft, node, [])
        if law is None:
            break
        found.append(law)
    return found


def _weights(tokens: Sequence[int], laws: Sequence[FloatArray], draft_laws: Sequence[FloatArray]) -> list[Any]:
    """w_0, w_1, ...: the chance that the chain is accepted at least so far, given its tokens."""
    one = laws[0][0] * 0 + 1  # of the laws' own kind
    weights = [one]
    for token, law, draft_law in zip(tokens, laws, draft_laws, strict=False):
        asked, drawn = weights[-1] * law[token], draft_law[token]
        weights.append(one if 0 < drawn <= asked else asked / drawn if drawn > 0 else asked * 0)
    return weights


def _accepted(
    weights: Sequence[Any], laws: Sequence[FloatArray], draft_laws: Sequence[FloatArray], coins: Coins
) -> int:
    """The deepest node that passes its test."""
    length = len(draft_laws)
    for node in range(length, 0, -1):
        weight = weights[node]
        if node == length:
            passes = coins.accept(node, weight, weight * 0 + 1)
        else:
            left = np.maximum(weight * laws[node] - draft_laws[node], 0).sum()
            passes = coins.accept(node, left, left + 1 - weight)
        if passes:
            return node
    return 0
