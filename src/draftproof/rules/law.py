"""The exact law of what a rule emits, on small vocabularies, in Fractions: the oracle of every exactness claim.

`outcomes` runs the production code of a rule once for each sequence of coin outcomes, by replaying a script: the code
asks for a test or a draw, gets the scripted outcome, and the run's weight is the product of the outcomes' exact
probabilities. No sampling, no tolerance; a draft's own draws go through the same coins. `sequence_law` chains rounds
(theorem 4); `race_law` is the joint law of two Gumbel races with shared noise (theorem 5), integrated in closed form.

Invariant: the probabilities of a returned law sum to exactly 1, or `ArithmeticError` is raised.
Does not know: rules, NumPy, floats. A law is any sequence of numbers that Fraction takes exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
Tokens = tuple[int, ...]
Numbers = Sequence[Any]  # Fractions; also an object array of them

_ONE = Fraction(1)


class ScriptedCoins:
    """`protocols.Coins` that takes the branches of a script, and the first open branch after its end."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.weight = _ONE
        self.taken: list[tuple[int, int]] = []  # (branch, number of branches) of every question so far

    def accept(self, node: int, target_mass: Any, draft_mass: Any) -> bool:
        """u * draft_mass < target_mass for u uniform in [0, 1)."""
        chance = Fraction(int(target_mass > 0)) if draft_mass <= target_mass else Fraction(target_mass) / draft_mass
        return bool(self._branch([(True, chance), (False, _ONE - chance)]))

    def draw(self, node: int, weights: Numbers) -> int:
        """An index with probability proportional to weights."""
        total = sum(weights, Fraction(0))
        return int(self._branch([(token, Fraction(weight) / total) for token, weight in enumerate(weights)]))

    def _branch(self, choices: list[tuple[Any, Fraction]]) -> Any:
        possible = [(outcome, chance) for outcome, chance in choices if chance > 0]
        asked = len(self.taken)
        branch = self._script[asked] if asked < len(self._script) else 0
        self.taken.append((branch, len(possible)))
        outcome, chance = possible[branch]
        self.weight *= chance
        return outcome


def outcomes(run: Callable[[ScriptedCoins], T]) -> dict[T, Fraction]:
    """The exact law of what run(coins) returns. `run` must be a function of its coins alone."""
    law: dict[T, Fraction] = {}
    script: list[int] | None = []
    while script is not None:
        coins = ScriptedCoins(script)
        outcome = run(coins)
        law[outcome] = law.get(outcome, Fraction(0)) + coins.weight
        script = _next_script(coins.taken)
    return _checked(law)


def _next_script(taken: list[tuple[int, int]]) -> list[int] | None:
    """The next path of a depth-first walk: the deepest question with an open branch goes on by one."""
    for depth in range(len(taken) - 1, -1, -1):
        branch, num_branches = taken[depth]
        if branch + 1 < num_branches:
            return [earlier for earlier, _ in taken[:depth]] + [branch + 1]
    return None


def sequence_law(one_round: Callable[[Tokens, ScriptedCoins], Tokens], num_tokens: int) -> dict[Tokens, Fraction]:
    """Joint law of the first num_tokens tokens of repeated rounds; one_round(tokens so far, coins) emits >= 1 token."""

    def run(coins: ScriptedCoins) -> Tokens:
        tokens: Tokens = ()
        while len(tokens) < num_tokens:
            tokens += one_round(tokens, coins)
        return tokens[:num_tokens]

    return outcomes(run)


def plain_law(target_law: Callable[[Tokens], Numbers], num_tokens: int) -> dict[Tokens, Fraction]:
    """Joint law of num_tokens tokens of plain decoding: the reference of `sequence_law`."""
    return sequence_law(lambda tokens, coins: (coins.draw(0, target_law(tokens)),), num_tokens)


def total_variation(one: dict[T, Fraction], other: dict[T, Fraction]) -> Fraction:
    """Half the sum of absolute differences."""
    keys = one.keys() | other.keys()
    return sum((abs(one.get(k, Fraction(0)) - other.get(k, Fraction(0))) for k in keys), Fraction(0)) / 2


def race_law(target_law: Numbers, draft_law: Numbers) -> dict[tuple[int, int], Fraction]:
    """P(target's winner, draft's winner) of two exponential races over the same clocks E_i, first at E_i / law(i).

    Equal winners y: E_i >= E_y max(p_i/p_y, q_i/q_y) for all i, so 1 / sum_i of that maximum.
    Winners y of p and x of q, x != y: put s = E_y/p_y, the target's winning time, and r s = E_x/q_x the draft's. The
    others have not rung before, E_i >= s max(p_i, q_i r), and x and y keep their order: p_x/q_x <= r <= p_y/q_y. The
    density of (s, r) is p_y q_x s exp(-s d(r)) with d(r) = p_y + q_x r + sum over the others of max(p_i, q_i r);
    integrated over s it leaves p_y q_x / d(r)^2, and d is linear between the break points p_i/q_i.
    """
    p, q = [Fraction(x) for x in target_law], [Fraction(x) for x in draft_law]
    law = {}
    for y in range(len(p)):
        for x in range(len(q)):
            mass = _meet(p, q, y) if x == y else _part(p, q, y, x)
            if mass:
                law[y, x] = mass
    return _checked(law)


def race_acceptance(target_law: Numbers, draft_law: Numbers) -> Fraction:
    """Probability that the two races of `race_law` have the same winner."""
    return sum((mass for (y, x), mass in race_law(target_law, draft_law).items() if x == y), Fraction(0))


def _meet(p: list[Fraction], q: list[Fraction], y: int) -> Fraction:
    if not p[y] or not q[y]:
        return Fraction(0)
    return 1 / sum((max(a / p[y], b / q[y]) for a, b in zip(p, q, strict=True)), Fraction(0))


def _part(p: list[Fraction], q: list[Fraction], y: int, x: int) -> Fraction:
    """Target's winner y, draft's winner x != y; an upper end of None is infinity."""
    if not p[y] or not q[x]:
        return Fraction(0)
    low, high = p[x] / q[x], p[y] / q[y] if q[y] else None
    others = [(p[i], q[i]) for i in range(len(p)) if i not in (x, y)]
    inner = sorted({a / b for a, b in others if b and a / b > low and (high is None or a / b < high)})
    if high is not None and high <= low:
        return Fraction(0)
    ends: list[Fraction | None] = [*inner, high]
    mass = Fraction(0)
    for end in ends:
        flat = p[y] + sum((a for a, b in others if not _rises(a, b, low)), Fraction(0))
        slope = q[x] + sum((b for a, b in others if _rises(a, b, low)), Fraction(0))
        mass += _area(flat, slope, low, end)
        low = end if end is not None else low
    return p[y] * q[x] * mass


def _rises(a: Fraction, b: Fraction, low: Fraction) -> bool:
    """max(a, b r) is b r just above r = low."""
    return b * low >= a


def _area(flat: Fraction, slope: Fraction, low: Fraction, high: Fraction | None) -> Fraction:
    """Integral of 1 / (flat + slope r)^2 over [low, high]; slope > 0."""
    if high is None:
        return 1 / (slope * (flat + slope * low))
    return (high - low) / ((flat + slope * low) * (flat + slope * high))


def _checked(law: dict[T, Fraction]) -> dict[T, Fraction]:
    total = sum(law.values(), Fraction(0))
    if total != 1:
        raise ArithmeticError(f"the outcomes have probabilities that sum to {total}, not to 1")
    return law
