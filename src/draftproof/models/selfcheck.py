"""Proof, on this machine and model, of what a target declares about its numerics.

Runs one row in many surroundings and compares bits: other widths, other sequences in the step, the prompt whole or in
chunks, rows written narrow or wide, after a rollback. Under "invariant" every comparison must be bitwise equal, or
NumericsError is raised; under "fast" the largest difference and the number of flipped argmaxes are the answer.

`quick` is what runs at load (a few forwards); `full` is what `draftproof doctor` runs.

Does not know: which backend it talks to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import NumericsError
from draftproof.models.batch import Rows, flat_batch
from draftproof.protocols import Target
from draftproof.types import Slots

_SEED = 20230211
VERSION = 4  # of the checks and of what they are made of: what was remembered of another one says nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison: are the bits equal, by how much do the logits differ, does the argmax."""

    what: str
    equal: bool
    drift: float
    flipped: bool


class _Probe:
    """Drives a target directly: each sequence owns a fixed run of pages."""

    def __init__(self, target: Target, length: int, num_sequences: int) -> None:
        self.target = target
        rng = np.random.default_rng(_SEED)
        self.pages = -(-(length + 80) // target.page_size)
        self.num_sequences = min(num_sequences, target.num_pages // self.pages)
        self.texts = rng.integers(0, target.vocab_size, (max(1, self.num_sequences), length + 80)).astype(np.int32)

    def rows(self, seq: int, past: int, width: int, text: int | None = None) -> Rows:
        """`width` rows of a text after `past`; row 0 is the one whose logits are compared."""
        table = np.arange(seq * self.pages, (seq + 1) * self.pages, dtype=np.int32)
        tokens = self.texts[seq if text is None else text][past : past + width]
        return Rows(tokens, 1, Slots(table, past, width))

    def run(self, rows: Sequence[Rows]) -> NDArray[np.floating]:
        """Logits of the first sequence's first row."""
        return np.array(self.target.verify(flat_batch(rows, self.target.packed_rows)).logits.row(0))

    def fill(self, seq: int, past: int, chunks: Sequence[int], text: int | None = None) -> NDArray[np.floating]:
        """Writes a text of `past` tokens in chunks; returns the logits of its last row."""
        start = 0
        last: NDArray[np.floating] = np.zeros(0)
        for width in chunks:
            part = self.rows(seq, start, width, text)
            rows = Rows(part.tokens, width, part.slots, wide=True)
            last = self.run([rows])
            start += width
        assert start == past
        return last


def _compare(what: str, base: NDArray[np.floating], other: NDArray[np.floating]) -> Finding:
    drift = float(np.abs(base.astype(np.float64) - other).max())
    return Finding(what, bool((base == other).all()), drift, bool(base.argmax() != other.argmax()))


def _chunkings(length: int, sizes: Sequence[int]) -> dict[int, list[int]]:
    return {
        size: [size] * (length // size) + ([length % size] if length % size else []) for size in sizes if size < length
    }


def _examine(target: Target, length: int, widths: Sequence[int], batches: Sequence[int]) -> list[Finding]:
    probe = _Probe(target, length, max(batches) + 1)
    findings: list[Finding] = []
    whole = probe.fill(0, length, [length])
    base = probe.run([probe.rows(0, length, 1)])
    findings += [
        _compare(f"{width} rows in its sequence", base, probe.run([probe.rows(0, length, width)])) for width in widths
    ]
    findings.append(_compare("after a rollback over rejected rows", base, probe.run([probe.rows(0, length, 1)])))
    for seq in range(1, probe.num_sequences):
        probe.fill(seq, length // (1 + seq % 3), [length // (1 + seq % 3)])
    for num in (b for b in batches if b < probe.num_sequences):
        for width in (1, 4):
            others = [probe.rows(s, length // (1 + s % 3), width) for s in range(1, num)]
            found = probe.run([probe.rows(0, length, width), *others])
            findings.append(_compare(f"{num} sequences of {width} rows in the step", base, found))
    if probe.num_sequences > 1:
        for size, chunks in _chunkings(length, (16, 31, 1) if length <= 96 else (16, 50, 127)).items():
            last = probe.fill(1, length, chunks, text=0)
            findings.append(_compare(f"prompt in chunks of {size}", whole, last))
            rows = probe.rows(1, length, 2, text=0)
            findings.append(_compare(f"after a prompt in chunks of {size}", base, probe.run([rows])))
    return findings


@contextmanager
def narrow(target: Target) -> Iterator[None]:
    """Within it rows are as narrow as they come: what the invariant form saves the user from."""
    declared, rows = target.numerics, target.min_rows
    target.numerics, target.min_rows = "fast", 1
    try:
        yield
    finally:
        target.numerics, target.min_rows = declared, rows


def quick(target: Target) -> list[Finding]:
    """A few forwards: widths 2, 3, 8; three sequences; chunks."""
    return _examine(target, min(48, target.max_len // 4), (2, 3, 8), (3,))


def full(target: Target, report: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Two lengths, widths 2 to 64, up to 16 sequences, several chunkings."""
    findings = []
    for length in (min(70, target.max_len // 4), min(300, target.max_len // 2)):
        report(f"checking rows after {length} tokens")
        findings += _examine(target, length, (2, 3, 4, 5, 8, 16, 33, 64), (2, 8, 16))
    return findings


def hold(target: Target, findings: Sequence[Finding]) -> None:
    """Raises NumericsError where a target that declares "invariant" is not."""
    broken = [finding for finding in findings if not finding.equal]
    if target.numerics == "invariant" and broken:
        worst = max(broken, key=lambda finding: finding.drift)
        raise NumericsError(
            f"invariant numerics do not hold on this machine: {len(broken)} of {len(findings)} checks differ, the "
            f"largest by {worst.drift:.3g} ({worst.what}); use --numerics fast and read `draftproof doctor`"
        )
