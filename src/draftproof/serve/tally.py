"""What the server counts: plain numbers, added to by the engine thread and the event loop, read when somebody scrapes.

Rates follow MISSION: acceptance = accepted / tested. A gap is the time between two steps that brought tokens of a text,
shared among the tokens that the second one brought: so the mean of all gaps is the mean inter-token latency.

Invariant: labels are bounded: modes, reasons and statuses by their nature, buckets by whoever names them.

Does not know: Prometheus.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.drafters.shadow import ShadowCounts

_GAPS = (0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_FIRSTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0)
_ENDS = (0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Spread:
    """A histogram: how many values fell below or onto each bound, and what all add up to."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """The same value so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


@dataclass(frozen=True, slots=True)
class Sums:
    """Of one moment, for differences over time. Keys of gaps and drafts: (bucket, mode)."""

    answered: int  # requests, whole
    refused: int  # answers of /v1 with a status from 400 on
    tokens: dict[str, int]  # by mode
    gaps: dict[tuple[str, str], tuple[int, float]]  # number of gaps between tokens, and their seconds
    drafts: dict[tuple[str, str], tuple[int, int]]  # tested, accepted


class Tally:
    """Everything since the server started. Attributes are read under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_drafts = 0  # rounds with drafts
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self.accepted_at: Counter[int] = Counter()  # by position in the draft, from 0
        self.gaps: dict[str, Spread] = {}  # by mode, seconds
        self.firsts: dict[str, Spread] = {}
        self.waits: dict[tuple[str, str], tuple[int, float]] = {}  # number and sum of the gaps by (bucket, mode)
        self.ends = Spread(_ENDS)
        self.generated: Counter[str] = Counter()  # tokens by mode
        self.prompt_tokens = 0
        self.texts: Counter[tuple[str, str]] = Counter()  # (mode, how it ended)
        self.responses: Counter[tuple[str, int]] = Counter()  # (route, status)
        self.drafted: Counter[tuple[str, str]] = Counter()  # draft tokens by (bucket, "on" or "shadow")
        self.tested: Counter[tuple[str, str]] = Counter()
        self.accepted: Counter[tuple[str, str]] = Counter()
        self.decisions: Counter[tuple[str, str]] = Counter()  # (bucket, action)
        self.step_failures = 0
        self.drafter_failures: dict[str, int] = {}

    # -- from the engine thread ----------------------------------------------------------------------------------------

    def tokens(self, mode: str, bucket: str, count: int, seconds: float, *, first: bool) -> None:
        """Tokens of one text that one step brought, and the time since its last ones, or since the request came."""
        with self.lock:
            self.generated[mode] += count
            if first:
                self.firsts.setdefault(mode, Spread(_FIRSTS)).add(seconds)
                return
            self.gaps.setdefault(mode, Spread(_GAPS)).add(seconds / count, count)
            number, total = self.waits.get((bucket, mode), (0, 0.0))
            self.waits[bucket, mode] = (number + count, total + seconds)

    def round(self, bucket: str, drafted: int, tested: int, accepted: int) -> None:
        """One round; without drafts it changes nothing here."""
        if not drafted:
            return
        with self.lock:
            self.num_drafts += 1
            self.num_draft_tokens += drafted
            self.num_accepted_tokens += accepted
            self.accepted_at.update(range(accepted))
            self._add((bucket, "on"), drafted, tested, accepted)

    def shadow(self, bucket: str, counts: ShadowCounts) -> None:
        """The shadow drafts of one text."""
        with self.lock:
            self._add((bucket, "shadow"), counts.drafted, counts.tested, counts.accepted)

    def _add(self, place: tuple[str, str], drafted: int, tested: int, accepted: int) -> None:
        self.drafted[place] += drafted
        self.tested[place] += tested
        self.accepted[place] += accepted

    def finished(self, mode: str, reason: str) -> None:
        """One text has ended."""
        with self.lock:
            self.texts[mode, reason] += 1

    # -- from the event loop -------------------------------------------------------------------------------------------

    def answered(self, route: str, status: int) -> None:
        """One HTTP request was answered."""
        with self.lock:
            self.responses[route, status] += 1

    def ended(self, seconds: float, prompt_tokens: int) -> None:
        """One request was answered whole."""
        with self.lock:
            self.ends.add(seconds)
            self.prompt_tokens += prompt_tokens

    def decided(self, bucket: str, action: str) -> None:
        """One decision of the rollout."""
        with self.lock:
            self.decisions[bucket, action] += 1

    # -- for a page ----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: sums from which a reader takes differences over time."""
        with self.lock:
            places = list(self.drafted)
            return {
                "generated_tokens": dict(self.generated),
                "inter_token_seconds": {mode: _sums(spread) for mode, spread in self.gaps.items()},
                "first_token_seconds": {mode: _sums(spread) for mode, spread in self.firsts.items()},
                "drafts": self.num_drafts,
                "accepted_at": [self.accepted_at[at] for at in range(max(self.accepted_at, default=-1) + 1)],
                "buckets": [
                    {
                        "bucket": bucket,
                        "mode": mode,
                        "drafted": self.drafted[bucket, mode],
                        "tested": self.tested[bucket, mode],
                        "accepted": self.accepted[bucket, mode],
                    }
                    for bucket, mode in places
                ],
                "texts": [{"mode": m, "finish_reason": r, "count": n} for (m, r), n in self.texts.items()],
                "answered": sum(self.ends.counts),
                "refused": self._refused(),
                "decisions": self.decisions.total(),
                "step_failures": self.step_failures,
            }

    def sums(self) -> Sums:
        """Of now."""
        with self.lock:
            drafts = {place: (tested, self.accepted[place]) for place, tested in self.tested.items()}
            answered = sum(self.ends.counts)
            return Sums(answered, self._refused(), dict(self.generated), dict(self.waits), drafts)

    def _refused(self) -> int:
        texts = [item for item in self.responses.items() if item[0][0].startswith("/v1/")]
        return sum(count for (_, status), count in texts if status >= 400)


def _sums(spread: Spread) -> dict[str, float]:
    return {"count": sum(spread.counts), "sum": spread.total}
