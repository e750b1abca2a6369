"""The five interfaces the engine is made of. Each says what its holder does *not* know.

Contract of a drafter, held by one conformance suite for all:
D1  every token that is not "fixed" is drawn from the law row it reports;
D2  length, shape and budget may depend on the past and on kept tokens, never on a token drawn and then dropped;
D3  `observe` is the only input about outcomes; a drafter's own KV is caught up inside `propose`;
D4  an empty draft is always legal;
D5  same items and noise, same drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from draftproof.types import (
    Commit,
    Draft,
    Event,
    FloatArray,
    Ids,
    Moves,
    Numerics,
    Plan,
    Request,
    Slots,
    StepBatch,
    StepItem,
    TargetOutput,
)


class Noise(Protocol):
    """Random numbers as a function of their key. Never the same number for two purposes."""

    def gumbel(self, seed: int, position: int, ids: NDArray[Any] | None, vocab_size: int) -> FloatArray:
        """float64: standard Gumbel numbers of token ids (all of 0..V-1 when None) at an absolute position."""
        ...

    def peak(self, seed: int, position: int, vocab_size: int) -> float:
        """The largest of all Gumbel numbers at an absolute position, up to rounding."""
        ...

    def uniform(self, seed: int, purpose: str, round_: int, count: int) -> FloatArray:
        """float64[count] in [0, 1): numbers used once, keyed by round; `purpose` is "draft" or "test"."""
        ...


class Target(Protocol):
    """Knows the model; not sampling, drafters, scheduling or text."""

    vocab_size: int
    max_len: int  # context limit: most tokens of prompt and output together
    numerics: Numerics
    min_rows: int  # rows to reserve for each sequence: 2 where a single row would take another kernel, else 1
    packed_rows: int  # rows the packer must give each sequence: less than min_rows where the target pads inside
    page_size: int
    num_pages: int

    def verify(self, batch: StepBatch) -> TargetOutput:
        """One forward: writes the rows' keys and values into their slots, returns the wanted logits."""
        ...

    def move(self, moves: Moves) -> None:
        """Copies kept rows together after a tree round."""
        ...

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages (source, own) before a sequence writes into a page it shared."""
        ...


class Drafter(Protocol):
    """Knows committed tokens (and features it asked for); not the target or its KV."""

    name: str
    wants: frozenset[str]

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One draft for each item, of at most item.budget nodes."""
        ...

    def observe(self, commits: Sequence[Commit]) -> None:
        """What became of the drafts."""
        ...

    def forget(self, seq: int) -> None:
        """The sequence is gone; its number may come again for another request."""
        ...


class Laws(Protocol):
    """The laws a rule reads for one sequence, built when asked for."""

    def target(self, node: int) -> FloatArray:
        """float[V]: the law really sampled from after `node`, under the history of that node."""
        ...


class Coins(Protocol):
    """Randomness as an argument of a rule. Keyed by node, so that order of asking changes nothing.

    In production the numbers come from `Noise`; in the law tests an enumerator explores every outcome with its exact
    weight, through the same calls.
    """

    def accept(self, node: int, target_mass: float, draft_mass: float) -> bool:
        """True with probability min(1, target_mass / draft_mass): u * draft_mass < target_mass."""
        ...

    def draw(self, node: int, weights: FloatArray) -> int:
        """A token after `node` with probability proportional to weights; used once, keyed by round and node."""
        ...


class KVCache(Protocol):
    """Host half of the cache: integers only."""

    def reserve(self, seq: int, rows: int) -> Slots | None:
        """Room for `rows` new rows; None when there is none, and then nothing changed."""
        ...

    def commit(self, seq: int, kept: Sequence[int]) -> Moves:
        """Keeps these rows of the last reserve, in this order, and frees the rest; a chain moves nothing."""
        ...

    def release(self, seq: int) -> None:
        """Frees everything of this sequence."""
        ...


class Scheduler(Protocol):
    """The only writer of sequence state."""

    def submit(self, request: Request) -> int:
        """Queues a request, returns its sequence number."""
        ...

    def cancel(self, seq: int) -> None:
        """Ends a sequence wherever it is; its pages are free when this returns."""
        ...

    def plan(self) -> Plan:
        """Who runs, how much is fed, how much may be drafted; rows are reserved."""
        ...

    def apply(self, commits: Sequence[Commit]) -> list[Event]:
        """Advances, finishes, frees; what streams may see."""
        ...


__all__ = ["Coins", "Drafter", "Ids", "KVCache", "Laws", "Noise", "Scheduler", "Target"]
