"""The values that travel through one step, as frozen dataclasses with their shapes.

Letters in shapes: B sequences, n draft nodes, m law rows, V vocabulary, R rows in a step, T rows of one sequence.
Request -> StepItem -> Draft -> StepBatch -> TargetOutput -> Verdict -> Commit -> Event, each made once, by one stage.

Node numbers: node 0 of a draft is the *root*, the last fed token; nodes 1..n are the draft tokens; a parent is
smaller than its child. The logits row of node i is what the target says *after* node i.

Invariant, asserted by the scheduler: kv_len + pending == len(tokens); after a decided round pending == 1.

Does not know: torch, models, text. Arrays are NumPy; `Logits` hides where the target keeps its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InvalidParams

Ids = NDArray[np.int32]
FloatArray = NDArray[Any]  # float32, or float64 where the target computes in float64

RuleName = Literal["auto", "reject", "follow", "coupled"]
Siblings = Literal["fixed", "iid", "distinct"]
Source = Literal["bonus", "correction"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
Numerics = Literal["invariant", "fast"]

RULES: tuple[RuleName, ...] = ("auto", "reject", "follow", "coupled")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What one request asks of the sampler. Checked on construction; nothing is ignored.

    temperature: 0 is greedy (a one-hot law, ties to the lowest id), not a mode.
    top_k, top_p, min_p: applied in this order, after the temperature; None, 1.0 and 0.0 switch them off.
    repetition_penalty: over prompt and output tokens (> 1 discourages); presence_ / frequency_penalty: over output
        tokens only, subtracted from the logits.
    logit_bias: token id -> number added to the logit.
    bad_words: token id sequences (or strings, resolved by `LLM`) that must not be completed.
    min_new_tokens: stop ids are forbidden, and stop strings not looked for, before this many tokens.
    max_new_tokens: None is "up to the context limit".
    stop_ids: ids that end the text, beside the model's own end-of-sequence ids (dropped by ignore_eos).
    stop: strings that end the text; the text is cut before them.
    seed: None draws a fresh one; same seed, same tokens under the path-exact rules.
    logprobs: None, or how many top log-probabilities each token reports beside its own.
    logprobs_mode: "raw" of the untouched logits, "processed" of the law really sampled from.
    rule: how drafts are judged; "auto" is `follow` at temperature 0 and `coupled` above (both path-exact).
    max_draft_tokens: cap on this request's draft length; None leaves it to the engine, 0 is plain decoding.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: Sequence[str | Sequence[int]] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = 128
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    seed: int | None = None
    logprobs: int | None = None
    logprobs_mode: Literal["raw", "processed"] = "raw"
    rule: RuleName = "auto"
    max_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, holds, must in _checks(self):
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {getattr(self, name)!r}")

    @property
    def has_processors(self) -> bool:
        """True where the logits of a row depend on more than the row: penalties, bias, bans, a minimum length."""
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
            or self.bad_words
            or self.min_new_tokens
        )

    @property
    def resolved_rule(self) -> RuleName:
        """The rule with "auto" replaced by what it stands for."""
        if self.rule != "auto":
            return self.rule
        return "follow" if self.temperature == 0 else "coupled"


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def _integer(value: object, low: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= low)


def _strings(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(s, str) and s for s in value)


def _bias(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _integer(k, 0) and isinstance(v, (int, float)) and not np.isnan(v) and v != np.inf for k, v in value.items()
    )


def _words(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(len(w) > 0 and (isinstance(w, str) or all(_integer(t, 0) for t in w)) for w in value)


def _checks(p: SamplingParams) -> list[tuple[str, bool, str]]:
    """(field, does it hold, what it must be) of every parameter."""
    return [
        ("temperature", _finite(p.temperature) and p.temperature >= 0, "a finite number >= 0"),
        ("top_k", p.top_k is None or _integer(p.top_k, 1), "None or an integer >= 1"),
        ("top_p", _finite(p.top_p) and 0 < p.top_p <= 1, "in (0, 1]"),
        ("min_p", _finite(p.min_p) and 0 <= p.min_p <= 1, "in [0, 1]"),
        ("repetition_penalty", _finite(p.repetition_penalty) and p.repetition_penalty > 0, "a finite number > 0"),
        ("presence_penalty", _finite(p.presence_penalty), "a finite number"),
        ("frequency_penalty", _finite(p.frequency_penalty), "a finite number"),
        ("logit_bias", _bias(p.logit_bias), "a mapping of token id to number (-inf forbids a token)"),
        ("bad_words", _words(p.bad_words), "a sequence of non-empty strings or token id sequences"),
        ("min_new_tokens", _integer(p.min_new_tokens, 0), "an integer >= 0"),
        ("max_new_tokens", p.max_new_tokens is None or _integer(p.max_new_tokens, 0), "None or an integer >= 0"),
        ("stop_ids", all(_integer(t, 0) for t in p.stop_ids), "a sequence of token ids"),
        ("stop", _strings(p.stop), "a sequence of non-empty strings"),
        ("seed", p.seed is None or (_integer(p.seed, 0) and p.seed < 2**64), "None or an integer in [0, 2**64)"),
        ("logprobs", p.logprobs is None or _integer(p.logprobs, 0), "None or an integer >= 0"),
        ("logprobs_mode", p.logprobs_mode in ("raw", "processed"), "'raw' or 'processed'"),
        ("rule", p.rule in RULES, f"one of {', '.join(RULES)}"),
        ("max_draft_tokens", p.max_draft_tokens is None or _integer(p.max_draft_tokens, 0), "None or an integer >= 0"),
    ]


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

    @property
    def is_chain(self) -> bool:
        """True when each node hangs on the one before it."""
        return bool((self.parents == np.arange(len(self.parents))).all())


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
    features: FloatArray | None = None  # [R, H]


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
    features: FloatArray | None = None
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


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who runs in this step, and where their rows go."""

    items: tuple[StepItem, ...] = ()
    slots: tuple[Slots, ...] = ()
