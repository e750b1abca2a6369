"""What a round of one drafter in one bucket costs and brings under one load, for every gamma at once.

One sequence pays for the drafts of its own rounds: the mean over rounds of T(1, 1 + n) + D(1, n). B sequences share a
step, whose rows lie near B * (1 + mean n): T(B, 1 + mean n) + D(B, mean n). D(B, 0) is asking a drafter that finds
nothing; gamma 0 asks nobody.

Speed-up = plain * tokens / cost is itself a ratio of sums over prompts, so its interval counts that prompts with many
drafts cost more and bring more. The error of the cost curve is added as independent.

Does not know: which gamma is best, buckets' names, money.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from draftproof.planner.cost import CostCurve
from draftproof.planner.interval import Interval, exactly, ratio_intervals
from draftproof.planner.sums import Floats, PromptSums
from draftproof.planner.surface import Cost


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Where costs are taken."""

    curve: CostCurve
    sequences: int
    context: float
    _known: dict[tuple[str | None, float], Cost] = field(default_factory=dict)  # every gamma asks for the same lengths

    def step(self, rows: float) -> Cost:
        """One target step of all sequences."""
        if (None, rows) not in self._known:
            self._known[None, rows] = self.curve.step_cost(self.sequences, rows, self.context)
        return self._known[None, rows]

    def draft(self, label: str, tokens: float) -> Cost:
        """One proposal for all sequences."""
        if (label, tokens) not in self._known:
            self._known[label, tokens] = self.curve.draft_cost(label, self.sequences, tokens, self.context)
        return self._known[label, tokens]


@dataclass(frozen=True, slots=True, eq=False)
class Drafting:
    """One drafter in one bucket: sums per text, and the means that costs depend on."""

    label: str
    sums: PromptSums
    tokens: Floats  # [G+1], tokens per round
    histogram: Floats  # [G+1, G+1], share of rounds with n drafts
    reached: Floats  # [G+1, G], drafts accepted at depth k, a round
    rates: Floats  # [G+1, G], accepted / tested at depth k; 0 where nothing is tested

    @classmethod
    def of(cls, label: str, sums: PromptSums) -> Drafting:
        """The means of some texts' sums; at least one round."""
        rounds = sums.rounds.sum(axis=0)
        accepted, tested = sums.accepted.sum(axis=0), sums.tested.sum(axis=0)
        rates = np.divide(accepted, tested, out=np.zeros_like(accepted), where=tested > 0)
        means = (sums.tokens.sum(axis=0) / rounds, sums.drafting.sum(axis=0) / rounds[:, None])
        return cls(label, sums, *means, accepted / rounds[:, None], rates)

    @property
    def gamma_max(self) -> int:
        """G."""
        return len(self.tokens) - 1

    @property
    def drafted(self) -> Floats:
        """float[G+1]: mean drafts a round."""
        return self.histogram @ np.arange(len(self.tokens))

    def tokens_if(self, gamma: int, factor: float) -> float:
        """Tokens per round at gamma if every acceptance were `factor` times what it is, at most 1.

        Rounds are taken to begin where they did.
        """
        rates = self.rates[gamma]
        scaled = np.minimum(1.0, factor * rates)
        ratios = np.divide(scaled, rates, out=np.ones_like(rates), where=rates > 0)
        return 1 + float(self.reached[gamma] @ np.cumprod(ratios))


@dataclass(frozen=True, slots=True)
class RoundCost:
    """One round of all sequences at one gamma."""

    draft: Cost
    verify: Cost

    @property
    def ms(self) -> float:
        """Both together."""
        return self.draft.ms + self.verify.ms

    @property
    def extrapolated(self) -> bool:
        """Whether either lies beyond what was measured."""
        return self.draft.extrapolated or self.verify.extrapolated

    def error(self, plain: Cost) -> float:
        """Relative standard error of plain / cost, all of them measured independently."""
        own = np.hypot(self.draft.ms * self.draft.error, self.verify.ms * self.verify.error) / self.ms
        return float(np.hypot(own, plain.error))


def round_cost(drafting: Drafting, load: Load, gamma: int) -> RoundCost:
    """The cost of a round at gamma."""
    if gamma == 0:
        return RoundCost(Cost(0.0), load.step(1))
    if load.sequences > 1:
        drafted = float(drafting.drafted[gamma])
        return RoundCost(load.draft(drafting.label, drafted), load.step(1 + drafted))
    shares = [(n, share) for n, share in enumerate(drafting.histogram[gamma].tolist()) if share > 0]
    drafts = [(share, load.draft(drafting.label, n)) for n, share in shares]
    return RoundCost(_mean(drafts), _mean([(share, load.step(1 + n)) for n, share in shares]))


def _mean(costs: list[tuple[float, Cost]]) -> Cost:
    """Errors as if of one source: the larger, safer sum."""
    ms = sum(share * cost.ms for share, cost in costs)
    error = sum(share * cost.ms * cost.error for share, cost in costs) / ms if ms > 0 else 0.0
    return Cost(ms, error, any(cost.extrapolated for _, cost in costs))


def speedup_intervals(drafting: Drafting, load: Load, costs: list[RoundCost]) -> list[Interval]:
    """The speed-up over plain decoding at each gamma; costs[gamma] of `round_cost`."""
    plain = load.step(1)
    gammas = np.arange(len(costs))
    drafts = np.array([load.draft(drafting.label, n).ms + load.step(1 + n).ms for n in range(len(costs))])
    each = np.repeat(drafts[:, None], len(costs), axis=1)  # [n, gamma]: cost of a round with n drafts
    each[0, 0] = plain.ms  # gamma 0 asks nobody
    # where sequences share a step, the mean round costs costs[gamma]; rounds keep their proportions
    each *= np.array([cost.ms for cost in costs]) / np.einsum("gn,ng->g", drafting.histogram, each)
    possible = gammas[:, None] <= gammas
    spent = np.einsum("pgn,ng->pg", drafting.sums.drafting, each)
    low = plain.ms / np.where(possible, each, 0).max(axis=0)
    high = plain.ms * np.where(possible, (gammas[:, None] + 1) / each, 0).max(axis=0)
    found = ratio_intervals(drafting.sums.tokens * plain.ms, spent, low, high)
    wide = [interval.widened(cost.error(plain)) for interval, cost in zip(found, costs, strict=True) if interval]
    return [exactly(1.0), *wide[1:]]
