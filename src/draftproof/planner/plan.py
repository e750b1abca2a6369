"""A plan: for each bucket and load what every drafter would bring at every draft length, the choice, and why.

Frozen records only; `make.make_plan` fills them, the terminal, the HTML report and `export` read them. Times are in
milliseconds, sizes in bytes, rates per second, money in the unit of the price that was given.

Invariant: every number here is finite or None (JSON has no NaN), and `Plan.from_json(plan.to_json()) == plan`.

Does not know: where the numbers come from, files, printing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from draftproof.errors import InputError
from draftproof.planner.acceptance import GammaEstimate
from draftproof.planner.interval import Interval
from draftproof.planner.memory import MemoryRow
from draftproof.planner.records import decode

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Point:
    """One drafter at one draft length, in one bucket under one load."""

    gamma: int
    tokens_per_round: Interval  # with the correction or bonus token; per sequence
    acceptance: Interval | None  # accepted / tested; None where nothing is tested (gamma 0, or no drafts offered)
    drafted: float  # mean drafts a round
    draft_ms: float  # drafting of one round, all sequences of the load together
    verify_ms: float  # target step of one round, all sequences together
    itl_ms: float  # (draft_ms + verify_ms) / tokens_per_round
    speedup: Interval  # over plain decoding at the same load; exactly 1 at gamma 0
    tokens_per_second: float  # of all sequences together
    extrapolated: bool  # some cost lies beyond what was measured


@dataclass(frozen=True, slots=True)
class Curve:
    """One drafter under one load: a point for every gamma, 0 first."""

    drafter: str
    points: tuple[Point, ...]  # points[gamma].gamma == gamma, 0..G
    best_gamma: int  # of the highest mean speed-up; 0 where nothing is faster than plain
    t_draft_ms: float  # per draft token and round: draft cost of G tokens / G (a textbook's T_d)
    alpha: float | None  # the constant acceptance with the same tokens per round at the best gamma above 0

    @property
    def best(self) -> Point:
        """The point of best_gamma."""
        return self.points[self.best_gamma]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Mean speed-up of the chosen drafter and gamma if one thing were different."""

    acceptance_down: float  # every acceptance 10 % lower
    acceptance_up: float  # every acceptance 10 % higher (at most 1)
    draft_cost_half: float
    draft_cost_double: float


@dataclass(frozen=True, slots=True)
class Gain:
    """Plain decoding against the choice, decode time only; money is None without a price, requests without lengths."""

    tokens_per_second_plain: float
    tokens_per_second: float
    requests_per_second_plain: float | None
    requests_per_second: float | None
    requests_per_second_gained: float | None
    price_per_million_plain: float | None  # per million output tokens
    price_per_million: float | None
    saved_per_hour: float | None  # of the price of one hour, for the tokens that plain decoding makes in it


@dataclass(frozen=True, slots=True)
class Band:
    """One bucket under one load (sequences decoded at once): every drafter's curve, the choice, the decision.

    `drafter`, `point`, `sensitivity` and `gain` describe the fastest candidate by mean speed-up. Plain decoding is a
    candidate: then drafter is None, point has gamma 0, sensitivity is None. enable is False too where the fastest
    candidate's interval includes a loss: it is then shown, and not recommended.
    """

    concurrency: int
    plain_itl_ms: float
    verify_slope: float  # relative growth of the target step for each draft row: (T(1+G)/T(1) - 1) / G
    curves: tuple[Curve, ...]
    drafter: str | None
    point: Point
    enable: bool
    reason: str  # one sentence
    sensitivity: Sensitivity | None
    gain: Gain

    @property
    def decision(self) -> str:
        """ "enable" or "do not enable"."""
        return "enable" if self.enable else "do not enable"

    def curve(self, drafter: str) -> Curve:
        """The curve of one drafter. Raises KeyError."""
        for curve in self.curves:
            if curve.drafter == drafter:
                return curve
        raise KeyError(drafter)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The largest number of sequences at once at which some drafter with gamma >= 1 is not slower than plain.

    kind: "at" (between measured loads: concurrency is it), "beyond" (still not slower at `concurrency`, the largest
    load measured), "never" (slower at every measured load; concurrency is None), "unknown" (costs that do not
    depend on the load; concurrency is None).
    """

    kind: str
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one drafter's drafts are worth in one bucket, whatever they cost."""

    drafter: str
    expected: tuple[GammaEstimate, ...]  # expected[gamma], 0..G: from the laws
    counted: tuple[GammaEstimate, ...]  # the same from coins really thrown at gamma G, cut to each gamma; may be ()


@dataclass(frozen=True, slots=True)
class Bucket:
    """One class of requests, or all of them."""

    name: str
    prompts: int
    tokens: int  # output tokens, all prompts together, of one drafter's run
    context: float  # tokens of context that costs are taken at
    completion_tokens: float  # mean output length of a request
    estimates: tuple[Estimates, ...]  # in the order of Plan.drafters; only those with a text in this bucket
    bands: tuple[Band, ...]  # in the order of Plan.concurrency
    break_even: BreakEven

    def band(self, concurrency: int) -> Band:
        """The band of one load. Raises KeyError."""
        for band in self.bands:
            if band.concurrency == concurrency:
                return band
        raise KeyError(concurrency)


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """A candidate as the run names it."""

    name: str  # label, unique in the run
    kind: str  # suffix, ngram, model, early_exit, fixed_tree, ...
    model: dict[str, Any] | None  # MODEL of run.json, where it has a model of its own


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `draftproof plan RUN` found."""

    format: int
    target: dict[str, Any]  # MODEL of run.json
    drafters: tuple[DrafterInfo, ...]  # those with at least one decided token; all are in the overall bucket
    sampling: dict[str, Any]
    gamma_max: int
    concurrency: tuple[int, ...]
    cost_kind: str  # "measured" or "constant"
    price_per_hour: float | None
    memory_limit: int | None  # bytes
    overall: str  # name of the bucket that holds all prompts
    buckets: tuple[Bucket, ...]  # the overall one first
    memory: tuple[MemoryRow, ...]
    notes: tuple[str, ...]  # what a reader must know: incomplete run, extrapolated costs, ...

    def bucket(self, name: str) -> Bucket:
        """One bucket. Raises KeyError."""
        for bucket in self.buckets:
            if bucket.name == name:
                return bucket
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: dicts, lists, numbers, strings, None."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Plan:
        """The plan that `to_json` wrote (RUN/plan.json). Raises InputError for anything else."""
        if isinstance(value, dict) and value.get("format") != FORMAT:
            raise InputError(f"the plan has format {value.get('format')!r}; this version reads format {FORMAT}")
        return decode(cls, value, "plan")
