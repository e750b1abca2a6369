"""Change detectors whose false alarms are counted: bets against "nothing is wrong", begun again whenever they lose.

Theorem. Let e_1, e_2, ... >= 0 be factors with E[e_i | past] <= 1 as long as nothing is wrong, one sequence for each
of K betting styles, and M the mean over the styles of the product of their e_i since the last restart; a restart
happens whenever M < 1. Then the chance that M ever reaches c within n steps is at most n / c, whatever n, whenever one
looks. Proof. Write M(s, i) for the mean over the styles of the products of e_s..e_i. After step i, M is M(s, i) for
one s (the step after the last restart), or 1 after a restart; so M <= R_i, the sum over s <= i of M(s, i), wherever M
>= c > 1. For each style the sum S_i of its products from s..i has S_i = (S_{i-1} + 1) * e_i, so E[S_i | past] <=
S_{i-1} + 1; the mean over the styles keeps this. R_i - i is a supermartingale that starts at 0. With T = min(n, first
i with R_i >= c), E[R_T] <= E[T] <= n, and by Markov's inequality P(R reaches c by step n) <= n / c.
QED (Shiryaev and Roberts' procedure with e-values: Shin, Ramdas, Rinaldo, "E-detectors", 2024.)

Factors for x in [0, 1] whose mean must not lie below m, with a weight w in [0, 1]: e = 1 + b * w * (m - x) / (1 - m)
with a bet 0 <= b <= 1, which keeps e >= 0. If E[w * (x - m) | past] >= 0 then E[e | past] <= 1: no law of x is
assumed, no independence, and one request is one observation, however its tokens hang together. For a mean that must
not lie above m it is e = 1 + b * w * (x - m) / m. (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2024.)

Does not know: what is betted on, what follows from an alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

STYLES = (0.9, 0.35, 0.12)  # bets: for large, middling and small changes
_MOST = 1e100  # wealth beyond it is thrown away, which only makes alarms rarer


def _begun() -> list[float]:
    return [1.0] * len(STYLES)


@dataclass(slots=True)
class Bets:
    """The wealth of each style since the last restart."""

    wealth: list[float] = field(default_factory=_begun)

    @property
    def evidence(self) -> float:
        """M: an alarm when it reaches the threshold."""
        return sum(self.wealth) / len(self.wealth)

    def multiply(self, factors: Sequence[float]) -> float:
        """The evidence after a step with a factor for each style; 0 after a restart."""
        wealth = [old * factor for old, factor in zip(self.wealth, factors, strict=True)]
        evidence = sum(wealth) / len(wealth)
        if evidence < 1.0:
            self.wealth = _begun()
            return 0.0
        self.wealth = wealth if evidence < _MOST else [w / evidence * _MOST for w in wealth]
        return evidence

    def step(self, stake: float) -> float:
        """The same with factors 1 + b * stake; the stake is at least -1."""
        large, middling, small = self.wealth
        large *= 1.0 + STYLES[0] * stake
        middling *= 1.0 + STYLES[1] * stake
        small *= 1.0 + STYLES[2] * stake
        evidence = (large + middling + small) / 3.0
        if evidence < 1.0:
            self.wealth = _begun()
            return 0.0
        if evidence > _MOST:
            large, middling, small = (w / evidence * _MOST for w in (large, middling, small))
        self.wealth = [large, middling, small]
        return evidence
