"""Theorems 2 and 3 (`reject`): the ratio test and its residual, for a chain and for trees of drawn siblings.

Notation of the proofs: p is the target law at a node, q the law that the candidate was really drawn from.

Theorem 2 (one candidate). Hypotheses: x ~ q, and u uniform in [0, 1) independent of x and used once.
Statement: accept x iff u*q(x) < p(x), else emit a draw from (p - q)+ divided by its own sum. What is emitted has law p.
Proof: x = y is drawn and accepted with q(y) * min(1, p(y)/q(y)) = min(p, q)(y). The mass refused is 1 - sum min(p, q) =
sum (p - q)+, so a refusal adds (p - q)+(y); min(p, q) + (p - q)+ = p. p(x) = 0 never passes, as u*q >= 0. []
(Leviathan et al. 2023, appendix A.1; Chen et al. 2023, theorem 1.)

Theorem 3 (k siblings). Each sibling is tested by theorem 2 against what the elder ones left of p, normalised; its q is
the draft law itself ("iid"), or that law without the elder siblings' tokens, normalised ("distinct", drawn without
replacement). Statement: the law is p. Proof: theorem 2 holds for any p, so it holds for the last sibling with the
residual in the place of p; a test followed by a draw from its residual emits p, so the sibling before it may leave its
refusals to those after it. Induct from the last to the first. [] (Miao et al. 2024, multi-step speculative
sampling; Jeon et al. 2024, recursive rejection sampling.)

Theorem 4 (rounds). An accepted token is distributed as the target's, and the next node is judged under the history that
it makes, with fresh numbers: by the chain rule the whole text has the target's law, for any budget chosen from the
past.

Edges, defined: an empty residual (by rounding only) leaves the law it came from, and is counted; a draft law that is no
law (NaN, or a sum that is not 1) is never used: its candidate is refused unseen, which is exact, and counted alike.

Does not know: logits, where randomness comes from, floats: on object arrays of `Fraction` it is exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from draftproof.protocols import Coins
from draftproof.rules.follow import children_of
from draftproof.types import Draft, FloatArray, Verdict

_SUM_TOLERANCE = 1e-3  # a law of 10^5 float32 entries sums to 1 within 1e-5; a law of logits or counts does not


def reject(draft: Draft, target_law: Callable[[int], FloatArray], coins: Coins) -> Verdict:
    """Judges a draft of drawn siblings; target_law(node) is float[V], asked once for each node reached."""
    children = children_of(draft)
    path: list[int] = []
    node, num_empty, law = 0, 0, target_law(0)
    while candidates := children[node]:
        accepted, law, empty = _judge(draft, candidates, law, coins)
        num_empty += empty
        if accepted is None:
            token = coins.draw(node, law)
            return Verdict(tuple(path), token, "correction", len(path) + 1, num_empty)
        path.append(accepted)
        node, law = accepted, target_law(accepted)
    return Verdict(tuple(path), coins.draw(node, law), "bonus", len(path), num_empty)


def residual(target_law: FloatArray, draft_law: FloatArray) -> FloatArray | None:
    """float[V]: the positive part of the difference, divided by its own sum; None where rounding left nothing."""
    left = np.maximum(target_law - draft_law, 0)
    total = left.sum()
    return left / total if total > 0 else None


def without(draft_law: FloatArray, elders: list[int]) -> FloatArray | None:
    """float[V]: a draft law given that the elder siblings' tokens are gone; None where nothing is left."""
    left = draft_law.copy()
    left[elders] = 0
    total = left.sum()
    return left / total if total > 0 else None


def _judge(draft: Draft, siblings: list[int], law: FloatArray, coins: Coins) -> tuple[int | None, FloatArray, int]:
    """The accepted sibling, or None and what is left of the target law; and how many residuals were empty."""
    elders: list[int] = []
    num_empty = 0
    for node in siblings:
        token = int(draft.tokens[node - 1])
        draft_law = drawn_from(draft, node, elders)
        elders.append(token)
        if draft_law is None:
            num_empty += 1
            continue
        if coins.accept(node, law[token], draft_law[token]):
            return node, law, num_empty
        left = residual(law, draft_law)
        num_empty += left is None
        law = law if left is None else left
    return None, law, num_empty


def drawn_from(draft: Draft, node: int, elders: list[int]) -> FloatArray | None:
    """float[V]: the law that the token of `node` was drawn from, given its elder siblings; None if it is no law."""
    if draft.laws is None:
        raise ValueError(f"a draft with {draft.siblings!r} siblings must bring the laws they were drawn from")
    law: FloatArray = draft.laws[int(draft.law_row[node - 1])]
    if not abs(law.sum() - 1) < _SUM_TOLERANCE:
        return None
    return without(law, elders) if draft.siblings == "distinct" and elders else law
