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

A drafter that ends its own draft where it is unsure is not asked for fewer than `floor` drafts of a sequence alone: it
pays for a further one only where it knows that it is likely, which the mean acceptance does not tell.

A budget counts on drafts that may not come. Once they are there, `worth` chooses again among those that may be cut:
with their real number, and with what the widths that are ready make of it (`widths` has what the others would bring).

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
from draftproof.sched.policy import NEARLY_FLAT, Ask, Offer, StepRows, cost_table
from draftproof.sched.record import FIRST_WAIT, LONGEST_WAIT, PRIOR, Buckets, Record
from draftproof.sched.widths import Widths
from draftproof.types import Commit

_Cost = Callable[[int, int], float]  # (rows of a step, or depth of drafts; sequences) -> time


@dataclass(frozen=True, slots=True)
class ExtraCosts:
    """sequence: of each sequence of a step beyond the first. drafting: of a step with drafts, whose width changes."""

    sequence: float = 0.0
    drafting: float = 0.0


NO_EXTRA_COSTS = ExtraCosts()


class AdaptiveGamma:
    """For all sequences of a step the draft lengths, 0..gamma_max, that promise most tokens per unit of time.

    cost: time of a forward over so many rows, in any unit; None is `NEARLY_FLAT` (milliseconds).
    draft_cost: time of one draft token of one sequence, in the same unit. min_rows: rows a step has anyway.
    costs: what further sequences, and any drafting at all, add to a step. floor: of the draft length of a sequence
    alone, where drafting pays. free_floor: the same where no text depends on it, so that it may follow the machine.
    A sequence whose guesses do not pay tries one token again after 8, 16, 32, ... up to 256 rounds.
    """

    def __init__(
        self,
        gamma_max: int,
        cost: Callable[[int], float] | None = None,
        draft_cost: float = 0.0,
        min_rows: int = 1,
        costs: ExtraCosts = NO_EXTRA_COSTS,
        floor: int = 1,
        free_floor: int | None = None,
    ) -> None:
        if gamma_max < 0 or min(draft_cost, costs.sequence, costs.drafting) < 0 or min_rows < 1:
            raise InvalidParams("gamma_max and all costs must be >= 0, min_rows >= 1")
        table = cost or cost_table(NEARLY_FLAT)
        plain = table(max(1, min_rows))

        def ready(num_rows: int, num_sequences: int) -> float:
            return table(max(num_rows, min_rows)) + costs.sequence * (num_sequences - 1)

        def step(num_rows: int, num_sequences: int) -> float:
            drafting = costs.drafting if num_rows > max(num_sequences, min_rows) else 0.0
            return ready(num_rows, num_sequences) + drafting

        def draft(depth: int, num_sequences: int) -> float:  # drafting goes level by level, all sequences at once
            return depth * draft_cost * step(num_sequences, num_sequences) / plain

        self._start(gamma_max, step, draft, ready, floor, free_floor)

    @classmethod
    def measured(
        cls,
        gamma_max: int,
        curve: CostCurve,
        drafter: str,
        context: float | None = None,
        *,
        floor: int = 1,
        free_floor: int | None = None,
    ) -> AdaptiveGamma:
        """With the costs of a device; drafter: its label there. Raises InputError where the curve has no such label."""
        policy = cls.__new__(cls)

        def step(num_rows: int, num_sequences: int) -> float:
            return curve.step(num_sequences, num_rows / num_sequences, context)

        def draft(depth: int, num_sequences: int) -> float:
            return curve.draft(drafter, num_sequences, depth, context)

        policy._start(gamma_max, step, draft, step, floor, free_floor)
        return policy

    def _start(
        self, gamma_max: int, step: _Cost, draft: _Cost, ready: _Cost, floor: int, free_floor: int | None
    ) -> None:
        """ready: a step whose width needs no preparation."""
        floors = floor, floor if free_floor is None else free_floor  # where a text depends on it, and where none does
        if min(floors) < 1:
            raise InvalidParams(f"floor must be at least 1, got {min(floors)}")
        self.gamma_max, self._floors = gamma_max, floors
        self._step, self._draft, self._ready = step, draft, ready
        self._steps: dict[int, NDArray[np.float64]] = {}
        self._ready_steps: dict[int, NDArray[np.float64]] = {}
        self._drafts: dict[int, NDArray[np.float64]] = {}
        self._records: dict[int, Record] = {}
        self._buckets, self._widths, self._judged = Buckets(), Widths(), False
        if self._step_costs(1, 1 + gamma_max).min() <= 0 or self._draft_costs(1).min() < 0:
            raise InvalidParams("the cost of a step must be above 0, that of a draft at least 0")

    def _step_costs(self, num_sequences: int, most_rows: int) -> NDArray[np.float64]:
        """float64[> most_rows]: the cost of a step of so many sequences by its rows, kept."""
        return _by_rows(self._steps, self._step, num_sequences, most_rows)

    def _ready_costs(self, num_sequences: int, most_rows: int) -> NDArray[np.float64]:
        """The same of steps whose width needs no preparation."""
        return _by_rows(self._ready_steps, self._ready, num_sequences, most_rows)

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
        for index, ask in enumerate(asks):
            if gammas[index] and (ask.alone or len(asks) == 1):
                gammas[index] = max(gammas[index], min(self._floors[not ask.alone], self.gamma_max, ask.most))
        return [self._offer(record, ask, gamma) for record, ask, gamma in zip(records, asks, gammas, strict=True)]

    def _meet(self, ask: Ask) -> Record:
        """The record of a sequence that nothing is known of."""
        if ask.alone:
            record = Record(self.gamma_max, PRIOR, None)
        else:
            record = Record(self.gamma_max, self._buckets.prior(ask.bucket), ask.bucket)
            record.wait = self._buckets.first_wait(ask.bucket)
        self._records[ask.seq] = record
        return record

    def worth(self, offers: Sequence[Offer], step: StepRows) -> list[int]:
        """As many of the likeliest tokens as make the step's tokens per time largest; and those that only try."""
        known = [self._records.get(offer.seq) for offer in offers]
        reach = [np.ones(0) if record is None else record.reach for record in known]
        chances = [own[: offer.length] for own, offer in zip(reach, offers, strict=True)]
        lengths = self._worth(chances, step)
        lengths = [offer.length if own is None else n for own, offer, n in zip(known, offers, lengths, strict=True)]
        tries = self._tries([own for own, n in zip(known, lengths, strict=True) if own and not n], step, sum(lengths))
        for record, length in zip(known, lengths, strict=True):
            if record is not None:
                record.trying = length == 0 and any(record is each for each in tries)
                record.silent = length == 0 and not record.trying
        return [n or int(own is not None and own.trying) for own, n in zip(known, lengths, strict=True)]

    def _worth(self, chances: Sequence[NDArray[np.float64]], step: StepRows) -> list[int]:
        gains = np.concatenate(chances)
        order = np.argsort(-gains, kind="stable")
        rows = [step.rows + count for count in range(len(order) + 1)]
        like = [step.like(count) for count in rows]
        times = self._ready_costs(step.num_sequences, int(max(*like, rows[-1])) + 1)
        tokens = step.num_sequences + np.concatenate(([0.0], np.cumsum(gains[order])))
        now = np.interp(like, np.arange(len(times)), times)
        best, wished = int(np.argmax(tokens / now)), int(np.argmax(tokens / times[rows]))
        if wished > best:  # its width is not ready: of those that are, padded or not, more tokens never cost more
            loss = float(now[best] * tokens[wished] / tokens[best] - times[rows[wished]])
            if self._widths.wanted(rows[wished], loss, float(now[wished] - times[rows[wished]])):
                best = wished
        self._widths.unwanted(rows[wished], float(now[best]), times)
        self._judged = True
        owners = np.repeat(np.arange(len(chances)), [len(own) for own in chances])
        lengths: list[int] = np.bincount(owners[order[:best]], minlength=len(chances)).tolist()
        return lengths

    @staticmethod
    def _tries(idle: Sequence[Record], step: StepRows, num_drafts: int) -> list[Record]:
        """Who tries one token although it does not pay: whose time has come, where a row more is a row more.

        Where it would be another width, all who are due wait for each other, at most four times as long as alone.
        """
        due = [record for record in idle if record.quiet >= record.wait]
        rows = step.rows + num_drafts
        if step.like(rows + len(due)) - step.like(rows) <= 2 * len(due):
            return due
        return due if any(record.quiet >= 4 * record.wait for record in due) else []

    def _offer(self, record: Record, ask: Ask, gamma: int) -> int:
        """Notes the choice; a sequence that has been quiet for long tries one token."""
        record.trying = gamma == 0 and record.quiet >= record.wait and ask.most > 0
        record.silent = gamma == 0 and not record.trying
        return 1 if record.trying else gamma

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
        self._pass_by(sum(commit.verdict is not None for commit in commits))
        for commit in commits:
            record = self._records.get(commit.seq)
            if commit.verdict is None or record is None:
                continue
            if commit.num_drafted:
                self._learn(record, commit)
            elif record.silent:
                record.quiet += 1

    def _pass_by(self, num_sequences: int) -> None:
        """A step that nobody was asked about, for want of drafts: it wished for no width."""
        if num_sequences and not self._judged and self._widths.watched:
            times = self._ready_costs(num_sequences, self._widths.watched)
            self._widths.unwanted(num_sequences, float(times[num_sequences]), times)
        self._judged = False

    def _learn(self, record: Record, commit: Commit) -> None:
        record.wait = min(2 * record.wait, LONGEST_WAIT) if record.trying else FIRST_WAIT
        record.quiet = 0
        record.add(commit.num_accepted, commit.num_tested)
        if record.bucket is not None:
            self._buckets.add(record.bucket, commit.num_accepted, commit.num_tested)

    def forget(self, seq: int) -> None:
        """Drops what was learned of a sequence."""
        self._records.pop(seq, None)


def _by_rows(
    kept: dict[int, NDArray[np.float64]], cost: _Cost, num_sequences: int, most_rows: int
) -> NDArray[np.float64]:
    """float64[> most_rows]: the cost of a step of so many sequences by its rows, kept."""
    known = kept.get(num_sequences)
    if known is None or len(known) <= most_rows:
        rows = range(2 * most_rows + 1)
        known = kept[num_sequences] = np.array([cost(max(count, num_sequences), num_sequences) for count in rows])
    return known
