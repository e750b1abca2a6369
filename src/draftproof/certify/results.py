"""What each test found, and which of many findings are alarms: one false-alarm rate for all of them together.

Holm's step-down rule (1979): with m p-values, the smallest is an alarm if it is <= alpha/m, then the next if it is
<= alpha/(m-1), and so on up to the first that is not. The chance of any false alarm is at most alpha, however the tests
depend on each other. Stated power is that at alpha/m, the hardest step.

A *certain* finding has no p-value: what it looks at can't happen if the engine is right (a token after the end, a text
that differs where the numerics are bit-exact); its false-alarm rate is 0.

Does not know: how a p-value came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from draftproof.certify.chances import smallest_tv


class Power(NamedTuple):
    """What the smallest error that is found follows from: `chances.smallest_tv`, times a dilution >= 1."""

    num: int
    freedom: int
    samples: int = 1
    dilution: float = 1.0

    def tv(self, alpha: float) -> float:
        """Smallest total variation found with 99 % at this false-alarm rate."""
        return min(1.0, smallest_tv(self.num, alpha, self.freedom, samples=self.samples) * self.dilution)


@dataclass(frozen=True, slots=True)
class Result:
    """One test.

    test: a unique name, "stage.what". hypothesis: in words. count: tokens (or texts) looked at. p_value: None for a
    certain finding. tv_99: the smallest total variation found with 99 %, set by `judged`; None where it has no meaning.
    failed: of a certain finding. alarm: set by `judged`. counts: False for figures that are shown and not judged.
    """

    test: str
    hypothesis: str
    count: int
    p_value: float | None = None
    power: Power | None = None
    tv_99: float | None = None
    failed: bool = False
    alarm: bool = False
    counts: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The name without its stage."""
        return self.test.rpartition(".")[2]

    def as_json(self) -> dict[str, Any]:
        """JSON-ready; `from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Result:
        """The result that `as_json` was taken of."""
        power = value["power"]
        return cls(**{**value, "power": None if power is None else Power(*power)})


def judged(results: Sequence[Result], alpha: float) -> list[Result]:
    """The same results, in order, with alarms by Holm's rule and power at its hardest step."""
    tested = sorted((r.p_value, i) for i, r in enumerate(results) if r.p_value is not None and r.counts)
    alarms = {index for index, result in enumerate(results) if result.failed and result.counts}
    for rank, (p_value, index) in enumerate(tested):
        if p_value > alpha / (len(tested) - rank):
            break
        alarms.add(index)
    level = alpha / max(1, len(tested))
    return [
        replace(result, alarm=index in alarms, tv_99=None if result.power is None else result.power.tv(level))
        for index, result in enumerate(results)
    ]
