"""What a run shows at its longest draft, by bucket and drafter: acceptance expected and counted, tokens per round.

Expected and counted estimate the same: where they disagree by more than their intervals, something is wrong.

Does not know: costs, draft lengths that pay (`plan` does).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.measure.read import read_info, read_run
from draftproof.planner.acceptance import GammaEstimate, Rounds, counted, estimate
from draftproof.planner.evidence import Evidence
from draftproof.planner.interval import Interval


@dataclass(frozen=True, slots=True)
class Line:
    """One drafter in one bucket. tokens: decided by rounds; None where nothing was drafted, or decided."""

    bucket: str
    drafter: str
    prompts: int
    tokens: int
    acceptance: Interval | None
    acceptance_counted: Interval | None
    tokens_per_round: Interval | None
    tokens_per_round_counted: Interval | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """gamma: the longest draft, at which all figures are."""

    gamma: int
    lines: tuple[Line, ...]


def summarise_run(folder: Path) -> Summary:
    """Raises InputError for a folder that holds no rows of a run."""
    gamma = int(read_info(folder)["gamma_max"])
    evidence = read_run(folder)
    lines = (
        _line(evidence, gamma, bucket, drafter)
        for bucket in range(len(evidence.buckets))
        for drafter in range(len(evidence.drafters))
    )
    return Summary(gamma, tuple(lines))


def _line(evidence: Evidence, gamma: int, bucket: int, drafter: int) -> Line:
    texts = evidence.texts(drafter, bucket)
    expected = real = None
    if len(texts):
        starts = evidence.starts_of(evidence.drafters[drafter].name, evidence.buckets[bucket])
        expected = estimate(starts, [gamma])[0]
        real = counted(_rounds(evidence.rounds, texts), gamma, [gamma])[0]
    return Line(
        bucket=evidence.buckets[bucket],
        drafter=evidence.drafters[drafter].name,
        prompts=int((evidence.requests.bucket == bucket).sum()) // len(evidence.drafters),
        tokens=expected.tokens if expected else 0,
        acceptance=_acceptance(expected),
        acceptance_counted=_acceptance(real),
        tokens_per_round=expected.tokens_per_round if expected else None,
        tokens_per_round_counted=real.tokens_per_round if real else None,
    )


def _acceptance(found: GammaEstimate | None) -> Interval | None:
    return None if found is None else found.acceptance


def _rounds(rounds: Rounds, texts: Any) -> Rounds:
    rows = np.isin(rounds.prompt, texts)
    return Rounds(
        rounds.prompt[rows], rounds.drafted[rows], rounds.accepted[rows], rounds.tested[rows], rounds.emitted[rows]
    )
