"""Theorem 5 (`coupled`): draft and target race with the same Gumbel noise, so the draft can't change the text.

Hypotheses. g(i) are independent standard Gumbel numbers, a function of (seed, position, token id) only. The token at a
position is race(law, g) = argmax over i of log law(i) + g(i); a draft of that position may be argmax of log q + g.

Statement. (a) The emitted token has the target law p. (b) It is the token plain decoding emits with that seed, whatever
the drafter, draft length, batch or schedule. (c) A draft from law q is accepted with probability
sum_y 1 / sum_i max(p_i/p_y, q_i/q_y) >= (1 - TV) / (1 + TV), TV the total variation of p and q.

Proof. E_i = exp(-g_i) are independent exponentials of rate 1, and log p_i + g_i is largest where E_i/p_i is smallest:
an exponential race, won by i with probability p_i (a). `follow` emits the target's own choice at every node, a function
of the history and the position (b). Both races are won by y iff E_i >= E_y max(p_i/p_y, q_i/q_y) for all i, with
probability 1 / (1 + sum over i != y of that maximum); the maximum is <= max(p_i, q_i) / min(p_y, q_y), and the sums of
min and max of two laws are 1 - TV and 1 + TV (c). [] (Daliri, Musco, Suresh 2024.)

So this is theorem 1's walk with noise keyed by position; scores with any constant added give the same race.

Does not know: sequences, drafts, where the noise comes from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftproof.protocols import Noise
from draftproof.rules.select import best_ids
from draftproof.rules.warp import Warped
from draftproof.types import FloatArray

_FEW = 64  # tokens that race as they are
_ROUNDING = 1e-3  # more than float32 scores and two logarithms can be off, less than matters


def race(warped: Warped, gumbel: FloatArray) -> int:
    """The winner of scores + gumbel, both float[k] (of warped.ids) or float[V]; ties to the lowest id."""
    winner = int(np.argmax(warped.scores + gumbel))
    return winner if warped.ids is None else int(warped.ids[winner])


def race_top(warped: Warped, gumbel: FloatArray, k: int) -> NDArray[np.int64]:
    """int64[<= k]: the first k of the race, best first; fewer where the law has fewer tokens. Ranked siblings."""
    winners = best_ids(warped.scores + gumbel, k)
    return winners if warped.ids is None else warped.ids[winners]


def sample(warped: Warped, noise: Noise, seed: int, position: int, vocab_size: int) -> int:
    """The token at an absolute position (its index in the token list), as plain decoding with this seed chooses it."""
    if warped.ids is not None and len(warped.ids) == 1:
        return int(warped.ids[0])  # temperature 0 and other one-hot laws ask for no noise
    warped = _contenders(warped, noise, seed, position, vocab_size)
    return race(warped, noise.gumbel(seed, position, warped.ids, vocab_size))


def _contenders(warped: Warped, noise: Noise, seed: int, position: int, vocab_size: int) -> Warped:
    """Without the tokens that would lose to the best one even with the largest number of this position.

    Most of a vocabulary is that unlikely, and its two logarithms a token are most of the time that a race takes.
    """
    scores = warped.scores
    if len(scores) <= _FEW:
        return warped
    best = int(scores.argmax())
    token = best if warped.ids is None else int(warped.ids[best])
    own = float(noise.gumbel(seed, position, np.array([token]), vocab_size)[0])
    bound = float(scores[best]) + own - noise.peak(seed, position, vocab_size) - _ROUNDING
    left = np.flatnonzero(scores >= bound)
    return Warped(left if warped.ids is None else warped.ids[left], scores[left])
