"""Every emitted token, draft and coin of a text -> numbers that are uniform if that part of the engine is right.

Let p be the target law at a token's own prefix, which is known by teacher forcing.

*What may be conditioned on.* Let a round reach its k-th token iff its first k-1 drafts were accepted.
Claim: given everything before, and that the round reaches its k-th token, this token has law p.
- `follow` and `coupled` (theorem 1): reaching depends on draws at earlier places only; the draw here is fresh.
- `reject` (theorems 2, 3): reaching depends on earlier candidates and coins; those of this place are fresh, and
  theorem 2 (or 3) holds for them whatever came before.
- `block` (theorem 6): reaching does depend on later drafts, yet the claim holds. With w_0 = 1 and
  w_k = min(1, w_{k-1} p(x_k)/q(x_k)), the rule accepts at least k drafts with chance w_k given the first k; a round
  that keeps exactly k-1 of them, which has chance sum of (w_{k-1} p - q)+, draws from (w_{k-1} p - q)+. So the mass of
  reaching k after drafts d and emitting y is q(d) [q(y) min(1, w p(y)/q(y)) + (w p(y) - q(y))+] = q(d) w p(y):
  proportional to p(y).
Whether a draft stands at the k-th place at all is decided before it is drawn (contract D2), so it may be conditioned
on as well: tokens of tested places ("tested", accepted and corrections *together*), tokens behind full acceptance
("bonus") and tokens of rounds without drafts ("plain") each have law p.
Given that a token was *accepted*, its law is not p but proportional to min(p, q); a correction's is the residual. They
are tested against these laws, and the coin between them against its chance, where the subject tells its drafts' laws:
- "draft": a candidate under the law it is reported to come from (D1), without its elders where it is drawn without
  replacement; given that its place is reached, which earlier places decide.
- "accept": the coin of a candidate whose turn came, given the candidate: min(1, p(x)/q(x)), p what its elders left;
  "younger" where it had elders.
- "correction": the token after a refusal, given what was refused: what the candidates left of p.
Under `block` these three are what `chains` proves of a chain judged as a whole; its later candidates are "chain", for
their law depends on how the chain is accepted, that of the first does not.
A fixed candidate d is accepted iff the token drawn from p is d: "tested" is its coin, and the correction has law p
without the candidates. All this needs candidates that know nothing of the number the token is drawn with: those of rule
`coupled` that race with the target's own noise do, so there neither the score nor a condition may use them.

*Scores* (what a number is sensitive to): what the draft favours most against the target first, q/p or "the candidates,
then the rest"; where no draft may be used, likelier tokens first.

Does not know: models, how laws are computed, what is concluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from draftproof.certify import chains
from draftproof.certify.pit import pit
from draftproof.certify.types import Depth, Round, Sample
from draftproof.rules.reject import residual, without
from draftproof.types import FloatArray

CERTAIN = ("support", "coin_sides")  # no numbers to be binned: what can't happen where laws are known to the bit
_DEEPEST = 3  # places from here on count as one


class Seen(NamedTuple):
    """One number: of which test, when in time (its round's step), the number. where: of what can't happen."""

    test: str
    step: int
    number: float
    where: dict[str, Any] | None = None


def observe(sample: Sample, laws: Iterator[FloatArray], rng: np.random.Generator) -> list[Seen]:
    """All numbers of one text, in order. laws: of each of its tokens, as of `LawReference.laws`."""
    seen: list[Seen] = []
    tokens = list(sample.tokens)
    if sample.rounds is None:
        for token, law in zip(tokens, laws, strict=True):
            seen += _token(token, law, "law", 0, rng)
        return seen
    begin = 0
    for round_ in sample.rounds:
        chain = _Chain(rng)
        for index, token in enumerate(tokens[begin : begin + round_.num_tokens]):
            law = next(laws)
            seen += _token(token, law, "law", round_.step, rng)
            seen += _placed(round_, index, token, law, chain)
        begin += round_.num_tokens
    return seen


def _token(token: int, law: FloatArray, test: str, step: int, rng: np.random.Generator) -> list[Seen]:
    excluded = [] if law[token] > 0 else [Seen("support", step, 0.0, {"token": token})]
    return [Seen(test, step, pit(law, law, token, rng.random())), *excluded]


class _Chain:
    """A round's chain so far, where it is judged as a whole."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._weight: Any = 1.0
        self._first = True

    def numbers(self, depth: Depth, draft_law: FloatArray, token: int, law: FloatArray) -> list[tuple[str, float]]:
        """Of its next place."""
        (candidate,), rng = depth.tokens, self.rng
        wide = draft_law.astype(np.float64)
        found = chains.judged(law.astype(np.float64), wide, candidate, self._weight, self._first)
        if found is None:  # a draft without a law: it ends its chain
            return []
        name = "draft" if self._first else "chain"
        self._weight, self._first = found.weight, False
        drawn = (name, pit(found.drawn, wide, candidate, rng.random()))
        accepted = depth.accepted is not None
        numbers = [drawn, *_coin("accept", found.chance, 1.0, accepted, rng)]
        if not accepted:
            numbers.append(("correction", pit(found.left, found.left, token, rng.random())))
        return numbers


def _placed(round_: Round, index: int, token: int, law: FloatArray, chain: _Chain) -> list[Seen]:
    """Numbers that name a place."""
    step, rng = round_.step, chain.rng
    if index >= round_.num_tested:
        return [Seen(round_.source(index), step, pit(law, law, token, rng.random()))]
    place = min(index + 1, _DEEPEST)
    depth = round_.depths[index] if index < len(round_.depths) else None
    usable = depth is not None and not depth.informed
    score = _lean(law, depth) if depth is not None and usable else law
    number = pit(law, score, token, rng.random())
    tested = [Seen("tested", step, number), Seen(f"tested@{place}", step, number)]
    if depth is None or not usable:
        return tested
    if depth.law is None:
        inside = _fixed(depth, token, law, rng)
    elif depth.chain:
        inside = chain.numbers(depth, depth.law, token, law)
    else:
        inside = _drawn(depth, depth.law, token, law, rng)
    late = min(place, 2)
    return [*tested, *(Seen(f"{name}@{late}" if name == "accept" else name, step, number) for name, number in inside)]


def _lean(law: FloatArray, depth: Depth) -> FloatArray:
    """float64[V]: what the draft favours against the target comes first."""
    if depth.law is None:
        score = law.astype(np.float64)
        score[list(depth.tokens)] += 2.0
        return score
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = depth.law.astype(np.float64) / law
    return np.where(law > 0, ratio, -1.0)


def _fixed(depth: Depth, token: int, law: FloatArray, rng: np.random.Generator) -> list[tuple[str, float]]:
    if depth.accepted is not None:
        return []
    left = without(law, list(depth.tokens))
    return [] if left is None else [("correction", pit(left, left, token, rng.random()))]


def _drawn(
    depth: Depth, draft_law: FloatArray, token: int, law: FloatArray, rng: np.random.Generator
) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    draft_laws = _conditional(draft_law, depth)
    for index, (candidate, drawn_from) in enumerate(zip(depth.tokens, draft_laws, strict=True)):
        score = drawn_from.astype(np.float64)
        score[list(depth.tokens[:index])] -= 2.0  # equal siblings last
        found.append(("draft", pit(drawn_from, score, candidate, rng.random())))
    for index, (candidate, drawn_from) in enumerate(zip(depth.tokens, draft_laws, strict=True)):
        accepted, test = depth.accepted == index, "younger" if index else "accept"
        found += _coin(test, float(law[candidate]), float(drawn_from[candidate]), accepted, rng)
        if accepted:
            return found
        left = residual(law, drawn_from)
        law = law if left is None else left
    return [*found, ("correction", pit(law, law, token, rng.random()))]


def _conditional(law: FloatArray, depth: Depth) -> list[FloatArray]:
    """The law that each candidate was drawn from, given its elder siblings."""
    if depth.siblings != "distinct":
        return [law] * len(depth.tokens)
    elders: Sequence[int] = depth.tokens
    laws = [without(law, list(elders[:index])) if index else law for index in range(len(elders))]
    return [law if each is None else each for each in laws]


def _coin(test: str, target: float, draft: float, accepted: bool, rng: np.random.Generator) -> list[tuple[str, float]]:
    """A coin that has one side only says nothing, unless it fell on the other."""
    chance = 1.0 if target >= draft and target > 0 else (target / draft if draft > 0 else 0.0)
    if chance in (0.0, 1.0):
        return [] if chance == accepted else [("coin_sides", 0.0)]
    number = chance * rng.random() if accepted else chance + (1 - chance) * rng.random()
    return [(test, min(number, 1 - 1e-12))]
