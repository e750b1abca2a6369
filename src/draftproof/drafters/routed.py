"""Several drafters in one engine: each sequence is drafted for by the one it was assigned to, or by none.

All sequences share one batch of the target; in each step every drafter proposes for its own ones. A drafter that
raises costs its sequences their drafts and nothing else: they go on plainly (D4), and the fault is reported.

Invariant: a drafter sees its own sequences only, from assignment to `forget`; a sequence's drafts are those its drafter
would make alone.

Does not know: how a drafter was chosen, what a fault means for the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from draftproof.errors import UnknownDrafter
from draftproof.protocols import Drafter, Noise
from draftproof.types import EMPTY_DRAFT, Commit, Draft, StepItem

Fault = Callable[[str, Sequence[int], Exception], None]


class Routed:
    """A drafter made of drafters by label.

    drafters: at least none; default: the label of sequences that nobody assigned, None for plain decoding.
    on_fault: called with the label, the sequences that lost their drafter, and what it raised; without it that is
        raised on.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], default: str | None = None, on_fault: Fault | None = None
    ) -> None:
        self.name = "+".join(drafters) or "none"
        self.wants: frozenset[str] = frozenset().union(*(drafter.wants for drafter in drafters.values()))
        self.drafters = dict(drafters)
        self.on_fault = on_fault
        self._default = self._known(default)
        self._routes: dict[int, str | None] = {}

    def assign(self, seq: int, label: str | None) -> None:
        """Who drafts for a sequence, from its first step on; None is nobody. Raises UnknownDrafter."""
        self._routes[seq] = self._known(label)

    def route(self, seq: int) -> str | None:
        """The label of a sequence's drafter."""
        return self._routes.get(seq, self._default)

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One draft for each item, from its own drafter."""
        drafts = [EMPTY_DRAFT] * len(items)
        for label, places in self._places([item.seq if item.budget > 0 else None for item in items]).items():
            own = [items[place] for place in places]
            try:
                proposed = list(zip(places, self._proposed(label, own, noise), strict=True))
            except Exception as error:  # whatever a drafter raises: its drafts are not needed
                self._fail(label, [item.seq for item in own], error)
                continue
            for place, draft in proposed:
                drafts[place] = draft
        return drafts

    def observe(self, commits: Sequence[Commit]) -> None:
        """Each drafter sees what became of its own sequences."""
        for label, places in self._places([commit.seq for commit in commits]).items():
            own = [commits[place] for place in places]
            try:
                self.drafters[label].observe(own)
            except Exception as error:
                self._fail(label, [commit.seq for commit in own], error)

    def forget(self, seq: int) -> None:
        """The sequence is gone, and its assignment with it."""
        label = self.route(seq)
        self._routes.pop(seq, None)
        if label is None:
            return
        try:
            self.drafters[label].forget(seq)
        except Exception as error:
            self._fail(label, [], error)

    def _known(self, label: str | None) -> str | None:
        if label is not None and label not in self.drafters:
            raise UnknownDrafter(
                f"no drafter is called {label!r} here; there are: {', '.join(self.drafters) or 'none'}"
            )
        return label

    def _places(self, seqs: Sequence[int | None]) -> dict[str, list[int]]:
        """label -> places of its sequences; a place without a sequence asks nobody."""
        places: dict[str, list[int]] = {}
        for place, seq in enumerate(seqs):
            label = None if seq is None else self.route(seq)
            if label is not None:
                places.setdefault(label, []).append(place)
        return places

    def _proposed(self, label: str, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        drafts = self.drafters[label].propose(items, noise)
        for item, draft in zip(items, drafts, strict=True):
            if len(draft) > item.budget:
                raise ValueError(f"drafter {label} proposed {len(draft)} nodes over {item.budget}")
        return drafts

    def _fail(self, label: str, seqs: Sequence[int], error: Exception) -> None:
        if self.on_fault is None:
            raise error
        for seq in seqs:
            self._routes[seq] = None
            with suppress(
                Exception
            ):  # it is broken; what it holds of this sequence is given back where it still can be
                self.drafters[label].forget(seq)
        self.on_fault(label, seqs, error)
