"""How many tokens each sequence may guess in its next round: a fixed number, or what pays for the batch as a whole.

The textbook price of a round with gamma drafts is time(gamma) / tokens(gamma), with
    tokens(gamma) = 1 + a1 + a1*a2 + ... + a1*...*a_gamma     (a_k: chance that draft k is accepted once it is tested)
    time(gamma)   = cost(rows) + gamma * draft_cost           (rows = max(1 + gamma, min_rows))
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, §3, with measured acceptance by
position and a measured cost curve instead of constants.) In a batch the rows of all sequences share one forward, so the
draft tokens of all of them, most likely to be reached and accepted first, are taken in as long as the tokens expected
per unit of time grow (goodput, as in Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models
Using Goodput", arXiv 2406.14066). With one sequence that is the textbook's gamma; none, plain decoding, is always a
candidate. The more sequences there are, the more a row costs of what a token costs, and the fewer are guessed.

Invariant: a budget depends on outcomes already committed and on nothing else (contract D2). Where a draft length can
change the text itself (rule `reject`, whose numbers are keyed by round), it depends on the sequence's own ones only, so
that batch mates change nothing. No randomness, no clock.

Does not know: drafters, tokens, pages, room; the scheduler says how many drafts could be used at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InvalidParams
from draftproof.types import Commit, SamplingParams

# Milliseconds of one forward over so many rows of one sequence, 200 rows of context, 2-core CPU, int8 weights.
NEARLY_FLAT = ((1, 10.9), (2, 12.3), (3, 13.2), (4, 14.0), (5, 14.2), (8, 16.3), (16, 21.5), (32, 30.9))

_PRIOR = 0.8  # acceptance of a sequence nothing is known of: optimistic, so that guessing is tried
_PRIOR_WEIGHT = 4.0  # tested tokens that the prior counts for
_KEEP = 0.95  # weight of an outcome after each newer round with drafts
_FIRST_WAIT, _LONGEST_WAIT = 8, 256  # rounds without drafts before the next try


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence about to decide a token. most: drafts that could still reach its text, >= 0."""

    seq: int
    params: SamplingParams
    most: int


class DraftPolicy(Protocol):
    """Chooses draft lengths from the past."""

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """For each sequence that decides in this step the most draft tokens, in 0..most. Asking changes no answer."""
        ...

    def observe(self, commits: Sequence[Commit]) -> None:
        """What became of the last step."""
        ...

    def forget(self, seq: int) -> None:
        """The sequence is gone."""
        ...


class FixedGamma:
    """The same draft length for every sequence and round."""

    def __init__(self, gamma: int) -> None:
        if gamma < 0:
            raise InvalidParams(f"gamma must be an integer >= 0, got {gamma!r}")
        self.gamma = gamma

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """gamma, or what is left of it."""
        return [min(self.gamma, ask.most) for ask in asks]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def forget(self, seq: int) -> None:
        """Nothing to forget."""


def cost_table(points: Sequence[tuple[int, float]]) -> Callable[[int], float]:
    """A cost curve through measured (rows, time) points: straight lines between, the last slope beyond."""
    rows = np.array([point[0] for point in points], np.float64)
    times = np.array([point[1] for point in points], np.float64)
    if not len(rows) or (np.diff(rows) <= 0).any() or (times <= 0).any():
        raise InvalidParams("a cost table needs (rows, time) points with rising rows and times above 0")
    slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2]) if len(rows) > 1 else 0.0

    def cost(num_rows: int) -> float:
        beyond = max(0.0, num_rows - rows[-1])
        return float(np.interp(num_rows, rows, times) + beyond * slope)

    return cost


class _Record:
    """What one sequence's rounds have shown, older outcomes weighing less."""

    __slots__ = ("accepted", "chosen", "offered", "quiet", "reach", "tested", "wait")

    def __init__(self, gamma_max: int) -> None:
        self.accepted = np.zeros(gamma_max)  # by position in the draft
        self.tested = np.zeros(gamma_max)
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
        mean = (_PRIOR * _PRIOR_WEIGHT + self.accepted.sum()) / (_PRIOR_WEIGHT + self.tested.sum())
        rates = (mean * _PRIOR_WEIGHT + self.accepted) / (_PRIOR_WEIGHT + self.tested)
        return np.cumprod(rates)


class AdaptiveGamma:
    """For all sequences of a step the draft lengths, 0..gamma_max, that promise most tokens per unit of time.

    cost: time of a forward over so many rows, in any unit; None is `NEARLY_FLAT` (milliseconds).
    draft_cost: time of one draft token of one sequence, in the same unit. min_rows: rows a step has anyway.
    sequence_cost: what each sequence of a step beyond the first adds to the cost of its rows.
    A sequence that guesses nothing tries one token again after 8, 16, 32, ... up to 256 rounds.
    """

    def __init__(
        self,
        gamma_max: int,
        cost: Callable[[int], float] | None = None,
        draft_cost: float = 0.0,
        min_rows: int = 1,
        sequence_cost: float = 0.0,
    ) -> None:
        if gamma_max < 0 or min(draft_cost, sequence_cost) < 0 or min_rows < 1:
            raise InvalidParams("gamma_max, draft_cost and sequence_cost must be >= 0, min_rows >= 1")
        self._curve = cost or cost_table(NEARLY_FLAT)
        self.gamma_max = gamma_max
        self._draft_cost, self._min_rows, self._sequence_cost = draft_cost, min_rows, sequence_cost
        self._costs = np.zeros(0)
        self._grow(1 + gamma_max)
        if self._costs.min() <= 0:
            raise InvalidParams("the cost of a step must be above 0")
        self._records: dict[int, _Record] = {}
        self._unknown = _Record(gamma_max)

    def _grow(self, num_rows: int) -> NDArray[np.float64]:
        """float64[>= num_rows + 1]: the cost of a step by its rows, kept."""
        if len(self._costs) <= num_rows:
            self._costs = np.array([self._curve(max(rows, self._min_rows, 1)) for rows in range(2 * num_rows + 1)])
        return self._costs

    def best(self, rates: Sequence[float]) -> int:
        """The gamma of one sequence alone under these acceptances by position; the smaller on a tie."""
        return self._share(1, [np.cumprod(rates)])[0]

    def budgets(self, asks: Sequence[Ask]) -> list[int]:
        """What pays for the step as a whole; a sequence whose text a draft length could change is judged alone."""
        records = [self._records.get(ask.seq, self._unknown) for ask in asks]
        reach = [record.reach[: ask.most] for record, ask in zip(records, asks, strict=True)]
        alone = [ask.params.temperature > 0 and ask.params.resolved_rule == "reject" for ask in asks]
        gammas = [self._share(1, [own])[0] if single else 0 for own, single in zip(reach, alone, strict=True)]
        shared = [index for index, single in enumerate(alone) if not single]
        if shared:
            drafts = sum(gammas)
            for index, gamma in zip(shared, self._share(len(asks), [reach[i] for i in shared], drafts), strict=True):
                gammas[index] = gamma
        return [self._offer(record, ask, gamma) for record, ask, gamma in zip(records, asks, gammas, strict=True)]

    def _offer(self, record: _Record, ask: Ask, gamma: int) -> int:
        """Notes the choice; a sequence that has been quiet for long tries one token."""
        offered = 1 if gamma == 0 and record.quiet >= record.wait and ask.most else gamma
        if record is not self._unknown:
            record.chosen, record.offered = gamma, offered
        return offered

    def _share(self, num_sequences: int, reach: Sequence[NDArray[np.float64]], num_drafts: int = 0) -> list[int]:
        """Draft lengths of those sequences of a step that have these chances; num_drafts are settled elsewhere."""
        num_rows = num_sequences + num_drafts
        lengths = [len(chances) for chances in reach]
        gains = np.concatenate(reach)
        order = np.argsort(-gains, kind="stable")  # chances fall along a draft, so the order takes it from its front
        costs = self._grow(num_rows + len(order))[num_rows : num_rows + len(order) + 1]
        tokens = num_sequences + np.concatenate(([0.0], np.cumsum(gains[order])))
        times = costs + self._sequence_cost * (num_sequences - 1)
        if self._draft_cost:
            scale = times[0] / self._costs[1]
            places = np.concatenate([np.arange(1, length + 1) for length in lengths])
            depth = np.maximum.accumulate(places[order])  # drafting goes level by level, all sequences at once
            times[1:] += depth * (self._draft_cost * scale)
        taken = order[: int(np.argmax(tokens / times))]
        owners = np.repeat(np.arange(len(reach)), lengths)
        gammas: list[int] = np.bincount(owners[taken], minlength=len(reach)).tolist()
        return gammas

    def observe(self, commits: Sequence[Commit]) -> None:
        """Learns from rounds that drafted; counts the others while guessing is off."""
        for commit in commits:
            if commit.verdict is None:
                continue
            record = self._records.get(commit.seq)
            if record is None:
                record = self._records[commit.seq] = _Record(self.gamma_max)
            if commit.num_drafted:
                if record.chosen:
                    record.wait = _FIRST_WAIT
                elif record.quiet >= record.wait:
                    record.wait = min(2 * record.wait, _LONGEST_WAIT)
                record.quiet = 0
                record.add(commit.num_accepted, commit.num_tested)
            elif record.offered == 0:
                record.quiet += 1

    def forget(self, seq: int) -> None:
        """Drops what was learned of a sequence."""
        self._records.pop(seq, None)
