"""Logits and the history of a node -> the law really sampled from. The only home of every sampling parameter.

Two stages, in this order:
`processed`: repetition penalty (prompt and output), presence and frequency penalty (output), logit bias, banned words,
    stop ids before the minimum length. They depend on the *history* of a node, recomputed from its tokens, so that a
    rejected token can never have entered it, and they hold anew for every candidate prefix.
`warp`: temperature, top-k, top-p, min-p of one row. Temperature 0 is the one-hot law of the best id.

Invariant: a row of the target is never edited in place; a row with a NaN, or without a possible token, is a
`RowError` and never an ordinary token. Ties always go to the lower id. Drafters warp their own rows by the same code.

Does not know: trees, rules, random numbers, where rows come from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InvalidParams, RowError
from draftproof.rules.select import best_ids
from draftproof.types import FloatArray, Ids, SamplingParams

_SORTED = 1024  # a top_p search sorts at most about this many tokens; wider nuclei are first narrowed by halving


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """All tokens before the one to be chosen: prompt, committed output, and the draft tokens on the path."""

    tokens: Ids  # [T]
    prompt_len: int

    @property
    def output(self) -> Ids:
        """int32[T - prompt_len]: what was emitted, and the path."""
        return self.tokens[self.prompt_len :]


@dataclass(frozen=True, slots=True, eq=False)
class Warped:
    """A law as scores: probability of ids[i] is exp(scores[i]) / sum; every other id has none.

    ids int64[k] ascending, or None for the whole vocabulary; scores float[k] or float[V], the largest is 0.
    """

    ids: NDArray[np.int64] | None
    scores: FloatArray

    def law(self, vocab_size: int) -> FloatArray:
        """float[V] in the precision of the logits: the same law, dense."""
        weights = np.exp(self.scores)
        weights /= float(weights.sum(dtype=np.float64))
        if self.ids is None:
            return weights
        dense = np.zeros(vocab_size, weights.dtype)
        dense[self.ids] = weights
        return dense


def processed(row: FloatArray, params: SamplingParams, history: History, stop_ids: Collection[int]) -> FloatArray:
    """Logits float[V] of one row with penalties, bias and bans under `history`; the same array when none is asked.

    Sources: repetition penalty, Keskar et al. 2019, section 4.1; presence and frequency penalty as in the OpenAI API.
    Raises InvalidParams where a parameter names an id outside the vocabulary.
    """
    if not params.has_processors:
        return row
    row = row.copy()
    with np.errstate(over="ignore"):
        _penalise(row, params, history)
        if params.logit_bias:
            ids = _known(params.logit_bias.keys(), len(row), "logit_bias")
            row[ids] += np.fromiter(params.logit_bias.values(), np.float64, len(ids))
    row[_known(_completions(params.bad_words, history.tokens), len(row), "bad_words")] = -np.inf
    if len(history.output) < params.min_new_tokens:
        row[_known(stop_ids, len(row), "stop_ids")] = -np.inf
    return row


def warp(row: FloatArray, params: SamplingParams) -> Warped:
    """Temperature, top-k, top-p, min-p of (processed) logits float[V]. Raises RowError for a row without a law.

    top_k keeps exactly k possible tokens; top_p the smallest prefix, best first, whose mass in the law that top_k left
    is >= top_p (Holtzman et al. 2020, section 3.1); min_p what has >= min_p times the best token's probability.
    """
    best = best_id(row)
    if params.temperature == 0:
        return Warped(np.array([best]), np.zeros(1, row.dtype))
    warped = Warped(None, _scaled(row, float(row[best]), params.temperature))
    if params.top_k is not None and params.top_k < len(row):
        warped = _keep(warped, best_ids(warped.scores, params.top_k))
    if params.top_p < 1.0:
        warped = _keep(warped, _nucleus(warped.scores, params.top_p))
    if params.min_p > 0.0:
        warped = _keep(warped, np.flatnonzero(warped.scores >= math.log(params.min_p)))
    return warped


def best_id(row: FloatArray) -> int:
    """The greedy choice of a row float[V]: largest logit, ties to the lowest id. Raises RowError if there is none."""
    best = int(row.argmax())  # argmax stops at the first NaN, so one look at the winner finds a NaN anywhere
    top = row[best]
    if np.isfinite(top):
        return best
    if top == -np.inf:
        raise RowError("no token is possible: bias, banned words and the minimum length leave none; relax them")
    raise RowError(f"the model gave a logit of {top}: its weights or its input are broken")


def _scaled(row: FloatArray, top: float, temperature: float) -> FloatArray:
    """(row - top) / temperature. The maximum goes first: 2/1e-40 is inf in float32, and inf - inf is NaN (B11)."""
    with np.errstate(over="ignore"):
        scores: FloatArray = row - row.dtype.type(top)
        if temperature != 1.0:
            scores /= max(temperature, float(np.finfo(row.dtype).tiny))  # a smaller divisor would round to 0
    return scores


def _keep(warped: Warped, chosen: NDArray[np.int64]) -> Warped:
    """The law cut down to entries `chosen` (indices into its scores, in any order)."""
    mask = np.zeros(len(warped.scores), np.bool_)  # ascending order without a sort
    mask[chosen] = True
    chosen = np.flatnonzero(mask)
    ids = chosen if warped.ids is None else warped.ids[chosen]
    return Warped(ids, warped.scores[chosen])


def _nucleus(scores: FloatArray, top_p: float) -> NDArray[np.int64]:
    """Indices of the smallest prefix, best first, with mass >= top_p."""
    weights = np.exp(scores)
    needed = top_p * float(weights.sum(dtype=np.float64))
    order = best_ids(scores, _SORTED // 8)
    mass = np.cumsum(weights[order], dtype=np.float64)
    if mass[-1] < needed:
        return _wide_nucleus(scores, weights, needed)
    return order[: int(np.searchsorted(mass, needed)) + 1]


def _wide_nucleus(scores: FloatArray, weights: FloatArray, needed: float) -> NDArray[np.int64]:
    """`_nucleus` of a flat row: halves the tokens among which the prefix ends until few are left to sort."""
    inside: list[NDArray[np.int64]] = []  # tokens above a pivot that did not reach the mass: all in the prefix
    rest = np.flatnonzero(scores > -np.inf)
    while len(rest) > _SORTED:
        values = scores[rest]
        upper = values > np.median(values[:: len(rest) // 64])
        mass = float(weights[rest[upper]].sum(dtype=np.float64))
        if mass >= needed:
            rest = rest[upper]
        elif upper.any():
            needed -= mass
            inside.append(rest[upper])
            rest = rest[~upper]
        else:
            break  # the pivot is the maximum: mostly ties, which a stable sort takes in one pass
    order = rest[np.argsort(-scores[rest], kind="stable")]
    masses = np.cumsum(weights[order], dtype=np.float64)
    return np.concatenate([*inside, order[: int(np.searchsorted(masses, needed)) + 1]])


def _penalise(row: FloatArray, params: SamplingParams, history: History) -> None:
    if params.repetition_penalty != 1.0:
        seen = _known(np.unique(history.tokens), len(row), "repetition_penalty")
        logits = row[seen]
        row[seen] = np.where(logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        tokens, counts = np.unique(history.output, return_counts=True)
        emitted = _known(tokens, len(row), "presence_penalty")
        row[emitted] -= params.presence_penalty + params.frequency_penalty * counts


def _completions(bad_words: Iterable[str | Iterable[int]], tokens: Ids) -> list[int]:
    """Last ids of the banned sequences whose other ids end `tokens`."""
    banned = []
    for word in bad_words:
        if isinstance(word, str):
            raise InvalidParams(f"bad_words {word!r} is text: resolve it to token ids first")
        *prefix, last = word
        if not prefix or tokens[-len(prefix) :].tolist() == prefix:
            banned.append(last)
    return banned


def _known(ids: Iterable[int], vocab_size: int, name: str) -> NDArray[np.int64]:
    """int64[k] of ids, checked against the vocabulary."""
    known = ids.astype(np.int64) if isinstance(ids, np.ndarray) else np.array(list(ids), np.int64)
    if known.size and (known.max() >= vocab_size or known.min() < 0):
        raise InvalidParams(f"{name} meets token id {known.max()}, but the vocabulary has {vocab_size} ids")
    return known
