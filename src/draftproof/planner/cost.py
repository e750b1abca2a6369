"""What a round costs on a device: the target's step and the drafter's, measured or as constants.

`CostCurve.from_json` reads a cost file (format 1: "target" points over sequences, rows and context, "drafters" points
by label over sequences, tokens and context; see `surface` for what happens between and beyond them);
`CostCurve.constant` is the textbook's T_t and T_d with a verify slope, the same at every load and context.

Invariant: a curve that was made can be asked for any load >= 1 and any length it makes sense for; what is wrong with a
file is one InputError that names the field. A step's ms holds for all its sequences together.

Does not know: acceptance, files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.errors import InputError
from draftproof.planner.surface import Cost, Sample, Surface

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Straight:
    """A cost that knows neither load nor context: fixed + slope * length."""

    fixed: float
    slope: float

    loads: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()

    def at(self, sequences: float, length: float, context: float | None) -> Cost:
        """The cost, taken as exact."""
        return Cost(self.fixed + self.slope * length)


class CostCurve:
    """Milliseconds of a target step and of a drafter's proposal."""

    def __init__(
        self, target: Surface | Straight, drafters: Mapping[str | None, Surface | Straight], model: Any = None
    ) -> None:
        """drafters: by label; the label None stands for every drafter that has none of its own. model: as measured."""
        self._target, self._drafters, self.model = target, dict(drafters), model
        self.checked: bool | None = None  # whether the curve foretold real decoding; None: nobody tried
        self.sampling: Mapping[str, Any] = {}  # parameters it was measured under, as far as they are known

    @classmethod
    def constant(
        cls, t_target: float, t_draft: float | Mapping[str | None, float], verify_slope: float = 0.0
    ) -> CostCurve:
        """t_target: ms of a plain step; t_draft: ms of one draft token (by label; None for all others)."""
        steps: dict[str | None, float] = dict(t_draft) if isinstance(t_draft, Mapping) else {None: t_draft}
        if not (t_target > 0 and verify_slope >= 0 and all(ms >= 0 for ms in steps.values())):
            raise InputError("the target's time must be above 0, drafters' times and the verify slope at least 0")
        target = Straight(t_target * (1 - verify_slope), t_target * verify_slope)
        return cls(target, {label: Straight(0.0, ms) for label, ms in steps.items()})

    @classmethod
    def from_json(cls, value: object) -> CostCurve:
        """The curve of a cost file. Raises InputError that names what is wrong with it."""
        if not isinstance(value, dict) or "target" not in value:
            raise InputError("this is no cost file of draftproof: it has no field 'target'")
        if value.get("format") != FORMAT:
            raise InputError(f"cost: format {value.get('format')!r} is not known here, only {FORMAT}")
        drafters = value.get("drafters", {})
        if not isinstance(drafters, dict):
            raise InputError("cost: drafters must be an object of lists by label")
        target = _samples(value["target"], "rows", "target")
        _check_rows(target)
        drafts = {label: _samples(points, "tokens", f"drafters.{label}") for label, points in drafters.items()}
        for label, samples in drafts.items():
            if not any(one.length for one in samples):
                raise InputError(f"cost: drafters.{label} has no point with tokens above 0")
        curve = cls(Surface(target), {label: Surface(samples) for label, samples in drafts.items()}, value.get("model"))
        check, sampling = value.get("check"), value.get("sampling")
        curve.sampling = sampling if isinstance(sampling, dict) else {}
        curve.checked = check.get("holds") if isinstance(check, dict) else None
        return curve

    @property
    def kind(self) -> str:
        """ "measured" or "constant"."""
        return "constant" if isinstance(self._target, Straight) else "measured"

    @property
    def extent(self) -> str:
        """What was measured, in words; "" for constants."""
        if isinstance(self._target, Straight):
            return ""
        loads, contexts, rows = self._target.loads, self._target.contexts, self._target.longest
        return f"up to {loads[-1]} sequences, {rows} rows each, {contexts[-1]} tokens of context"

    @property
    def drafters(self) -> tuple[str, ...]:
        """Labels of the drafters it has costs of; not that of all others."""
        return tuple(label for label in self._drafters if label is not None)

    @property
    def loads(self) -> tuple[int, ...]:
        """Numbers of sequences that the target was measured at; () for constants."""
        return self._target.loads

    def step_cost(self, sequences: float, rows: float, context: float | None = None) -> Cost:
        """One target step over `sequences` sequences with `rows` rows each (fractions are means)."""
        return self._target.at(sequences, rows, context)

    def draft_cost(self, label: str, sequences: float, tokens: float, context: float | None = None) -> Cost:
        """Proposing `tokens` tokens for each of `sequences` sequences; 0 tokens is asking and getting none."""
        return self._drafter(label).at(sequences, tokens, context)

    def step(self, sequences: float, rows: float, context: float | None = None) -> float:
        """Milliseconds of `step_cost`."""
        return self.step_cost(sequences, rows, context).ms

    def draft(self, label: str, sequences: float, tokens: float, context: float | None = None) -> float:
        """Milliseconds of `draft_cost`."""
        return self.draft_cost(label, sequences, tokens, context).ms

    def _drafter(self, label: str) -> Surface | Straight:
        found = self._drafters.get(label) or self._drafters.get(None)
        if found is None:
            known = ", ".join(sorted(str(name) for name in self._drafters)) or "none"
            raise InputError(
                f"there is no cost of the drafter {label!r}; costs are known of: {known} "
                f"(measure it with `draftproof cost --drafter {label}`, or go without a cost file)"
            )
        return found


def _samples(points: object, length: str, where: str) -> list[Sample]:
    if not isinstance(points, list) or not points:
        raise InputError(f"cost: {where} must be a list of points, and not empty")
    samples = [_sample(point, length, f"{where}[{index}]") for index, point in enumerate(points)]
    places = [(one.sequences, one.length, one.context) for one in samples]
    for index, place in enumerate(places):
        if place in places[:index]:
            raise InputError(f"cost: {where}[{index}] is the second point at the same place")
    return samples


def _sample(point: object, length: str, where: str) -> Sample:
    if not isinstance(point, dict):
        raise InputError(f"cost: {where} must be an object")
    least_ms = 0.0 if length == "tokens" else math.ulp(0.0)  # looking something up may round to nothing; a step can't
    return Sample(
        sequences=int(_number(point, "sequences", where, 1)),
        length=int(_number(point, length, where, 0 if length == "tokens" else 1)),
        context=int(_number(point, "context", where, 0)),
        ms=_number(point, "ms", where, least_ms),
        error=_number({"error": 0.0, **point}, "error", where, 0),
    )


def _number(point: Mapping[str, Any], name: str, where: str, least: float) -> float:
    value = point.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
        wanted = "above 0" if 0 < least < 1 else f"at least {least:g}"
        raise InputError(f"cost: {where}.{name} must be a number {wanted}, got {value!r}")
    if name not in ("ms", "error") and value != int(value):
        raise InputError(f"cost: {where}.{name} must be an integer, got {value!r}")
    return value


def _check_rows(samples: list[Sample]) -> None:
    """How a step grows with rows is what a plan is about: one point can't say it."""
    lengths: dict[tuple[int, int], set[int]] = {}
    for one in samples:
        lengths.setdefault((one.sequences, one.context), set()).add(one.length)
    for (sequences, context), rows in lengths.items():
        if len(rows) < 2:
            raise InputError(
                f"cost: target needs at least two values of rows at {sequences} sequences and context {context}"
            )
