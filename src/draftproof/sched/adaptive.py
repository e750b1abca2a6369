"""What pays for the batch as a whole: the draft length of each of its sequences.

The textbook price of a round with gamma drafts is time(gamma) / tokens(gamma), with
    tokens(gamma) = 1 + a1 + a1*a2 + ... + a1*...*a_gamma     (a_k: chance that draft k is accepted once it is tested)
    time(gamma)   = cost(rows) + gamma * draft_cost           (rows = max(1 + gamma, min_rows))
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, §3, with measured acceptance by
position and a measured cost curve instead of constants.) In a batch the rows of all sequences share one forward, so the
draft tokens of all of them, most likely to be reached and accepted first, are taken in as long as the tokens expected
per unit of time grow (goodput, as in Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models
Using Goodput", arXiv 2406.14066). With one sequence that is the textbook's gamma; none, plain decoding, is always a
candidate. The more sequences there are, the more a row costs of what a token costs, and the fewer are guessed.

A sequence nothing is known of is taken for one like the others of its bucket.

Invariant: a budget depends on outcomes already committed and on nothing else (contract D2). Where a draft length can
change the text itself (rule `reject`, whose numbers are keyed by round), it depends on the sequence's own ones only, so
that batch mates change nothing. No randomness, no clock.

Does not know: drafters, tokens, pages, room; the scheduler says how many drafts could be used at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InvalidParams
from draftproof.planner.cost import CostCurve
from draftproof.sched.policy import NEARLY_FLAT, Ask, cost_table
from draftproof.types import Commit

_Cost = Callable[[int, int], float]  # (rows of a step, or depth of drafts; sequences) -> time

_PRIOR = 0.8  # acceptance of a sequence nothing is known of: optimistic, so that guessing is tried
_PRIOR_WEIGHT = 4.0  # tested tokens that the prior counts for
_KEEP = 0.95  # weight of an outcome after each newer round with drafts
_BUCKET_KEEP = 0.99  # the same in a bucket, where rounds of many sequences come together
_MOST_BUCKETS = 256
_KNOWN = 16.0  # tested tokens after which a bucket is known
_EXPLORERS = 8  # of so many new sequences of a known bucket one looks soon whether guessing pays by now
_FIRST_WAIT, _LONGEST_WAIT = 8, 256  # rounds without drafts before the next try


@dataclass(frozen=True, slots=True)
class ExtraCosts:
    """sequence: of each sequence of a step beyond the first. drafting: of a step with drafts, whose width changes."""

    sequence: float = 0.0
    drafting: float = 0.0


NO_EXTRA_COSTS = ExtraCosts()


class _Record:
    """What one sequence's rounds have shown, older outcomes weighing less."""

    __slots__ = ("accepted", "bucket", "chosen", "offered", "prior", "quiet", "reach", "tested", "wait")

    def __init__(self, gamma_max: int, prior: float, bucket: str | None) -> None:
        self.accepted = np.zeros(gamma_max)  # by position in the draft
        self.tested = np.zeros(gamma_max)
        self.prior, self.bucket = prior, bucket
        self.chosen = self.offered = gamma_max  # the last budget: as it paid, and as it was given
        self.quiet = 0  # rounds since the last draft
        self.wait = _FIRST_WAIT
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


class _Buckets:
    """Acceptance of each bucket's sequences, all positions together; the least recently used of too many is dropped."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # accepted, tested; older rounds weighing less
        self._met: dict[str, int] = {}  # sequences begun

    def first_wait(self, bucket: str) -> int:
        """Rounds before a new sequence tries what does not pay: short for one in eight once the bucket is known."""
        self._met[bucket] = met = self._met.get(bucket, 0) + 1
        known = self._sums.get(bucket, (0.0, 0.0))[1] >= _KNOWN
        return _LONGEST_WAIT if known and met % _EXPLORERS else _FIRST_WAIT

    def prior(self, bucket: str) -> float:
        """What to expect of a new sequence of this bucket."""
        accepted, tested = self._sums.get(bucket, (0.0, 0.0))
        return (_PRIOR * _PRIOR_WEIGHT + accepted) / (_PRIOR_WEIGHT + tested)

    def add(self, bucket: str, num_accepted: int, num_tested: int) -> None:
        """One more round of one of its sequences."""
        accepted, tested = self._sums.pop(bucket, (0.0, 0.0))
        self._sums[bucket] = (_BUCKET_KEEP * accepted + num_accepted, _BUCKET_KEEP * tested + num_tested)
        if len(self._sums) > _MOST_BUCKETS:
            oldest = next(iter(self._sums))
            del self._sums[oldest]
            self._met.pop(oldest, None)


class AdaptiveGamma:
    """For all sequences of a step the draft lengths, 0..gamma_max, that promise most tokens per unit of time.

    cost: time of a forward over so many rows, in any unit; None is `NEARLY_FLAT` (milliseconds).
    draft_cost: time of one draft token of one sequence, in the same unit. min_rows: rows a step has anyway.
    costs: what further sequences, and any drafting at all, add to a step.
    A sequence that guesses nothing tries one token again after 8, 16, 32, ... up to 256 rounds.
    """

    def __init__(
        self,
        gamma_max: int,
        cost: Callable[[int], float] | None = None,
        draft_cost: float = 0.0,
        min_rows: int = 1,
        costs: ExtraCosts = NO_EXTRA_COSTS,
    ) -> None:
        if gamma_max < 0 or min(draft_cost, costs.sequence, costs.drafting) < 0 or min_rows < 1:
            raise InvalidParams("gamma_max and all costs must be >= 0, min_rows >= 1")
        table = cost or cost_table(NEARLY_FLAT)
        plain = table(max(1, min_rows))

        def step(num_rows: int, num_sequences: int) -> float:
            drafting = costs.drafting if num_rows > max(num_sequences, min_rows) else 0.0
            return table(max(num_rows, min_rows)) + costs.sequence * (num_sequences - 1) + drafting

        def draft(depth: int, num_sequences: int) -> float:  # drafting goes level by level, all sequences at once
            return depth * draft_cost * step(num_sequences, num_sequences) / plain

        self._start(gamma_max, step, draft)

    @classmethod
    def measured(cls, gamma_max: int, curve: CostCurve, drafter: str, context: float | None = None) -> AdaptiveGamma:
        """With the costs of a device; drafter: its label there. Raises InputError where the curve has no such label."""
        policy = cls.__new__(cls)
        policy._start(
            gamma_max,
            lambda num_rows, num_sequences: curve.step(num_sequences, num_rows / num_sequences, context),
            lambda depth, num_sequences: curve.draft(drafter, num_sequences, depth, context),
        )
        return policy

    def _start(self, gamma_max: int, step: _Cost, draft: _Cost) -> None:
        self.gamma_max = gamma_max
        self._step, self._draft = step, draft
        self._steps: dict[int, NDArray[np.float64]] = {}
        self._drafts: dict[int, NDArray[np.float64]] = {}
        self._records: dict[int, _Record] = {}
        self._buckets = _Buckets()
        if self._step_costs(1, 1 + gamma_max).min() <= 0 or self._draft_costs(1).min() < 0:
            raise InvalidParams("the cost of a step must be above 0, that of a draft at least 0")

    def _step_costs(self, num_sequences: int, most_rows: int) -> NDArray[np.float64]:
        """float64[> most_rows]: the cost of a step of so many sequences by its rows, kept."""
        known = self._steps.get(num_sequences)
        if known is None or len(known) <= most_rows:
            rows = range(2 * most_rows + 1)
            known = np.array([self._step(max(count, num_sequences), num_sequences) for count in rows])
            self._steps[num_sequences] = known
        return known

    def _draft_costs(self, num_sequences: int) -> NDArray[np.float64]:
        """float64[gamma_max + 1]: the cost of drafting by its depth, kept."""
        known = self._drafts.get(num_sequences)
        if known is None:
            costs = [self._draft(depth, num_sequences) if depth else 0.0 for depth in range(self.gamma_max + 1)]
            known = self._drafts[num_sequences] = np.array(costs)
        return known

    def best(self, rates: Sequence[float]) -> int:
        """The gamma of one sequence alone under these acceptances by position; the smaller on a tie."""
        reach = np.cumprod(np.array(rates, np.float64), dtype=np.float64)
        return self._share(1, [reach])[0]

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """What pays for the step as a whole; a sequence whose text a draft length could change is judged alone."""
        records = [self._records.get(ask.seq) or self._meet(ask) for ask in asks]
        reach = [record.reach[: ask.most] for record, ask in zip(records, asks, strict=True)]
        gammas = [self._share(1, [own])[0] if ask.alone else 0 for own, ask in zip(reach, asks, strict=True)]
        shared = [index for index, ask in enumerate(asks) if not ask.alone]
        if shared:
            drafts = sum(gammas)
            for index, gamma in zip(shared, self._share(len(asks), [reach[i] for i in shared], drafts), strict=True):
                gammas[index] = gamma
        return [self._offer(record, ask, gamma) for record, ask, gamma in zip(records, asks, gammas, strict=True)]

    def _meet(self, ask: Ask) -> _Record:
        """The record of a sequence that nothing is known of."""
        if ask.alone:
            record = _Record(self.gamma_max, _PRIOR, None)
        else:
            record = _Record(self.gamma_max, self._buckets.prior(ask.bucket), ask.bucket)
            record.wait = self._buckets.first_wait(ask.bucket)
        self._records[ask.seq] = record
        return record

    def _offer(self, record: _Record, ask: Ask, gamma: int) -> int:
        """Notes the choice; a sequence that has been quiet for long tries one token."""
        record.chosen = gamma
        record.offered = 1 if gamma == 0 and record.quiet >= record.wait and ask.most else gamma
        return record.offered

    def _share(self, num_sequences: int, reach: Sequence[NDArray[np.float64]], num_drafts: int = 0) -> list[int]:
        """Draft lengths of those sequences of a step that have these chances; num_drafts are settled elsewhere."""
        num_rows = num_sequences + num_drafts
        lengths = [len(chances) for chances in reach]
        gains = np.concatenate(reach)
        order = np.argsort(-gains, kind="stable")  # chances fall along a draft, so the order takes it from its front
        times = self._step_costs(num_sequences, num_rows + len(order))[num_rows : num_rows + len(order) + 1]
        places = np.array([0, *(place for length in lengths for place in range(1, length + 1))])
        depth = np.maximum.accumulate(places[np.concatenate(([0], order + 1))])
        tokens = num_sequences + np.concatenate(([0.0], np.cumsum(gains[order])))
        taken = order[: int(np.argmax(tokens / (times + self._draft_costs(num_sequences)[depth])))]
        owners = np.repeat(np.arange(len(reach)), lengths)
        gammas: list[int] = np.bincount(owners[taken], minlength=len(reach)).tolist()
        return gammas

    def observe(self, commits: Sequence[Commit]) -> None:
        """Learns from rounds that drafted; counts the others while guessing is off."""
        for commit in commits:
            record = self._records.get(commit.seq)
            if commit.verdict is None or record is None:
                continue
            if commit.num_drafted:
                self._learn(record, commit)
            elif record.offered == 0:
                record.quiet += 1

    def _learn(self, record: _Record, commit: Commit) -> None:
        if record.chosen:
            record.wait = _FIRST_WAIT
        elif record.quiet >= record.wait:
            record.wait = min(2 * record.wait, _LONGEST_WAIT)
        record.quiet = 0
        record.add(commit.num_accepted, commit.num_tested)
        if record.bucket is not None:
            self._buckets.add(record.bucket, commit.num_accepted, commit.num_tested)

    def forget(self, seq: int) -> None:
        """Drops what was learned of a sequence."""
        self._records.pop(seq, None)
