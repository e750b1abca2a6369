"""Exact oracle: the installed rules, run on small vocabularies, every coin enumerated, in fractions, no tolerance.

Random laws of a few tokens, chains and trees of drawn siblings; what the production `reject` and `follow` (and `block`,
on chains) emit in two tokens is compared with plain decoding's joint law as fractions. For `coupled` the closed form of
two races with shared noise has both laws as its margins. A difference of any size is a fault of the installed code.

Does not know: models, engines, samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from draftproof.certify.results import Result
from draftproof.params import RuleName
from draftproof.rules.block import block
from draftproof.rules.follow import emitted, follow
from draftproof.rules.law import Tokens, plain_law, race_law, sequence_law, total_variation
from draftproof.rules.rehearse import LawOf, draw_tree, path_tokens, reject_round
from draftproof.types import FloatArray, Siblings

RULES = ("follow", "coupled", "reject", "block")
_VOCAB = 3
_SHAPES: tuple[tuple[tuple[int, ...], Siblings], ...] = (((1, 1), "iid"), ((2,), "iid"), ((2,), "distinct"))
_CHAINS: tuple[tuple[tuple[int, ...], Siblings], ...] = (((1,), "iid"), ((1, 1), "iid"))


def check(rule: RuleName, seed: int, rounds: int = 2) -> Result:
    """One result: the largest total variation from the target's joint law, over `rounds` random pairs of laws."""
    rng = np.random.default_rng(seed)
    worst, cases = Fraction(0), 0
    for _ in range(rounds):
        target, draft = _laws(rng), _laws(rng)
        found = _races(target, draft) if rule == "coupled" else _rounds(rule, target, draft)
        worst, cases = max(worst, *found), cases + len(found)
    hypothesis = f"rule {rule} emits the target's joint law exactly, enumerated over {cases} small cases"
    return Result("oracle.law", hypothesis, cases, failed=worst > 0, detail={"largest_tv": float(worst)})


def _laws(rng: np.random.Generator) -> LawOf:
    """A law that depends on the tokens before it."""
    weights = rng.integers(0, 6, (4, _VOCAB)) + np.eye(4, _VOCAB, dtype=int)
    rows = [np.array([Fraction(int(w), int(row.sum())) for w in row], dtype=object) for row in weights]
    rows = [
        row if sum(row) == 1 else np.array([Fraction(1), *[Fraction(0)] * (_VOCAB - 1)], dtype=object) for row in rows
    ]
    return lambda tokens: rows[sum((i + 2) * (token + 1) for i, token in enumerate(tokens)) % len(rows)]


def _rounds(rule: RuleName, target: Any, draft: LawOf) -> list[Fraction]:
    plain = plain_law(target, 2)
    found = []
    for branching, siblings in _CHAINS if rule == "block" else _SHAPES:

        def one_round(
            tokens: Tokens, coins: Any, widths: Sequence[int] = branching, kind: Siblings = siblings
        ) -> Tokens:
            if rule == "reject":
                return reject_round(target, draft, tokens, widths, kind, coins)
            tree = draw_tree(draft, tokens, widths, kind, coins)

            def law(node: int) -> FloatArray:
                row: FloatArray = target((*tokens, *path_tokens(tree, node)))
                return row

            if rule == "block":
                return emitted(tree, block(tree, law, coins))
            return emitted(tree, follow(tree, lambda node: coins.draw(node, law(node))))

        found.append(total_variation(sequence_law(one_round, 2), plain))
    return found


def _races(target: LawOf, draft: LawOf) -> list[Fraction]:
    found = []
    for tokens in ((), (0,), (1,), (2,)):
        p, q = target(tokens), draft(tokens)
        joint = race_law(list(p), list(q))
        found += [_margin(joint, p, 0), _margin(joint, q, 1)]
    return found


def _margin(joint: dict[tuple[int, int], Fraction], law: FloatArray, side: int) -> Fraction:
    margin: dict[int, Fraction] = {}
    for pair, mass in joint.items():
        margin[pair[side]] = margin.get(pair[side], Fraction(0)) + mass
    return total_variation(margin, {token: Fraction(law[token]) for token in range(len(law))})
