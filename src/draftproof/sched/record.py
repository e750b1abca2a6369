"""What rounds with drafts have shown, of one sequence and of the sequences of one bucket.

Older outcomes weigh less. Does not know: costs, who asks, what a bucket is beyond its name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRIOR = 0.8  # acceptance of a sequence nothing is known of: optimistic, so that guessing is tried
_PRIOR_WEIGHT = 4.0  # tested tokens that the prior counts for
_KEEP = 0.95  # weight of an outcome after each newer round with drafts
_BUCKET_KEEP = 0.99  # the same in a bucket, where rounds of many sequences come together
_MOST_BUCKETS = 256
_KNOWN = 16.0  # tested tokens after which a bucket is known
_EXPLORERS = 8  # of so many new sequences of a known bucket one looks soon whether guessing pays by now
FIRST_WAIT, LONGEST_WAIT = 8, 256  # rounds without drafts before the next try


class Record:
    """What one sequence's rounds have shown, older outcomes weighing less."""

    __slots__ = ("accepted", "bucket", "prior", "quiet", "reach", "silent", "tested", "trying", "wait")

    def __init__(self, gamma_max: int, prior: float, bucket: str | None) -> None:
        self.accepted = np.zeros(gamma_max)  # by position in the draft
        self.tested = np.zeros(gamma_max)
        self.prior, self.bucket = prior, bucket
        self.silent = False  # the next round goes without a draft because none pays
        self.trying = False  # it has one although none pays
        self.quiet = 0  # such silent rounds since the last draft
        self.wait = FIRST_WAIT
        self.reach = self._reach()

    def add(self, num_accepted: int, num_tested: int) -> None:
        """One more round. What it did not reach fades too: old luck in deep places must not outlive its text."""
        self.tested *= _KEEP
        self.tested[:num_tested] += 1
        self.accepted *= _KEEP
        self.accepted[:num_accepted] += 1
        self.reach = self._reach()

    def _reach(self) -> NDArray[np.float64]:
        """float64[gamma_max], falling: the chance that a round's draft k is tested and accepted.

        Acceptance by position is drawn towards the mean of all positions, which is drawn towards the prior.
        """
        mean = (self.prior * _PRIOR_WEIGHT + self.accepted.sum()) / (_PRIOR_WEIGHT + self.tested.sum())
        rates = (mean * _PRIOR_WEIGHT + self.accepted) / (_PRIOR_WEIGHT + self.tested)
        return np.cumprod(rates)


class Buckets:
    """Acceptance of each bucket's sequences, all positions together; the least recently used of too many is dropped."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # accepted, tested; older rounds weighing less
        self._met: dict[str, int] = {}  # sequences begun

    def first_wait(self, bucket: str) -> int:
        """Rounds before a new sequence tries what does not pay: short for one in eight once the bucket is known."""
        self._met[bucket] = met = self._met.get(bucket, 0) + 1
        known = self._sums.get(bucket, (0.0, 0.0))[1] >= _KNOWN
        return LONGEST_WAIT if known and met % _EXPLORERS else FIRST_WAIT

    def prior(self, bucket: str) -> float:
        """What to expect of a new sequence of this bucket."""
        accepted, tested = self._sums.get(bucket, (0.0, 0.0))
        return (PRIOR * _PRIOR_WEIGHT + accepted) / (_PRIOR_WEIGHT + tested)

    def add(self, bucket: str, num_accepted: int, num_tested: int) -> None:
        """One more round of one of its sequences."""
        accepted, tested = self._sums.pop(bucket, (0.0, 0.0))
        self._sums[bucket] = (_BUCKET_KEEP * accepted + num_accepted, _BUCKET_KEEP * tested + num_tested)
        if len(self._sums) > _MOST_BUCKETS:
            oldest = next(iter(self._sums))
            del self._sums[oldest]
            self._met.pop(oldest, None)
