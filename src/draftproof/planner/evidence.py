"""What a run has shown, in the form the planner works on: starts, rounds and request lengths as flat arrays.

A *text* is one completion of one prompt under one drafter; texts are numbered 0..T-1 in the order of their rows, and
are the clusters of every interval. Requests are counted apart, because a completion of one token decides nothing and
yet is a request.

Invariant: `starts` and `rounds` cover the same texts in the same order. Does not know: files, costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from draftproof.planner.acceptance import Rounds
from draftproof.planner.plan import DrafterInfo
from draftproof.planner.sums import Ints, Starts


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """One row for each completion, int64[Q] each."""

    bucket: Ints  # index into Evidence.buckets
    prompt_tokens: Ints
    completion_tokens: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A measured run."""

    target: dict[str, Any]  # MODEL of run.json
    drafters: tuple[DrafterInfo, ...]
    sampling: dict[str, Any]
    buckets: tuple[str, ...]
    starts: Starts  # `prompt` holds text numbers
    drafter_of: Ints  # int64[T], index into drafters
    bucket_of: Ints  # int64[T], index into buckets
    rounds: Rounds  # at gamma = G; `prompt` holds text numbers
    requests: Requests
    notes: tuple[str, ...] = ()

    def texts(self, drafter: int, bucket: int | None) -> Ints:
        """Numbers of the texts of one drafter in one bucket (None: in all)."""
        chosen = self.drafter_of == drafter
        return np.flatnonzero(chosen if bucket is None else chosen & (self.bucket_of == bucket))

    def starts_of(self, drafter: str, bucket: str | None = None) -> Starts:
        """The starts of one drafter in one bucket (None: in all), by name. Raises ValueError for an unknown name."""
        index = [info.name for info in self.drafters].index(drafter)
        texts = self.texts(index, None if bucket is None else self.buckets.index(bucket))
        rows = np.isin(self.starts.prompt, texts)
        part = self.starts
        return Starts(part.prompt[rows], part.offered[rows], part.keep[rows], part.accept[rows])
