"""Conditional fit: the numbers of `places`, gathered over many texts, tested by place.

How many numbers each test takes is fixed before it takes any: "law" takes the first N tokens, of all batches laid end
to end; the others are counted over the first batch, a pilot, and take what that promises of the rest. Numbers that
don't come are filled up (`pit`). So no count depends on the numbers it counts, and the rates are those of n fixed.

Does not know: engines, files, what is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from draftproof.certify.pit import CELLS, Cells, equal_cells
from draftproof.certify.places import CERTAIN, Seen
from draftproof.certify.results import Power, Result

LEAST = 100  # numbers a test must promise, ten a cell, else it is not made

HYPOTHESES = {
    "law": "every emitted token has the target's law at its own prefix",
    "tested": "tokens of places where a draft stood, accepted or corrected, have the target's law",
    "support": "no token is emitted that the target's law excludes",
    "coin_sides": "no draft is refused that must be accepted, and none accepted that the target's law excludes",
    "bonus": "the token after full acceptance has the target's law",
    "plain": "tokens of rounds without a draft have the target's law",
    "draft": "drafts are drawn from the law they are reported with",
    "chain": "later drafts of a chain judged as a whole have the law that its acceptance leaves them",
    "accept": "a draft x is accepted with chance min(1, p(x)/q(x)), in a chain judged as a whole with theorem 6's",
    "younger": "a draft that had elder siblings is accepted with chance min(1, p(x)/q(x)), p what they left",
    "correction": "the token after a refusal has the law that the refused drafts left",
}


class Fit:
    """Cells of every test, as numbers come. num_tokens: N, fixed."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.cells: dict[str, Cells] = {"law": Cells(quota=num_tokens)}
        self.certain = dict.fromkeys(CERTAIN, 0)
        self.examples: dict[str, Any] = {}  # the first of each
        self._piloted = False

    @property
    def count(self) -> int:
        """Tokens so far, at most N."""
        return self.cells["law"].taken

    @property
    def full(self) -> bool:
        """True when N tokens have been seen."""
        return self.count >= self.num_tokens

    def add(self, numbers: Iterable[Seen]) -> list[Seen]:
        """In order of time. Returns those that were taken before N was reached."""
        taken = []
        for seen in numbers:
            if seen.test == "law" and self.full:
                break
            taken.append(seen)
            if seen.test in CERTAIN:
                self.certain[seen.test] += 1
                self.examples.setdefault(seen.test, seen.where)
            else:
                self.cells.setdefault(seen.test, Cells()).add(seen.number)
        return taken

    def end_batch(self) -> None:
        """After the first batch: what it promises of the rest. Later ones change nothing."""
        for cells in self.cells.values():
            if cells.quota is None and not self._piloted:
                promised = round(cells.seen * (self.num_tokens / max(1, self.count) - 1))
                cells.quota = promised if promised >= LEAST else 0
        self._piloted = True

    def tested(self) -> list[str]:
        """Names of the tests that are made."""
        return sorted(name for name, cells in self.cells.items() if cells.quota)

    def results(self, stage: str, exact: bool, rng: np.random.Generator) -> list[Result]:
        """One result a test. exact: laws are known bit for bit. rng: of the numbers that fill up."""
        found = [self._result(stage, name, rng) for name in self.tested()]
        for name, times in self.certain.items():
            detail = {"times": times, "faults": [self.examples[name]] if times else []}
            found.append(
                Result(f"{stage}.{name}", HYPOTHESES[name], self.count, failed=times > 0, counts=exact, detail=detail)
            )
        return found

    def _result(self, stage: str, name: str, rng: np.random.Generator) -> Result:
        cells = self.cells[name]
        quota = cells.quota or 0
        counts = cells.filled(rng)
        statistic, p_value = equal_cells(counts)
        hypothesis = HYPOTHESES[name.partition("@")[0]]
        detail = {"cells": counts, "statistic": statistic, "filled": quota - cells.taken}
        power = Power(quota, CELLS - 1, dilution=quota / max(1, cells.taken))
        return Result(f"{stage}.{name}", hypothesis, cells.taken, p_value, power, detail=detail)

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        cells = {name: [each.quota, each.counts, each.seen] for name, each in self.cells.items()}
        base = {
            "num_tokens": self.num_tokens,
            "certain": self.certain,
            "examples": self.examples,
            "piloted": self._piloted,
        }
        return {**base, "cells": cells}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Fit:
        """The fit that `state` was taken of."""
        fit = cls(state["num_tokens"])
        fit.cells = {name: Cells(*each) for name, each in state["cells"].items()}
        fit.certain, fit.examples = dict(state["certain"]), dict(state["examples"])
        fit._piloted = state["piloted"]
        return fit
