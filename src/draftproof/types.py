"""The values that travel through one step, as frozen dataclasses with their shapes.

Letters in shapes: B sequences, n draft nodes, m law rows, V vocabulary, R rows in a step, T rows of one sequence.
Request -> StepItem -> Draft -> StepBatch -> TargetOutput -> Verdict -> Commit -> Event, each made once, by one stage.

Node numbers: node 0 of a draft is the *root*, the last fed token; nodes 1..n are the draft tokens; a parent is
smaller than its child. The logits row of node i is what the target says *after* node i.

Invariant, asserted by the scheduler: kv_len + pending == len(tokens); after a decided round pending == 1.

Does not know: torch, models, text. Arrays are NumPy; `Logits` hides where the target keeps its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InvalidParams
from draftproof.params import RULES as RULES
from draftproof.params import RuleName as RuleName
from draftproof.params import SamplingParams as SamplingParams

Ids = NDArray[np.int32]
FloatArray = NDArray[Any]  # float32, or float64 where the target computes in float64

Siblings = Literal["fixed", "iid", "distinct"]
Source = Literal["bonus", "correction"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
Numerics = Literal["invariant", "fast"]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a client asked; immutable. `params.seed` is set and `params.bad_words` are ids by the time it is made."""

    id: int
    prompt: Ids  # [P]
    params: SamplingParams
    stop_ids: frozenset[int] = frozenset()  # the model's own end ids and the request's, resolved
    arrival: int = 0  # order of arrival; the scheduler's only idea of time
    bucket: str = "default"


@dataclass(frozen=True, slots=True, eq=False)
class StepItem:
    """One sequence in one step, as drafters and rules see it."""

    seq: int
    tokens: Ids  # [kv_len + pending], read-only: prompt and everything committed
    prompt_len: int
    pending: int  # >= 1, tokens whose rows are not in the cache yet
    feed: int  # 1..pending; feed < pending is a prompt chunk: nothing is decided, budget is 0
    budget: int  # most draft nodes this sequence may propose
    params: SamplingParams
    round: int  # rounds decided so far; keys the numbers that are used once
    stop_ids: frozenset[int] = frozenset()
    features: FloatArray | None = None

    @property
    def kv_len(self) -> int:
        """Rows of this sequence that are in the target's cache."""
        return len(self.tokens) - self.pending

    @property
    def decides(self) -> bool:
        """True when this step reaches the last token, so that a next token can be decided."""
        return self.feed == self.pending

    @property
    def seed(self) -> int:
        """The request's resolved seed."""
        seed = self.params.seed
        if seed is None:
            raise InvalidParams("the seed of a running request was never resolved: submit it through the engine")
        return seed


EMPTY_IDS: Ids = np.zeros(0, np.int32)
EMPTY_IDS.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Candidate tokens of one sequence, each with the law it came from.

    tokens int32[n], parents int32[n]: node i+1 carries tokens[i] and hangs on node parents[i] <= i (0 is the root).
    siblings: "fixed" for candidates chosen without a draw that the rule must account for (n-gram, argmax, top-k, and
        the shared-noise draws of `coupled`); "iid" / "distinct" for candidates drawn independently / without
        replacement from laws[law_row[i]], in node order.
    laws float[m, V] or None; law_row int32[n]: for each node the row of `laws` it was drawn from (same for siblings).
    """

    tokens: Ids
    parents: Ids
    siblings: Siblings = "fixed"
    laws: FloatArray | None = None
    law_row: Ids = field(default_factory=lambda: EMPTY_IDS)

    def __len__(self) -> int:
        return len(self.tokens)


def chain(tokens: Sequence[int] | Ids, siblings: Siblings = "fixed", laws: FloatArray | None = None) -> Draft:
    """A draft without branches; with laws, row i is the law of token i."""
    ids = np.asarray(tokens, np.int32)
    order = np.arange(len(ids), dtype=np.int32)
    return Draft(ids, order, siblings, laws, order if laws is not None else EMPTY_IDS)


EMPTY_DRAFT = chain(EMPTY_IDS)


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Where the new rows of one sequence go: row r is position `start + r`, in page table[position // page_size]."""

    table: Ids  # [pages] page numbers in order, enough for start + rows
    start: int  # rows already kept (kv_len)
    rows: int  # rows reserved
    copies: tuple[tuple[int, int], ...] = ()  # (source page, own page): shared pages to copy before writing


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Rows to copy, in order, so that what is kept lies together: (src page, offset) -> (dst page, offset)."""

    src: NDArray[np.int32]  # [k, 2] page and offset
    dst: NDArray[np.int32]  # [k, 2]

    def __bool__(self) -> bool:
        return len(self.src) > 0


NO_MOVES = Moves(np.zeros((0, 2), np.int32), np.zeros((0, 2), np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One flat ragged forward: R rows of B sequences, one after another."""

    input_ids: NDArray[np.int64]  # [R]
    positions: NDArray[np.int64]  # [R] depth of the row in its own sequence (not its index in the batch)
    offsets: NDArray[np.int32]  # [B+1] rows of sequence b are offsets[b]:offsets[b+1]
    past_lens: NDArray[np.int32]  # [B] rows of the sequence that are in the cache before this step
    tables: tuple[Ids, ...]  # B page tables, each long enough for past_lens[b] + its rows
    logit_rows: NDArray[np.int64]  # [n] rows whose logits are wanted, ascending
    logit_offsets: NDArray[np.int32]  # [B+1] logits of sequence b are logit_offsets[b]:logit_offsets[b+1]
    ancestors: tuple[
        NDArray[np.bool_] | None, ...
    ]  # B: None is causal; else bool[T, T], row i sees row j (i itself too)
    wide: tuple[bool, ...] | None = None  # B: the rows are prompt rows, not later ones (never both); None: none are


class Logits(Protocol):
    """Rows of logits, wherever the target keeps them. Valid until the target's next `verify`."""

    def argmax(self) -> NDArray[np.int64]:
        """int64[n]: the largest logit of each row, ties to the lowest id; -1 where it is not finite (or a NaN)."""
        ...

    def row(self, index: int) -> FloatArray:
        """float[V] of one row on the host, read-only; copy it before changing it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TargetOutput:
    """What the target says after each wanted row; for a decided sequence **row index = node number**."""

    logits: Logits
    offsets: NDArray[np.int32]  # [B+1]
    features: FloatArray | None = None  # [R, F] hidden states after each row of the batch, where they are asked for


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole decision of one round: emits the path's tokens and then next_token."""

    path: tuple[int, ...]  # accepted node numbers, from the root down
    next_token: int
    source: Source  # "correction" after a refusal, "bonus" when nothing was refused
    tested: int  # depths at which at least one candidate was judged
    empty_residuals: int = 0  # refusals whose residual was empty by rounding and fell back to the target law


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """Log-probabilities at one emitted token: its own, and the `logprobs` most likely ones, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """The only message back to KV, drafter, meter and scheduler: what one step decided for one sequence."""

    seq: int
    tokens: Ids  # [k] newly emitted; empty after a prompt chunk
    kept: range | tuple[int, ...]  # row indices of this step to keep, in order, the fed ones first
    finish: FinishReason | None = None
    verdict: Verdict | None = None  # None after a prompt chunk
    num_drafted: int = 0
    num_tested: int = 0  # after the cut: tests whose outcome reached the text
    num_accepted: int = 0  # of `tokens`, how many were draft tokens: the first ones
    logprobs: tuple[TokenLogprobs, ...] = ()
    start: int = 0  # position of the first kept row, where there are features
    features: FloatArray | None = None  # [len(kept), F] of the kept rows, for drafters that want them
    error: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """The only thing a stream sees."""

    request_id: int
    tokens: tuple[int, ...]
    finish: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    num_accepted: int = 0  # the first of `tokens` that were accepted drafts
    num_drafted: int = 0
    num_tested: int = 0
    decided: bool = True  # a target pass that decided tokens for this request
    error: str | None = None
    num_cached: int = 0  # prompt rows that the prefix cache had


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who runs in this step, and where their rows go."""

    items: tuple[StepItem, ...] = ()
    slots: tuple[Slots, ...] = ()
