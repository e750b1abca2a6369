"""One engine for several drafters: who drafts for a sequence, how far, and what shadow drafts came to.

Each drafter keeps the draft policy it would have alone; in a step it is asked about the whole batch, with nothing to
guess for the sequences of others, and learns from its own. So a policy sees how many sequences share the step, though
not the rows that other drafters add to it.

A sequence in shadow is routed to the shadow of its drafter. It gets a fixed look-ahead while no draft of it is open,
whatever the policies say: the target never sees it, so it takes no rows from others.

Does not know: requests, stages, why a sequence is in shadow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from draftproof.drafters.routed import Fault, Routed
from draftproof.drafters.shadow import Shadow, ShadowCounts
from draftproof.protocols import Drafter
from draftproof.sched.policy import Ask, DraftPolicy, Offer, StepRows
from draftproof.types import Commit

SHADOW_GAMMA = 4  # drafts of a shadow round: acceptance shows in the first positions, and drafting costs time


@dataclass(frozen=True, slots=True)
class Route:
    """What drafts for a sequence. label None: nothing."""

    label: str | None = None
    shadow: bool = False


PLAIN = Route()


class Routes:
    """The drafters of one engine by label, as one `Drafter` and one `DraftPolicy` (itself)."""

    def __init__(self, drafters: Mapping[str, Drafter], policies: Mapping[str, DraftPolicy]) -> None:
        """policies: one for each drafter."""
        self._policies = dict(policies)
        self._shadows = {_shadow(label): Shadow(drafter) for label, drafter in drafters.items()}
        self.drafter = Routed({**drafters, **self._shadows})
        self.labels = tuple(drafters)

    def on_fault(self, fault: Fault) -> None:
        """What to do when a drafter raises; its sequences go on without drafts."""
        self.drafter.on_fault = lambda label, seqs, error: fault(label.removeprefix(_PREFIX), seqs, error)

    def most(self, label: str) -> int:
        """The longest draft that this drafter is ever asked for."""
        policy = self._policies[label]
        most = getattr(policy, "gamma_max", None)
        return int(getattr(policy, "gamma", 0) if most is None else most)

    def assign(self, seq: int, route: Route) -> None:
        """Before the sequence's first step."""
        label = route.label
        self.drafter.assign(seq, _shadow(label) if label is not None and route.shadow else label)

    def close(self, seq: int) -> ShadowCounts:
        """Forgets a sequence that has ended; what became of its shadow drafts."""
        self.drafter.forget(seq)  # the engine forgets what it ran; not what ended before its first step
        total = ShadowCounts()
        for shadow in self._shadows.values():
            counts = shadow.take(seq)
            total.rounds += counts.rounds
            total.drafted += counts.drafted
            total.tested += counts.tested
            total.accepted += counts.accepted
        return total

    # -- the policy ----------------------------------------------------------------------------------------------------

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """Each drafter's policy for its own sequences, a fixed look-ahead for those in shadow, 0 for the others."""
        routes = [self.drafter.route(ask.seq) for ask in asks]
        budgets = [self._shadow_budget(route, ask) for route, ask in zip(routes, asks, strict=True)]
        for label in dict.fromkeys(route for route in routes if route in self._policies):
            assert label is not None
            own = [
                ask if route == label or not ask.most else replace(ask, most=0)
                for route, ask in zip(routes, asks, strict=True)
            ]
            for place, budget in enumerate(self._policies[label].budgets(own)):
                if routes[place] == label:
                    budgets[place] = budget
        return budgets

    def worth(self, offers: Sequence[Offer], step: StepRows) -> list[int]:
        """Each drafter's policy for its own sequences, beside the whole drafts of others."""
        routes = [self.drafter.route(offer.seq) for offer in offers]
        lengths = [offer.length for offer in offers]
        for label in dict.fromkeys(route for route in routes if route in self._policies):
            assert label is not None
            own = [place for place, route in enumerate(routes) if route == label]
            others = sum(length for length, route in zip(lengths, routes, strict=True) if route != label)
            chosen = self._policies[label].worth([offers[i] for i in own], replace(step, rows=step.rows + others))
            for place, length in zip(own, chosen, strict=True):
                lengths[place] = length
        return lengths

    def _shadow_budget(self, route: str | None, ask: Ask) -> int:
        shadow = self._shadows.get(route) if route is not None else None
        return 0 if shadow is None or shadow.in_round(ask.seq) else min(SHADOW_GAMMA, ask.most)

    def observe(self, commits: Sequence[Commit]) -> None:
        """Each policy learns from its own drafter's rounds."""
        routes = [self.drafter.route(commit.seq) for commit in commits]
        for label, policy in self._policies.items():
            own = [commit for commit, route in zip(commits, routes, strict=True) if route == label]
            if own:
                policy.observe(own)

    def forget(self, seq: int) -> None:
        """The sequence is gone."""
        for policy in self._policies.values():
            policy.forget(seq)


_PREFIX = "shadow:"


def _shadow(label: str) -> str:
    return _PREFIX + label
