"""From drafts and chances at each place -> the lists that are stored: for every start the chances along its draft.

G is the longest draft, T the tokens of a text. Row s of `keep` and `accept` holds the chances at depths 1, 2, ... of a
draft that starts at position s. A list ends with the text, and after the first depth with keep 0: what follows is never
judged on this text. `offered` counts all drafts a round would make there, those included that are never judged.

Invariant: a list is no longer than its draft, nor than what is left of the text.
Does not know: where chances come from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from draftproof.measure.texts import Text
from draftproof.types import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Of one text and drafter. keep, accept float32[T, G], zero behind `length`."""

    offered: NDArray[np.int64]  # [T]
    length: NDArray[np.int64]  # [T]
    keep: NDArray[np.float32]
    accept: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What a consistent drafter drafts at each position of a text: chances float[T], 0 where there is no draft."""

    has_draft: NDArray[np.bool_]  # [T]
    ends: NDArray[np.bool_]  # [T] the draft is a known token that ends a draft (a stop id)
    keep: NDArray[np.float64]
    accept: NDArray[np.float64]


def shifted(text: Text, gamma: int, steps: Steps) -> Lists:
    """Lists of a consistent drafter: depth k of start s is the draft at position s + k - 1.

    What a draft would hold after its first refusal is not known: there `offered` takes it to go on to its budget.
    """
    has_draft = _windows(steps.has_draft, gamma, fill=True)  # a draft goes on past an end that nobody foresaw
    ends, keep, accept = (_windows(array, gamma) for array in (steps.ends, steps.keep, steps.accept))
    in_a_row = np.logical_and.accumulate(has_draft, axis=1).sum(axis=1)
    offered = np.minimum(text.budgets(gamma), in_a_row)
    ending = _reached(keep > 0) & ends & (np.arange(gamma) < offered[:, None])
    offered = np.where(ending.any(axis=1), ending.argmax(axis=1) + 1, offered)
    return listed(text, offered, keep > 0, keep, accept)


def agreeing(text: Text, drafts: Ids) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(same, judged) bool[T, G] of whole drafts int32[T, G]: is it the text's token; is it judged on this text?"""
    same = drafts == _windows(text.completion, drafts.shape[1], fill=-2)
    return same, _judged(text, (drafts >= 0).sum(axis=1), same)


def whole(text: Text, drafts: Ids, accept: NDArray[np.float64]) -> Lists:
    """Lists of whole drafts int32[T, G]. accept float64[T, G]: the target's probability of each, where it is judged."""
    same, _ = agreeing(text, drafts)
    return listed(text, (drafts >= 0).sum(axis=1), same, same, accept)


def stops(tokens: Ids, stop_ids: Collection[int]) -> NDArray[np.bool_]:
    """bool of the shape of `tokens`: is it a stop id?"""
    return np.isin(tokens, list(stop_ids))


def _windows(array: NDArray[Any], gamma: int, fill: int = 0) -> NDArray[Any]:
    """[T, G]: row s holds the entries from s on, `fill` behind the end."""
    padded = np.concatenate([array, np.full(gamma, fill, array.dtype)])
    return sliding_window_view(padded, gamma)[: len(array)]


def _reached(kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[T, G]: are all depths before this one kept?"""
    first = np.ones((len(kept), 1), np.bool_)
    return np.concatenate([first, np.logical_and.accumulate(kept, axis=1)[:, :-1]], axis=1)


def _judged(text: Text, offered: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[T, G]: depths of a draft that can be judged on this text."""
    most = np.minimum(offered, text.left())
    return _reached(kept) & (np.arange(kept.shape[1]) < most[:, None])


def listed(
    text: Text, offered: NDArray[np.int64], kept: NDArray[np.bool_], keep: NDArray[Any], accept: NDArray[Any]
) -> Lists:
    """Lists from dense [T, G]: what drafts were offered [T], whether the text has each, and its chances."""
    judged = _judged(text, offered, kept)
    return Lists(
        offered,
        judged.sum(axis=1),
        np.where(judged, keep, 0).astype(np.float32),
        np.where(judged, accept, 0).astype(np.float32),
    )
