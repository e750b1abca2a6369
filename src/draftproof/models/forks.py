"""Trees under invariant numerics: each branch as a causal sequence of its own, on scratch pages.

A masked tree sums attention in another order than a chain does, so its rows are not bit-equal to plain decoding's. A
branch that runs as a forked sequence is: it shares the whole pages of its past by naming them, gets a copy of the
last partial page, and is plain causal attention from there. Afterwards each node's keys and values are copied from
scratch to the slot the ledger expects (row feed - 1 + node), so nobody outside sees the difference. Hidden states come
home the same way: a row that two branches share has the same bits in both.

Scratch is bounded: trees that need more pages than there are run in several forwards.

Does not know: drafts, rules, sequences beyond one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InputError
from draftproof.kv.pages import PagedStore
from draftproof.rules.host import HostLogits
from draftproof.types import Ids, Moves, StepBatch, TargetOutput


class _Forward(Protocol):
    page_size: int

    def forward(self, batch: StepBatch) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """One causal run: `rows` (indices into the batch) of sequence `seq`; scratch pages it writes, None for a chain."""

    seq: int
    rows: NDArray[np.int64]
    pages: int


def _branches(mask: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Root-to-leaf rows of a mask [T, T]: the lines of the rows that no other row descends from."""
    has_child = (mask & ~np.eye(len(mask), dtype=np.bool_)).any(axis=0)
    return [np.flatnonzero(mask[row]) for row in np.flatnonzero(~has_child)]


class Forks:
    """Runs batches with trees through `target.forward` on the given scratch pages."""

    def __init__(self, target: _Forward, store: PagedStore, scratch: range) -> None:
        self._target = target
        self._store = store
        self._scratch = scratch

    def verify(self, batch: StepBatch) -> TargetOutput:
        """Logits of the wanted rows, in the batch's order; keys and values end in the batch's own slots.

        Hidden states are those of all rows, where the target gives any.
        """
        logits: NDArray[np.float32] | None = None
        features: NDArray[np.float32] | None = None
        where = np.full(len(batch.input_ids), -1, np.int64)
        where[batch.logit_rows] = np.arange(len(batch.logit_rows))
        for group in self._groups(batch):
            part, wanted, states = self._run(batch, group)
            if logits is None:
                logits = np.empty((len(batch.logit_rows), part.shape[1]), part.dtype)
            logits[where[wanted]] = part
            if states is not None:
                if features is None:
                    features = np.zeros((len(batch.input_ids), states.shape[1]), states.dtype)
                features[np.concatenate([run.rows for run in group])] = states
        assert logits is not None
        return TargetOutput(HostLogits(logits), batch.logit_offsets, features)

    def _runs(self, batch: StepBatch) -> list[_Run]:
        runs = []
        size = self._target.page_size
        for seq, mask in enumerate(batch.ancestors):
            first, last, past = int(batch.offsets[seq]), int(batch.offsets[seq + 1]), int(batch.past_lens[seq])
            if mask is None:
                runs.append(_Run(seq, np.arange(first, last), 0))
                continue
            runs.extend(
                _Run(seq, branch + first, -(-(past % size + len(branch)) // size)) for branch in _branches(mask)
            )
        return runs

    def _groups(self, batch: StepBatch) -> list[list[_Run]]:
        """Runs in order, cut where the scratch pages are used up."""
        groups: list[list[_Run]] = [[]]
        used = 0
        for run in self._runs(batch):
            if run.pages > len(self._scratch):
                raise InputError("a tree branch needs more scratch pages than there are: draft shorter branches")
            if used + run.pages > len(self._scratch):
                groups.append([])
                used = 0
            groups[-1].append(run)
            used += run.pages
        return groups

    def _run(
        self, batch: StepBatch, group: list[_Run]
    ) -> tuple[NDArray[np.float32], list[int], NDArray[np.float32] | None]:
        """One forward of a group: logits, the batch row of each of them, and the states of all its rows in order."""
        size, free = self._target.page_size, iter(self._scratch)
        tables: list[Ids] = []
        copies: list[tuple[int, int]] = []
        for run in group:
            table = batch.tables[run.seq]
            if run.pages:
                whole = int(batch.past_lens[run.seq]) // size
                own = [next(free) for _ in range(run.pages)]
                if int(batch.past_lens[run.seq]) % size:
                    copies.append((int(table[whole]), own[0]))
                table = np.concatenate([table[:whole], np.array(own, np.int32)])
            tables.append(table)
        self._store.copy_pages(copies)
        flat, rows = self._flatten(batch, group, tables)
        logits, states = self._target.forward(flat)
        part = logits.copy()
        self._bring_home(batch, group, tables)
        return part, rows, states

    def _flatten(self, batch: StepBatch, group: list[_Run], tables: list[Ids]) -> tuple[StepBatch, list[int]]:
        """The group as a causal batch; every true row's logits are asked for."""
        ids: list[Any] = []
        places: list[Any] = []
        wanted: list[Any] = []
        rows: list[int] = []
        begins = [0]
        asked = set(batch.logit_rows.tolist())
        for run in group:
            ids.append(batch.input_ids[run.rows])
            places.append(batch.positions[run.rows])
            here = [i for i, row in enumerate(run.rows.tolist()) if row in asked]
            wanted.append(np.array(here, np.int64) + begins[-1])
            rows.extend(int(run.rows[i]) for i in here)
            begins.append(begins[-1] + len(run.rows))
        logit_rows = np.concatenate(wanted)
        return StepBatch(
            input_ids=np.concatenate(ids),
            positions=np.concatenate(places),
            offsets=np.array(begins, np.int32),
            past_lens=np.array([batch.past_lens[run.seq] for run in group], np.int32),
            tables=tuple(tables),
            logit_rows=logit_rows,
            logit_offsets=np.array([0, len(logit_rows)], np.int32),
            ancestors=(None,) * len(group),
            wide=tuple(batch.wide is not None and batch.wide[run.seq] for run in group),
        ), rows

    def _bring_home(self, batch: StepBatch, group: Sequence[_Run], tables: Sequence[Ids]) -> None:
        """Copies each scratch row to the slot of its batch row (equal rows of two branches hold equal bits)."""
        size = self._target.page_size
        src: list[tuple[int, int]] = []
        dst: list[tuple[int, int]] = []
        for run, table in zip(group, tables, strict=True):
            if not run.pages:
                continue
            past, first = int(batch.past_lens[run.seq]), int(batch.offsets[run.seq])
            for step, row in enumerate(run.rows.tolist()):
                here, home = past + step, past + row - first
                src.append((int(table[here // size]), here % size))
                dst.append((int(batch.tables[run.seq][home // size]), home % size))
        self._store.move(Moves(np.array(src, np.int32).reshape(-1, 2), np.array(dst, np.int32).reshape(-1, 2)))
