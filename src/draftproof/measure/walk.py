"""Rounds walked over a text that is already there: which drafts a run over a log would have kept, with coins.

The draft at depth k of a round that starts at s is kept with the posterior chance keep[s, k-1], by a coin that belongs
to its place in the text. Without coins that can turn out either way (temperature 0) the walk *is* the run.

Does not know: laws, drafters, where coins come from.
"""

from __future__ import annotations

from collections.abc import Callable

from draftproof.measure.lists import Lists
from draftproof.measure.rounds import BONUS, CORRECTION, PLAIN, Rounds


def walk(tokens: list[int], lists: Lists, coin: Callable[[int], float]) -> Rounds:
    """Rounds over tokens [T]; coin(position) is uniform in [0, 1)."""
    rounds = Rounds()
    keep, offered, length = lists.keep, lists.offered.tolist(), lists.length.tolist()
    start, total = 0, len(tokens)
    while start < total:
        kept = 0
        while kept < length[start] and coin(start + kept) < keep[start, kept]:
            kept += 1
        refused = kept < offered[start]
        last = PLAIN if not offered[start] else CORRECTION if refused else BONUS
        rounds.add(tokens[start : start + kept + 1], kept, last, offered[start])
        start += kept + 1
    return rounds
