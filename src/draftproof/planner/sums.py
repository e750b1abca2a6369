"""Which rounds a text would have had at every draft length, by exact recursion; sums per prompt, all gammas at once.

Given a text and a drafter, a round that begins at start s with n = min(offered, gamma) drafts ends after exactly j of
them with probability K_j - K_{j+1} (j < n) or K_n (all), K_j = keep_1 * ... * keep_j, and the next one begins at
s + j + 1. So the probability P(s) that some round begins at s follows by pushing mass forward from the first start,
P = 1. Because lists are stored until the first keep of 0 and padded with zeros, K is 0 beyond the list, and one
formula serves every n: K_n - K_{n+1} = K_n.

From P come the expected numbers of rounds, of drafts tested at depth k (P * K_{k-1}, where k <= n and the text goes on
so far), accepted there (times accept_k), of rounds with n drafts; and tokens = rounds + accepted - closed: each round
emits its accepted drafts and one more, except where an accepted draft closed the text (the mass K_k that reaches just
the last token; a text cut at its length has none, for nothing is drafted at its last place).

`keep` is the posterior given the text, `accept` the chance given only what came before; as E[keep | before] = accept,
each sum has the expectation of its count in real rounds, and the noise of the texts alone: no coin is thrown.

Invariant: for each prompt and gamma, the P of a round's possible next starts add up to its own.
Does not know: buckets, costs, intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_GROUP = 1 << 11  # prompts that advance together: their masses fit into a cache
_BLOCK = 1 << 13  # rows whose products are held at a time: they fit into a cache


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Every position at which a round could begin, of one drafter or several; see the columns of a run's token rows.

    Rows of a prompt are contiguous, their positions ascending; the first row of a prompt is where its first round
    begins (the plain first token of a completion is no start). A prompt under two drafters counts as two prompts.
    """

    prompt: Ints  # int64[N]
    offered: NDArray[np.int16]  # int16[N], drafts of a round that begins here, <= G
    keep: NDArray[np.float32]  # float32[N, G], 0 beyond the stored list, which ends with the text or the first 0
    accept: NDArray[np.float32]  # float32[N, G], the same

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit, or a prompt whose rows are torn apart."""
        rows = len(self.prompt)
        if self.keep.shape != self.accept.shape or len(self.keep) != rows or len(self.offered) != rows:
            raise ValueError(f"{rows} prompts, {len(self.offered)} offered, {self.keep.shape}, {self.accept.shape}")
        if len(np.unique(self.prompt[self.firsts])) != len(self.firsts):
            raise ValueError("the rows of a prompt must be contiguous")

    @property
    def gamma_max(self) -> int:
        """G."""
        return int(self.keep.shape[1])

    @property
    def firsts(self) -> Ints:
        """int64[P]: the first row of each prompt."""
        return np.flatnonzero(np.diff(self.prompt, prepend=self.prompt[:1] - 1))


@dataclass(frozen=True, slots=True, eq=False)
class PromptSums:
    """Sums per prompt (axis 0) and gamma (axis 1, 0..G); depth k is at index k - 1, zero where k > gamma."""

    positions: Floats  # float64[P]: decided tokens
    rounds: Floats  # float64[P, G+1]
    tokens: Floats  # float64[P, G+1]: emitted by them
    tested: Floats  # float64[P, G+1, G]
    accepted: Floats  # float64[P, G+1, G]
    drafting: Floats  # float64[P, G+1, G+1]: rounds with n drafts

    def take(self, prompts: NDArray[np.bool_] | Ints) -> PromptSums:
        """Those of some prompts."""
        return PromptSums(*(getattr(self, field.name)[prompts] for field in fields(self)))


def prompt_sums(starts: Starts) -> PromptSums:
    """The expected sums of every prompt, prompts in the order of their rows."""
    gammas = starts.gamma_max + 1
    firsts = starts.firsts
    ends = np.append(firsts, len(starts.prompt))[1:]
    reach = np.ones((gammas, len(starts.prompt)), np.float32)  # K, [G+1, N]; as precise as keep itself
    np.cumprod(starts.keep.T, axis=0, out=reach[1:])
    begins = _begins(reach, firsts, ends - firsts)
    left = np.repeat(ends, ends - firsts) - np.arange(len(starts.prompt))  # tokens of the text from each row on
    sums = np.zeros((len(firsts), gammas, 1 + 3 * starts.gamma_max + gammas))
    first = 0
    while first < len(firsts):
        last = max(first + 1, int(np.searchsorted(ends, firsts[first] + _BLOCK, side="right")))
        low, high = int(firsts[first]), int(ends[last - 1])
        columns = _columns(starts, reach, left, slice(low, high))
        for prompt in range(first, last):  # one small matrix product each: gammas by columns
            a, b = firsts[prompt], ends[prompt]
            np.dot(begins[:, a:b], columns[:, a - low : b - low].T, out=sums[prompt])
        first = last
    return _split(sums, (ends - firsts).astype(np.float64), starts.gamma_max)


def _begins(reach: NDArray[np.float32], firsts: Ints, lengths: Ints) -> Floats:
    """float64[G+1, N]: the probability that a round begins at each row, for each gamma."""
    begins = np.empty(reach.shape)
    order = np.argsort(-lengths, kind="stable")  # of a group, the prompts that still go on are always the first ones
    for start in range(0, len(order), _GROUP):
        group = order[start : start + _GROUP]
        _push(reach, firsts[group], lengths[group], begins)
    return begins


def _push(reach: NDArray[np.float32], firsts: Ints, lengths: Ints, begins: Floats) -> None:
    """Fills the rows of prompts with falling lengths, position by position."""
    gammas, active = len(reach), len(firsts)
    ring = np.zeros((gammas + 1, gammas, active))  # mass waiting for the next starts: [slot, gamma, prompt]
    ring[0] = 1
    for position in range(int(lengths[0])):
        active = int(np.searchsorted(-lengths[:active], -position, side="left"))  # those longer than `position`
        here = firsts[:active] + position
        mass = ring[position % (gammas + 1), :, :active].copy()
        ring[position % (gammas + 1)] = 0
        begins[:, here] = mass
        k = np.take(reach, here, axis=1).astype(np.float64)  # [G+1, active]; in float64 the differences add up to 1
        ends_at = k[:-1] - k[1:]
        for depth in range(gammas):
            ahead = ring[(position + 1 + depth) % (gammas + 1), :, :active]
            ahead[depth] += mass[depth] * k[depth]  # gamma == depth: every draft was accepted
            if depth + 1 < gammas:
                ahead[depth + 1 :] += mass[depth + 1 :] * ends_at[depth]


def _columns(starts: Starts, reach: NDArray[np.float32], left: Ints, rows: slice) -> Floats:
    """float64[1 + 3 G + G+1, rows]: 1; at depth k tested, accepted, closing the text; whether n drafts are offered."""
    gamma_max, number = starts.gamma_max, np.arange(rows.stop - rows.start)
    offered, behind = starts.offered[rows].astype(np.int64), left[rows]
    columns = np.zeros((2 + 4 * gamma_max, len(number)))
    columns[0] = 1
    limit = np.minimum(offered, behind)  # depths that are tested if they are reached
    for depth in range(1, gamma_max + 1):
        tested = np.multiply(reach[depth - 1, rows], limit >= depth, out=columns[depth])
        np.multiply(tested, starts.accept[rows, depth - 1], out=columns[gamma_max + depth])
    last = np.flatnonzero(behind <= gamma_max)
    columns[2 * gamma_max + behind[last], last] = reach[behind[last], rows.start + last]
    columns[1 + 3 * gamma_max + offered, number] = 1
    return columns


def _split(sums: Floats, positions: Floats, gamma_max: int) -> PromptSums:
    """Names the columns, and cuts depths and draft counts to each gamma."""
    gammas = np.arange(gamma_max + 1)
    within = gammas[1:] <= gammas[:, None]  # [gamma, k]
    rounds = sums[:, :, 0]
    tested, accepted, closing = (
        sums[:, :, 1 + part * gamma_max : 1 + (part + 1) * gamma_max] * within for part in range(3)
    )
    tokens = rounds + accepted.sum(axis=2) - closing.sum(axis=2)
    offered = sums[:, :, 1 + 3 * gamma_max :]
    drafting = offered * (gammas < gammas[:, None])
    drafting[:, gammas, gammas] = np.einsum("pgn,gn->pg", offered, 1.0 * (gammas >= gammas[:, None]))
    return PromptSums(positions, rounds, tokens, tested, accepted, drafting)
