"""Resident memory over time -> does it still grow, and how fast? Pure numbers.

What a process fills once (pages of keys and values, caches of prepared kernels, the largest step that ever came) is no
leak, and takes minutes to fill: so the first part of a run is a warm-up and is left out, and the rest is judged by a
fitted line, whose slope is told whatever the verdict.

Does not know: processes, what the memory is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Sample = Mapping[str, float]  # seconds, mib


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through the samples after the warm-up. All sizes in MiB."""

    warm_up_s: float
    seconds: float  # that the line covers
    mib_per_minute: float
    growth: float  # along the line
    begin: float  # resident at the start of the run, at the end of the warm-up, at the end
    warm: float
    end: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def trend(samples: Sequence[Sample], warm_up_s: float) -> Trend:
    """The least squares line of the samples from warm_up_s on. Raises ValueError for fewer than three of them."""
    later = [sample for sample in samples if sample["seconds"] >= warm_up_s]
    if len(later) < 3:
        raise ValueError(f"{len(later)} samples after {warm_up_s:.0f} s of warm-up: a line needs three")
    times = np.array([sample["seconds"] for sample in later])
    sizes = np.array([sample["mib"] for sample in later])
    per_second = float(np.polyfit(times - times[0], sizes, 1)[0])
    covered = float(times[-1] - times[0])
    begin, warm, end = samples[0]["mib"], later[0]["mib"], later[-1]["mib"]
    return Trend(warm_up_s, covered, 60 * per_second, per_second * covered, begin, warm, end)
