"""Which policy chooses a drafter's draft lengths, and by which costs.

Does not know: models, sequences.
"""

from __future__ import annotations

from collections.abc import Callable

from draftproof.drafters.tree_shape import Prices
from draftproof.planner.cost import CostCurve
from draftproof.sched.adaptive import AdaptiveGamma, ExtraCosts
from draftproof.sched.policy import DraftPolicy, FixedGamma, cost_table
from draftproof.types import Numerics

_Time = Callable[[int], float]

# Milliseconds of a step over so many later rows, and what comes on top: demo model, int8 weights, 2-core CPU.
_STEP_COST = ((1, 9.0), (2, 9.2), (3, 10.0), (5, 11.6), (9, 14.3), (17, 19.9), (33, 29.7), (72, 62.5))
_EXTRA_COSTS = ExtraCosts(sequence=0.35, drafting=1.2)
_CHAIN_ACCEPTANCE, _LONGEST = 0.5, 8  # of the chain that a tree has to beat
# Of opening a branch, in plain steps: pages are copied (0.05), and above all a step of a rare width prepares its shape
# anew and takes the lane of a common one. Priced at 0.05 alone, branches in 7 % of the rounds cost 7 % of the time.
_BRANCH_COST = {"invariant": 0.7, "fast": 0.7}
_GAMMA_MAX = {"suffix": 16, "ngram": 8, "model": 6, "early_exit": 4, "fixed_tree": 6, "eagle": 4, "cascade": 16}
_GAMMA_MAX["medusa"] = 4
# A head ends its chain where it is unsure, so it may be asked for two. Where only one width at a time is ready, a third
# row now and then costs another width, or a row more in every step: more than it brings (docs/LOG.md). Where a draft
# length decides what is said (`reject`), the machine must not: there it is two.
_FLOOR = {"eagle": 2, "cascade": 2}
_TREE_PATH = 0.25  # a branch's end is grown on from this probability


def draft_policy(
    drafter: str,
    gamma: int | None,
    curve: CostCurve | None,
    draft_cost: float,
    min_rows: int,
    *,
    one_width: bool = False,
) -> DraftPolicy:
    """A fixed draft length where one was given; else what pays, up to the drafter's cap.

    curve: the device's own costs, with the drafter's label; None takes a small CPU's. draft_cost: of one draft token,
    in plain steps. one_width: steps of one width at a time are ready. Raises InputError for a curve that does not know
    the drafter.
    """
    if gamma is not None:
        return FixedGamma(gamma)
    if drafter == "none":
        return FixedGamma(0)
    most, floor = _GAMMA_MAX.get(drafter, 6), _FLOOR.get(drafter, 1)
    free = 1 if one_width else floor
    if curve is not None:
        return AdaptiveGamma.measured(most, curve, _label(curve, drafter), floor=floor, free_floor=free)
    cost = cost_table(_STEP_COST)
    return AdaptiveGamma(most, cost, draft_cost * cost(1), min_rows, _EXTRA_COSTS, floor, free)


def _label(curve: CostCurve, drafter: str) -> str:
    """Of a drafter in a cost file: its kind, or KIND:MODEL where one of these was measured."""
    found = [label for label in curve.drafters if label.partition(":")[0] == drafter]
    return found[0] if drafter not in found and len(found) == 1 else drafter


def relative_cost(draft: object, target: object) -> float:
    """One draft step in target steps, by bytes of weights read: deterministic, so that draft lengths are too."""
    ours, theirs = getattr(draft, "weight_bytes", None), getattr(target, "weight_bytes", None)
    return float(ours / theirs) if ours and theirs else 0.5


def costs_alone(curve: CostCurve | None, draft_cost: float, drafter: str = "eagle") -> tuple[_Time, _Time]:
    """(time of a step with drafts over so many rows, time of drafting so deep with a head), of one sequence alone.

    curve, draft_cost: as of `draft_policy`.
    """
    if curve is not None:
        label = _label(curve, drafter)
        return lambda rows: curve.step(1, rows), lambda depth: curve.draft(label, 1, depth)
    table = cost_table(_STEP_COST)
    return lambda rows: table(rows) + _EXTRA_COSTS.drafting, lambda depth: depth * draft_cost * table(1)


def tree_prices(curve: CostCurve | None, draft_cost: float, numerics: Numerics, drafter: str = "eagle") -> Prices:
    """What rows and branches of a draft tree cost in tokens: their time, times what a good chain makes in that time.

    Trees are priced for a sequence alone, for its drafts may not depend on the sequences beside it.
    """
    step, draft = costs_alone(curve, draft_cost, drafter)
    tokens = [sum(_CHAIN_ACCEPTANCE**k for k in range(length + 1)) for length in range(1, _LONGEST + 1)]
    rate = max(made / (step(1 + length) + draft(length)) for length, made in enumerate(tokens, 1))
    row = max(0.0, step(1 + _LONGEST) - step(3)) / (_LONGEST - 2)
    branch = _BRANCH_COST[numerics] * step(1)  # relative to a step, so that it holds on faster machines, too
    return Prices(row * rate, branch * rate, _TREE_PATH, repeats=numerics == "invariant")
