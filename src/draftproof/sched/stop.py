"""Where a text ends, in token ids: the only home of stop ids, of the token cap and of the context limit.

A round may decide several tokens; they are replayed one at a time, exactly as the one-token loop would meet them, so
that speculation can't move an ending (B26, B27, B30, B31). On each token, in this order: a stop id ends the text with
"stop" (also when the token is the last allowed one), then the cap and the context limit end it with "length". The
stop id belongs to the text and is counted; nothing is emitted after the end.

Invariant: the kept rows end just before the last emitted token, so that one token is pending, at the end of a text too.

Does not know: text and stop *strings* (they are found where text is made), laws, caches.
"""

from __future__ import annotations

import numpy as np

from draftproof.types import EMPTY_IDS, Commit, Draft, FinishReason, Ids, StepItem, Verdict


def cut(item: StepItem, draft: Draft, verdict: Verdict, max_len: int) -> Commit:
    """What of a decided round reaches the text, and which rows stay.

    item: one that decides, with room for at least one token. draft: as proposed, n nodes. max_len: the context limit,
    most tokens of prompt and output together. Counters are taken after the cut (B44): an accepted draft token or a
    test beyond the end of the text does not count.
    """
    path = verdict.path
    run: list[int] = [int(draft.tokens[node - 1]) for node in path]
    run.append(verdict.next_token)
    num_emitted, finish = _ending(item, run, max_len)
    return Commit(
        seq=item.seq,
        tokens=_ids(run[:num_emitted]),
        kept=_kept(item.feed, path[: num_emitted - 1]),
        finish=finish,
        verdict=verdict,
        num_drafted=len(draft),
        num_tested=min(verdict.tested, num_emitted),
        num_accepted=min(len(path), num_emitted),
    )


def fed_only(item: StepItem) -> Commit:
    """The commit of a prompt chunk: its rows stay, nothing is decided."""
    return Commit(item.seq, EMPTY_IDS, range(item.feed))


def failed(item: StepItem, message: str) -> Commit:
    """The commit of a sequence whose step gave no usable logits: it ends here, without a token."""
    return Commit(item.seq, EMPTY_IDS, range(item.feed), finish="error", error=message)


def _ending(item: StepItem, run: list[int], max_len: int) -> tuple[int, FinishReason | None]:
    """How many tokens of the run are emitted, and why no more."""
    stop_ids, params = item.stop_ids, item.params
    length = len(item.tokens)
    emitted = length - item.prompt_len
    for index, token in enumerate(run):
        if token in stop_ids and emitted + index >= params.min_new_tokens:
            return index + 1, "stop"
        if emitted + index + 1 == params.max_new_tokens or length + index + 1 == max_len:
            return index + 1, "length"
    return len(run), None


def _kept(feed: int, path: tuple[int, ...]) -> range | tuple[int, ...]:
    """Rows of the fed tokens and of these nodes; a range where nothing lies between them."""
    if not path or path[-1] == len(path):  # nodes rise from 1: the last one tells whether any was passed over
        return range(feed + len(path))
    return (*range(feed), *(feed - 1 + node for node in path))


def _ids(tokens: list[int]) -> Ids:
    return np.array(tokens, np.int32)
