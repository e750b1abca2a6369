"""Runs taken in turn -> rates, paired ratios, an interval. Pure numbers.

A run is one configuration on one prompt (or window of prompts) in one repeat. Two runs are a pair when they share
repeat and prompt: they ran one after the other, so the machine's mood is in both.

The ratio of two configurations is that of their harmonic mean rates, i.e. of the times they need per token. Its
interval resamples the *pairs of each prompt* (the prompts are fixed, the noise is in the repeats): the percentile
bootstrap of Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.

Does not know: engines, which ratio is wanted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALL = "all"
_RESAMPLES = 4000

Run = Mapping[str, Any]  # config, bucket, prompt, repeat, seconds, counts, ...


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over the baseline. value: of the harmonic means; low, high: 95 % interval of it; the rest pair by pair."""

    value: float
    low: float
    high: float
    smallest: float
    median: float
    largest: float
    num_pairs: int


def rate(run: Run) -> float:
    """Tokens per second of one run, all its sequences together."""
    return float(sum(run["counts"]) / run["seconds"])


def harmonic_mean(values: Sequence[float]) -> float:
    """len / sum of inverses; raises ValueError for none, and for a value that is not above 0."""
    if not len(values) or min(values) <= 0:
        raise ValueError("a harmonic mean needs at least one value, all above 0")
    return len(values) / sum(1.0 / value for value in values)


def select(runs: Iterable[Run], config: str, bucket: str = ALL) -> list[Run]:
    """The runs of a configuration in a bucket (or in all)."""
    return [run for run in runs if run["config"] == config and bucket in (ALL, run["bucket"])]


def pairs(runs: Iterable[Run], ours: str, baseline: str, bucket: str = ALL) -> list[tuple[Run, Run]]:
    """(our run, the baseline's) of each repeat and prompt that both have."""
    runs = list(runs)
    theirs = {(run["repeat"], run["prompt"]): run for run in select(runs, baseline, bucket)}
    mine = {(run["repeat"], run["prompt"]): run for run in select(runs, ours, bucket)}
    return [(run, theirs[key]) for key, run in sorted(mine.items()) if key in theirs]


def _resampled(groups: Sequence[Sequence[int]], rng: np.random.Generator) -> np.ndarray:
    """int[resamples, pairs]: indices drawn with replacement within each group."""
    return np.concatenate([rng.choice(np.asarray(group), (_RESAMPLES, len(group))) for group in groups], axis=1)


def ratio_of_costs(paired: Sequence[tuple[Run, Run]], cost: Any, *, seed: int = 0) -> Ratio | None:
    """Baseline's mean cost over ours, e.g. of seconds per token: above 1, ours is the cheaper one. None without pairs.

    cost: run -> a number above 0.
    """
    if not paired:
        return None
    ours = np.array([cost(mine) for mine, _ in paired], np.float64)
    theirs = np.array([cost(other) for _, other in paired], np.float64)
    by_prompt: dict[Any, list[int]] = defaultdict(list)
    for index, (mine, _) in enumerate(paired):
        by_prompt[mine["prompt"]].append(index)
    drawn = _resampled(list(by_prompt.values()), np.random.default_rng(seed))
    low, high = np.percentile(theirs[drawn].sum(axis=1) / ours[drawn].sum(axis=1), [2.5, 97.5])
    each = theirs / ours
    value = theirs.sum() / ours.sum()
    numbers = (value, low, high, each.min(), np.median(each), each.max())
    return Ratio(*(float(number) for number in numbers), len(paired))


def speed_ratio(runs: Iterable[Run], ours: str, baseline: str, bucket: str = ALL) -> Ratio | None:
    """Our tokens per second over the baseline's."""
    return ratio_of_costs(pairs(runs, ours, baseline, bucket), lambda run: 1.0 / rate(run))


def latency_ratio(runs: Iterable[Run], ours: str, baseline: str, bucket: str = ALL) -> Ratio | None:
    """Our time to the first token over the baseline's: below 1, ours is the sooner one."""
    swapped = [(theirs, mine) for mine, theirs in pairs(runs, ours, baseline, bucket)]
    return ratio_of_costs(swapped, lambda run: run["ttft_s"])


def share(runs: Iterable[Run], config: str, *, draft_is_overhead: bool) -> float | None:
    """Part of the steps' time that the engine spent outside the target's forward passes; None without runs."""
    meters = [run["meter"] for run in select(runs, config) if "meter" in run]
    total = sum(meter["total_s"] for meter in meters)
    if not total:
        return None
    model = sum(meter["forward_s"] + (0.0 if draft_is_overhead else meter["draft_s"]) for meter in meters)
    return float((total - model) / total)


def identical(runs: Iterable[Run], ours: str, baseline: str) -> tuple[int, int]:
    """(texts that are equal in every repeat, texts compared), prompt by prompt."""
    equal: dict[Any, bool] = {}
    for mine, theirs in pairs(runs, ours, baseline):
        equal[mine["prompt"]] = equal.get(mine["prompt"], True) and mine["digests"] == theirs["digests"]
    return sum(equal.values()), len(equal)
