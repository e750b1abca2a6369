"""Toy targets: the `Target` protocol in float64 NumPy, small enough to reason about and strict enough to catch faults.

*Page-faithful*: `verify` writes each row's (token, position) into a page store addressed by the batch's page tables,
and computes a row's logits only from what it reads back through the table and the ancestor mask. A stale, misplaced or
wrongly moved row therefore changes the output (`HashTarget`), or is refused at once: a row that was never written, a
kept row whose position is not its index, two rows in one slot, a position past `max_len`.

Invariant: the logits are a function of the visible (token, position) pairs alone, bit for bit; width, batch mates,
chunks and pages change nothing. With `narrow_differs` a sequence that has fewer rows than `min_rows` gets *other*
logits on purpose, as real kernels give, so that a packer which forgets the padding row is caught.

Does not know: sampling, drafters, scheduling, the ledger that numbers its pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import EngineError
from draftproof.types import Ids, Moves, Numerics, StepBatch, TargetOutput

_UNWRITTEN = np.iinfo(np.int64).min  # poison of a fresh page; no token and no position


@dataclass(frozen=True, slots=True)
class ToyOptions:
    """What a toy target declares of itself, as any target does."""

    max_len: int = 512
    num_pages: int = 256
    page_size: int = 4
    min_rows: int = 1
    numerics: Numerics = "invariant"
    narrow_differs: bool = True


DEFAULT_OPTIONS = ToyOptions()


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What the wanted rows of one sequence can see. S slots of the sequence, n wanted rows."""

    tokens: NDArray[np.int64]  # [S] read back from the pages
    positions: NDArray[np.int64]  # [S]
    visible: NDArray[np.bool_]  # [n, S]
    own: NDArray[np.int64]  # [n] slot of each wanted row itself


class ToyLogits:
    """Rows of logits that refuse to be read after the target's next forward."""

    def __init__(self, rows: NDArray[np.float64], target: ToyTarget) -> None:
        self._rows = rows  # [n, V]
        self._rows.setflags(write=False)
        self._target, self._forward = target, target.num_forwards

    def argmax(self) -> NDArray[np.int64]:
        """int64[n]: largest logit, ties to the lowest id; -1 where it is not finite (a NaN anywhere, too)."""
        self._check()
        return np.where(np.isfinite(self._rows.max(axis=1)), self._rows.argmax(axis=1), -1)

    def row(self, index: int) -> NDArray[np.float64]:
        """float64[V], read-only."""
        self._check()
        row: NDArray[np.float64] = self._rows[index]
        return row

    def _check(self) -> None:
        if self._target.num_forwards != self._forward:
            raise EngineError("logits were read after the target's next forward: copy what is needed before it")


class ToyTarget:
    """Page store, checks and counters; a subclass says what the logits are."""

    def __init__(self, vocab_size: int, options: ToyOptions = DEFAULT_OPTIONS) -> None:
        self.vocab_size = vocab_size
        self.max_len = options.max_len
        self.numerics = options.numerics
        self.min_rows = self.packed_rows = options.min_rows
        self.page_size = options.page_size
        self.num_pages = options.num_pages
        self.num_forwards = 0
        self.num_rows = 0  # of all forwards, padding included
        self._narrow_differs = options.narrow_differs
        shape = (options.num_pages, options.page_size)
        self._tokens = np.full(shape, _UNWRITTEN, np.int64)
        self._positions = np.full(shape, _UNWRITTEN, np.int64)

    def verify(self, batch: StepBatch) -> TargetOutput:
        """One forward. Raises EngineError for rows that a real cache would silently get wrong."""
        self.num_forwards += 1
        self.num_rows += len(batch.input_ids)
        self._write(batch)
        rows = [self._sequence(batch, index) for index in range(len(batch.tables))]
        logits = np.concatenate(rows) if rows else np.zeros((0, self.vocab_size))
        return TargetOutput(ToyLogits(logits, self), batch.logit_offsets)

    def move(self, moves: Moves) -> None:
        """Copies rows one by one, in order."""
        for (from_page, from_slot), (to_page, to_slot) in zip(moves.src.tolist(), moves.dst.tolist(), strict=True):
            self._tokens[to_page, to_slot] = self._tokens[from_page, from_slot]
            self._positions[to_page, to_slot] = self._positions[from_page, from_slot]

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages (source, own)."""
        for source, own in copies:
            self._tokens[own] = self._tokens[source]
            self._positions[own] = self._positions[source]

    def read(self, table: Ids, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens, positions) int64[length] that lie in the first slots of a page table; for checks."""
        pages, offsets = self._slots(table, 0, length)
        return self._tokens[pages, offsets], self._positions[pages, offsets]

    def _slots(self, table: Ids, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        index = np.arange(start, stop)
        if stop > len(table) * self.page_size:
            raise EngineError(f"a page table of {len(table)} pages has no slot {stop - 1}: reserve padding rows too")
        return np.asarray(table)[index // self.page_size], index % self.page_size

    def _write(self, batch: StepBatch) -> None:
        if len(batch.positions) and int(batch.positions.max()) >= self.max_len:
            raise EngineError(f"position {int(batch.positions.max())} is past the context limit {self.max_len}")
        places = []
        for index, (table, past) in enumerate(zip(batch.tables, batch.past_lens.tolist(), strict=True)):
            low, high = int(batch.offsets[index]), int(batch.offsets[index + 1])
            pages, offsets = self._slots(table, past, past + high - low)
            self._tokens[pages, offsets] = batch.input_ids[low:high]
            self._positions[pages, offsets] = batch.positions[low:high]
            places.append(pages * self.page_size + offsets)
        flat = np.concatenate(places) if places else np.zeros(0, np.int64)
        if len(np.unique(flat)) != len(flat):
            raise EngineError("two rows of one step were given the same slot")

    def _sequence(self, batch: StepBatch, index: int) -> NDArray[np.float64]:
        """float64[n, V] of the wanted rows of one sequence."""
        low, high = int(batch.offsets[index]), int(batch.offsets[index + 1])
        past, num_rows = int(batch.past_lens[index]), high - low
        wanted = batch.logit_rows[batch.logit_offsets[index] : batch.logit_offsets[index + 1]] - low
        tokens, positions = self.read(batch.tables[index], past + num_rows)
        if (tokens == _UNWRITTEN).any():
            raise EngineError("a forward reads a cache row that was never written")
        if (positions[:past] != np.arange(past)).any():
            raise EngineError("a kept cache row lies at another position than its own")
        mask = batch.ancestors[index]
        own = np.tri(num_rows, dtype=np.bool_) if mask is None else mask
        visible = np.concatenate([np.ones((len(wanted), past), np.bool_), own[wanted]], axis=1)
        logits = self._logits(Context(tokens, positions, visible, past + wanted))
        if self._narrow_differs and num_rows < self.min_rows:
            return np.roll(logits, 1, axis=1)
        return logits

    def _logits(self, context: Context) -> NDArray[np.float64]:
        raise NotImplementedError


class TableTarget(ToyTarget):
    """A Markov chain: the logits after token t are `table[t]`, float64[U, V] with U >= V input tokens."""

    def __init__(self, table: ArrayLike, options: ToyOptions = DEFAULT_OPTIONS) -> None:
        self._table = np.asarray(table, np.float64)
        super().__init__(self._table.shape[1], options)

    def _logits(self, context: Context) -> NDArray[np.float64]:
        rows: NDArray[np.float64] = self._table[context.tokens[context.own]]
        return rows


class ConstTarget(ToyTarget):
    """CONST(l): the same logits whatever the context."""

    def __init__(self, logits: ArrayLike, options: ToyOptions = DEFAULT_OPTIONS) -> None:
        self._row = np.asarray(logits, np.float64)
        super().__init__(len(self._row), options)

    def _logits(self, context: Context) -> NDArray[np.float64]:
        return np.tile(self._row, (len(context.own), 1))


class CycleTarget(TableTarget):
    """CYCLE: the argmax after token t is (t+1) mod V, `gap` above the rest."""

    def __init__(self, vocab_size: int = 8, gap: float = 5.0, options: ToyOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(gap * np.roll(np.eye(vocab_size), 1, axis=1), options)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood, 2014): each output bit depends on each input bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class HashTarget(ToyTarget):
    """Logits that are a pseudo-random function of every visible (token, position), each in [-scale, scale].

    window: None, or how many positions back count, then relative to the row's own: a repeated context has repeated
        logits, and texts repeat as n-gram drafters like.
    jitter: adds `jitter` times the logits of another seed: a drafter that agrees with `jitter=0` now and then.
    """

    def __init__(
        self,
        vocab_size: int,
        seed: int = 0,
        *,
        window: int | None = None,
        scale: float = 2.0,
        jitter: float = 0.0,
        options: ToyOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(vocab_size, options)
        self._seed, self._window, self._scale, self._jitter = seed, window, scale, jitter

    def _logits(self, context: Context) -> NDArray[np.float64]:
        logits = self._scale * self._unit(context, self._seed)
        if self._jitter:
            logits += self._scale * self._jitter * self._unit(context, self._seed + 7919)
        return logits

    def _unit(self, context: Context, seed: int) -> NDArray[np.float64]:
        """float64[n, V] in [-1, 1]: a hash of what each row sees, the same whatever order the slots are in."""
        places = np.broadcast_to(context.positions, context.visible.shape)  # [n, S]
        visible = context.visible
        if self._window is not None:
            distance = context.positions[context.own][:, None] - places
            visible = visible & (distance < self._window)
            places = distance
        keys = (context.tokens + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        keys = _mix(keys ^ _mix(places.astype(np.uint64) + np.uint64(seed * 2 + 1)))  # [n, S]
        seen = _mix(np.where(visible, keys, np.uint64(0)).sum(axis=1))  # [n], wraps modulo 2**64
        ids = np.arange(1, self.vocab_size + 1, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        words = _mix(seen[:, None] ^ _mix(ids))
        unit: NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
        return unit
