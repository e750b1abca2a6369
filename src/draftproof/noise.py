"""Random numbers as a pure function of their key: (seed, purpose, counters) -> numbers, never the same one twice.

Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) through NumPy's bit generator: the
key is (seed, purpose), the counter starts at (0, counter, 0, 0), so that streams of different counters are 2**64
blocks apart and can't meet. Batch mates, order, pre-emption and drafters change nothing, because nothing is drawn
*from a stream*: a number is looked up.

Two disciplines, never mixed. The path-exact rules (`follow`, `coupled`) need one Gumbel number for each (seed,
absolute position, token id), whoever asks. The ratio rule (`reject`) needs numbers used once: keyed by round, with
separate purposes for the draft's draws and the tests.

Does not know: models, sequences, rules.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_PURPOSES = {"gumbel": 1, "draft": 2, "test": 3}
_KEEP = 32  # rows of numbers kept: a drafter and the target ask for the same position


def fresh_seed() -> int:
    """A seed for a request that named none, from the operating system's entropy."""
    return secrets.randbits(64)


def _words(seed: int, purpose: str, counter: int, count: int) -> NDArray[np.uint64]:
    """uint64[count] of one key; `count` only cuts, it never changes the numbers before it."""
    key = np.array([seed, _PURPOSES[purpose]], np.uint64)  # a list would go through float64 and lose large seeds
    return np.random.Philox(key=key, counter=np.array([0, counter, 0, 0], np.uint64)).random_raw(count)


def _open_unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """float64 in (0, 1): the midpoints of 2**52 equal cells (2**53 would round up to 1), so neither end is hit."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


@lru_cache(maxsize=_KEEP)
def _gumbel_words(seed: int, position: int, vocab_size: int) -> NDArray[np.uint64]:
    words = _words(seed, "gumbel", position, vocab_size)
    words.setflags(write=False)
    return words


@lru_cache(maxsize=_KEEP)
def _gumbel_row(seed: int, position: int, vocab_size: int) -> NDArray[np.float64]:
    row = _open_unit(_gumbel_words(seed, position, vocab_size))
    np.log(row, out=row)
    np.negative(row, out=row)
    np.log(row, out=row)
    np.negative(row, out=row)
    row.setflags(write=False)
    return row


class PhiloxNoise:
    """The engine's noise. Stateless: two instances give the same numbers."""

    def gumbel(self, seed: int, position: int, ids: NDArray[np.integer] | None, vocab_size: int) -> NDArray[np.float64]:
        """Standard Gumbel numbers -log(-log u) of token ids at an absolute position (index in the token list).

        ids: int[k] or None for all of 0..V-1. Returns float64[k] or float64[V], read-only when it is the whole row.
        """
        if ids is None:
            return _gumbel_row(seed, position, vocab_size)
        words = _gumbel_words(seed, position, vocab_size)[ids]
        return -np.log(-np.log(_open_unit(words)))

    def peak(self, seed: int, position: int, vocab_size: int) -> float:
        """The largest Gumbel number of a position, up to rounding: two logarithms instead of two a token."""
        word = _gumbel_words(seed, position, vocab_size).max(keepdims=True)
        return float(-np.log(-np.log(_open_unit(word)))[0])

    def uniform(self, seed: int, purpose: str, round_: int, count: int) -> NDArray[np.float64]:
        """float64[count] in [0, 1), keyed by round; purpose is "draft" or "test"."""
        return (_words(seed, purpose, round_, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
