"""The watch of the price: do speculating requests wait longer for a token than plain ones of the same time?

For a block, D = (r_on - limit * r_off) / r_both. As long as speculation costs no more than the limit, E[D] <= 0, and
for large blocks D is nearly normal with variance psi / W. The factor of a style that bets on a loss of d is exp((W /
psi) * (d * D - d^2 / 2)), whose mean is at most 1 then. psi is the mean of (D - D')^2 / (1 / W + 1 / W') over all
pairs of neighbours since the watch began, this block included, which takes the edge off outliers; the level of D
cancels in it (von Neumann's estimate). A factor is cut so that no fewer than ten blocks can give an alarm. The bound
holds for large numbers, not exactly: tests/rollout/test_price.py counts how often it fails (in skewed times, less
often than it promises).

Does not know: stages, what follows from a finding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from draftproof.rollout.compare import FEWEST, Block, Comparison, Pair
from draftproof.rollout.cusum import Bets
from draftproof.rollout.limits import Finding, Limits

_LOSSES = (0.03, 0.1, 0.3)  # that the styles bet on


@dataclass(slots=True)
class PriceWatch:
    """Bets that speculation costs time, and the blocks since their last restart."""

    bets: Bets = field(default_factory=Bets)
    seen: Comparison = field(default_factory=Comparison)
    blocks: int = 0  # but for the first
    spread: float = 0.0  # sum of (D - D before)^2 / (1 / W + 1 / W before)
    last: float = 0.0  # D and W of the block before
    last_weight: float = 0.0

    def observe(self, block: Block, pair: Pair, limits: Limits) -> Finding | None:
        """A full block and what it says."""
        difference = (pair.on - limits.policy.max_itl_ratio * pair.off) / pair.both
        if self.last_weight:
            self.blocks += 1
            self.spread += (difference - self.last) ** 2 / (1 / pair.weight + 1 / self.last_weight)
        self.last, self.last_weight = difference, pair.weight
        if self.blocks < FEWEST or self.spread <= 0:
            return None
        precision = pair.weight * self.blocks / self.spread
        evidence = self.bets.multiply(
            [math.exp(min(limits.log_cap, precision * d * (difference - d / 2))) for d in _LOSSES]
        )
        if not evidence:
            self.seen = Comparison()
            return None
        self.seen.add(block, pair)
        if evidence < limits.threshold:
            return None
        most, ratio = limits.policy.max_itl_ratio, self.seen.ratio(limits.alpha)
        if ratio is None or ratio.low is None or ratio.low <= most:
            return None
        numbers = {"max_itl_ratio": most, "evidence": evidence, "threshold": limits.threshold}
        reason = f"speculating requests take {ratio.mean:.3f} times as long for a token as plain ones"
        return Finding("price", reason, {**self.seen.to_evidence(limits.alpha), **numbers})
