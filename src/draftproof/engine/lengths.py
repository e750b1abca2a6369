"""Which policy chooses a drafter's draft lengths, and by which costs.

Does not know: models, sequences.
"""

from __future__ import annotations

from draftproof.planner.cost import CostCurve
from draftproof.sched.adaptive import AdaptiveGamma, ExtraCosts
from draftproof.sched.policy import DraftPolicy, FixedGamma, cost_table

# Milliseconds of a step over so many later rows, and what comes on top: demo model, int8 weights, 2-core CPU.
_STEP_COST = ((1, 9.0), (2, 9.2), (3, 10.0), (5, 11.6), (9, 14.3), (17, 19.9), (33, 29.7), (72, 62.5))
_EXTRA_COSTS = ExtraCosts(sequence=0.35, drafting=1.2)
_GAMMA_MAX = {"suffix": 16, "ngram": 8, "model": 6, "early_exit": 4, "fixed_tree": 6, "eagle": 4, "cascade": 16}


def draft_policy(
    drafter: str, gamma: int | None, curve: CostCurve | None, draft_cost: float, min_rows: int
) -> DraftPolicy:
    """A fixed draft length where one was given; else what pays, up to the drafter's cap.

    curve: the device's own costs, with the drafter's label; None takes a small CPU's. draft_cost: of one draft token,
    in plain steps. Raises InputError for a curve that does not know the drafter.
    """
    if gamma is not None:
        return FixedGamma(gamma)
    if drafter == "none":
        return FixedGamma(0)
    most = _GAMMA_MAX.get(drafter, 6)
    if curve is not None:
        return AdaptiveGamma.measured(most, curve, drafter)
    cost = cost_table(_STEP_COST)
    return AdaptiveGamma(most, cost, draft_cost * cost(1), min_rows, _EXTRA_COSTS)


def relative_cost(draft: object, target: object) -> float:
    """One draft step in target steps, by bytes of weights read: deterministic, so that draft lengths are too."""
    ours, theirs = getattr(draft, "weight_bytes", None), getattr(target, "weight_bytes", None)
    return float(ours / theirs) if ours and theirs else 0.5
