"""The joint law of the first few tokens after fixed contexts, sampled again and again: chi-square over joint cells.

`conditional fit` sees each token at its own prefix and adds over contexts; here errors of one context add up, in the
joint law, with no transform between. Cells are fixed before a token is looked at. Known law: a tree of prefixes is
opened by probability alone. A token that promises fewer than LEAST texts shares the cell "other" of its prefix, and a
prefix is opened further while its texts could fill two cells. Unknown law: a pilot of baseline texts, thrown away
afterwards, names the prefixes in the same way; then subject and baseline are compared as two samples.

Invariant: every text falls into exactly one cell; texts that end early are cells of their own.
Does not know: engines, rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.certify.chances import chi2_tail
from draftproof.certify.results import Power, Result
from draftproof.certify.types import Job, LawReference
from draftproof.types import FloatArray

LEAST = 10.0  # texts that a cell must promise
Tokens = tuple[int, ...]
Cell = tuple[Tokens, bool]  # a prefix; True: the whole text, or everything else after this prefix


@dataclass(frozen=True, slots=True)
class Tree:
    """Cells with their chances: `inner` prefixes are followed, a text ends in a leaf or in "other" of an inner one."""

    inner: frozenset[Tokens]
    chances: dict[Cell, float]

    def cell(self, tokens: Sequence[int]) -> Cell:
        """Where a text falls."""
        prefix: Tokens = ()
        for token in tokens:
            if prefix not in self.inner:
                break
            longer = (*prefix, int(token))
            if longer not in self.inner and (longer, False) not in self.chances:
                return (prefix, True)
            prefix = longer
        return (prefix, False)


def known_tree(reference: LawReference, job: Job, depth: int, count: int) -> Tree:
    """The tree of a context by the target's law; `count` texts will be sampled, of `depth` tokens at most."""
    chances: dict[Cell, float] = {}
    inner: set[Tokens] = set()
    open_: list[tuple[Tokens, float]] = [((), 1.0)]
    while open_:
        prefix, chance = open_.pop()
        law = _law_after(reference, job, prefix)
        own = [int(token) for token in np.flatnonzero(law * chance * count >= LEAST)]
        inner.add(prefix)
        rest = 1.0 - float(law[own].sum(dtype=np.float64))
        chances[prefix, True] = chance * max(0.0, rest)  # below 0 by rounding only
        for token in own:
            longer, mass = (*prefix, token), chance * float(law[token])
            ends = token in job.stop_ids and len(longer) > job.params.min_new_tokens
            if len(longer) < depth and not ends and mass * count >= 4 * LEAST:
                open_.append((longer, mass))
            else:
                chances[longer, False] = mass
    return Tree(frozenset(inner), chances)


def _law_after(reference: LawReference, job: Job, prefix: Tokens) -> FloatArray:
    row: FloatArray | None = None
    for row in reference.laws(job, (*prefix, 0)):  # noqa: B007 - the last one is wanted; no row depends on the token 0
        pass
    assert row is not None
    return np.array(row)


def pilot_tree(texts: Sequence[Sequence[int]], depth: int, count: int) -> Tree:
    """The tree of a context by a pilot of texts; its chances are not used."""
    scale = count / max(1, len(texts))
    prefixes = Counter(tuple(text[:length]) for text in texts for length in range(1, min(depth, len(text)) + 1))
    whole = Counter(tuple(text[:depth]) for text in texts)
    inner: set[Tokens] = {()}
    chances: dict[Cell, float] = {((), True): 0.0}
    for prefix, num in sorted(prefixes.items(), key=lambda each: len(each[0])):
        if prefix[:-1] not in inner or num * scale < LEAST:
            continue
        goes_on = num - whole[prefix]
        if len(prefix) < depth and goes_on * scale >= 4 * LEAST:
            inner.add(prefix)
            chances[prefix, True] = 0.0
            chances[prefix, False] = 0.0
        else:
            chances[prefix, False] = 0.0
    return Tree(frozenset(inner), chances)


def against_law(tree: Tree, texts: Sequence[Sequence[int]], name: str) -> Result:
    """Pearson's chi-square of the texts' cells; cells that expect little are pooled into one, whatever was seen."""
    count = len(texts)
    seen = Counter(map(tree.cell, texts))
    observed, expected = _merge(
        [(seen.pop(cell, 0), chance * count) for cell, chance in sorted(tree.chances.items())], lambda each: each[1]
    )
    outside = sum(seen.values())  # cells without a chance
    statistic = float(sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True)))
    freedom = len(expected) - 1
    p_value = 0.0 if outside else (chi2_tail(statistic, freedom) if freedom else 1.0)
    worst = _worst(tree, texts)
    detail = {"cells": len(expected), "statistic": statistic, "outside": outside, "worst": worst}
    hypothesis = "the first tokens after this context have the target's joint law"
    informative = freedom > 0 or outside > 0
    return Result(name, hypothesis, count, p_value, Power(count, freedom), counts=informative, detail=detail)


def against_baseline(
    tree: Tree, texts: Sequence[Sequence[int]], baseline: Sequence[Sequence[int]], name: str
) -> Result:
    """Chi-square of two samples of equal size over the tree's cells; power is that of the smaller one."""
    ours, theirs = Counter(map(tree.cell, texts)), Counter(map(tree.cell, baseline))
    n, m = len(texts), len(baseline)
    cells = [(ours[cell], theirs[cell]) for cell in sorted(tree.chances.keys() | ours.keys() | theirs.keys())]
    ones, others = _merge([(float(a), float(b)) for a, b in cells], lambda each: each[0] + each[1])
    statistic = sum(
        (a * (m / n) ** 0.5 - b * (n / m) ** 0.5) ** 2 / (a + b) for a, b in zip(ones, others, strict=True) if a + b
    )
    freedom = sum(a + b > 0 for a, b in zip(ones, others, strict=True)) - 1
    p_value = chi2_tail(statistic, freedom) if freedom else 1.0
    power = Power(min(n, m), freedom, samples=2)
    hypothesis = "the first tokens after this context have the baseline's joint law"
    detail = {"cells": freedom + 1, "statistic": statistic}
    return Result(name, hypothesis, n, p_value, power, counts=freedom > 0, detail=detail)


def _merge(
    cells: Sequence[tuple[float, float]], size: Callable[[tuple[float, float]], float]
) -> tuple[list[float], list[float]]:
    """The cells, those of a size below LEAST put together (with the smallest other one where they are few)."""
    large = [cell for cell in cells if size(cell) >= LEAST]
    small = [cell for cell in cells if size(cell) < LEAST]
    while small and large and sum(map(size, small)) < LEAST:
        small.append(large.pop(min(range(len(large)), key=lambda i: size(large[i]))))
    if small:
        large.append((sum(c[0] for c in small), sum(c[1] for c in small)))
    return [c[0] for c in large], [c[1] for c in large]


def _worst(tree: Tree, texts: Sequence[Sequence[int]]) -> dict[str, object] | None:
    """The cell with the largest share missing or too many."""
    seen, count = Counter(map(tree.cell, texts)), len(texts)
    if not count or not tree.chances:
        return None
    cell = max(tree.chances, key=lambda each: abs(seen[each] / count - tree.chances[each]))
    return {
        "tokens": list(cell[0]),
        "others_after": cell[1],
        "expected": tree.chances[cell],
        "observed": seen[cell] / count,
    }
