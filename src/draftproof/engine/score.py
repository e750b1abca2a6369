"""Teacher-forced logits of a token list, through the target's own forward and pages.

The rows come from the same kernels as decoding's, so under invariant numerics they are the very bits that decoding
saw: a first difference between two texts can be shown with the logits behind it.

Does not know: sampling, drafters. Uses sequence numbers the scheduler never gives out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from draftproof.errors import PromptTooLong
from draftproof.models.batch import Rows, flat_batch
from draftproof.protocols import KVCache, Target
from draftproof.types import FloatArray

_SEQ = -1
_CHUNK = 128


def score(target: Target, ledger: KVCache, tokens: Sequence[int]) -> Iterator[FloatArray]:
    """For each i the logits float[V] after tokens[:i+1], in order; each row is valid until the next is asked for.

    Raises PromptTooLong when the free pages can't hold the tokens. Call between steps of the engine.
    """
    ids = np.asarray(tokens, np.int32)
    try:
        for begin in range(0, len(ids), _CHUNK):
            part = ids[begin : begin + _CHUNK]
            slots = ledger.reserve(_SEQ, max(len(part), target.min_rows))
            if slots is None:
                raise PromptTooLong(f"no free pages to score {len(ids)} tokens: raise the KV memory budget")
            output = target.verify(flat_batch([Rows(part, 1, slots)], target.min_rows))
            for index in range(len(part)):
                yield output.logits.row(index)
            ledger.commit(_SEQ, range(len(part)))
    finally:
        ledger.release(_SEQ)


def last_row(target: Target, ledger: KVCache, tokens: Sequence[int]) -> FloatArray:
    """A copy of the logits float[V] after the last token."""
    row: FloatArray | None = None
    for row in score(target, ledger, tokens):  # noqa: B007 - the last one is wanted
        pass
    if row is None:
        raise PromptTooLong("nothing to score: give at least one token")
    return np.array(row)
