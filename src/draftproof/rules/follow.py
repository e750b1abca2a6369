"""Theorem 1 (`follow`): sample the target, and walk the draft tree for as long as it holds what was sampled.

Hypotheses. `choose(node)` draws a token from the target law after `node`, under the history of that node. The number it
uses is independent of those of every other position, and of how the draft came about, or it is a function of the
seed and the position only.

Statement. The emitted tokens have the joint law of plain decoding; with a number keyed by position they *are* the
tokens of plain decoding. This holds for any draft: the tree decides only how many tokens come from one forward.

Proof. The first token is choose(root), whatever the tree holds: a draw from the target law at the root. Suppose the
first i tokens were emitted and lead to a node. Their sequence is the history of that node, so its row is the target
law given exactly those tokens, and the next token is a fresh draw from it. Induct on i; the walk stops where the
sampled token is no child, a time that depends on the past only, and the next round goes on from there.

Does not know: laws, temperatures, random numbers, how `choose` draws.
"""

from __future__ import annotations

from collections.abc import Callable

from draftproof.types import Draft, Verdict


def children_of(draft: Draft) -> list[list[int]]:
    """For each node 0..n the numbers of its children, in node order."""
    children: list[list[int]] = [[] for _ in range(len(draft) + 1)]
    for index, parent in enumerate(draft.parents.tolist()):
        children[parent].append(index + 1)
    return children


def emitted(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    """The tokens a verdict emits: those of its path, then the one from the target."""
    return (*(int(draft.tokens[node - 1]) for node in verdict.path), verdict.next_token)


def follow(draft: Draft, choose: Callable[[int], int]) -> Verdict:
    """Walks the tree by the target's own choices. `choose` is called once for each node reached, from the root down."""
    tokens, children = draft.tokens.tolist(), children_of(draft)
    path: list[int] = []
    node = 0
    while candidates := children[node]:
        token = choose(node)
        agreeing = [child for child in candidates if tokens[child - 1] == token]
        if not agreeing:
            return Verdict(tuple(path), token, "correction", tested=len(path) + 1)
        node = agreeing[0]  # equal siblings say the same: the first stands for all
        path.append(node)
    return Verdict(tuple(path), choose(node), "bonus", tested=len(path))
