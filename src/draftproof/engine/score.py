"""Teacher-forced logits of a token list, through the target's own forward and pages.

The rows come from the same kernels as decoding's, so under invariant numerics they are the very bits that decoding
saw: a first difference between two texts can be shown with the logits behind it.

Does not know: sampling, drafters. Uses sequence numbers the scheduler never gives out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from draftproof.errors import PromptTooLong
from draftproof.models.batch import Rows, flat_batch
from draftproof.protocols import KVCache, Target
from draftproof.types import FloatArray

_SEQ = -1
_CHUNK = 128


def score(
    target: Target, ledger: KVCache, tokens: Sequence[int], prompt_len: int | None = None
) -> Iterator[FloatArray]:
    """For each i the logits float[V] after tokens[:i+1], in order; each row is valid until the next is asked for.

    prompt_len: how many of the tokens are a prompt's (None: all); under invariant numerics the rows are then the bits
    that decoding this text saw.

    Raises PromptTooLong when the free pages can't hold the tokens. Call between steps of the engine.
    """
    ids = np.asarray(tokens, np.int32)
    prompt_len = len(ids) if prompt_len is None else prompt_len
    try:
        begins = [*range(0, prompt_len, _CHUNK), *range(prompt_len, len(ids), _CHUNK), len(ids)]
        for begin, end in pairwise(begins):
            part = ids[begin:end]
            slots = ledger.reserve(_SEQ, max(len(part), target.min_rows))
            if slots is None:
                raise PromptTooLong(f"no free pages to score {len(ids)} tokens: raise the KV memory budget")
            rows = Rows(part, 1, slots, wide=begin < prompt_len)
            output = target.verify(flat_batch([rows], target.packed_rows))
            for index in range(len(part)):
                yield output.logits.row(index)
            ledger.commit(_SEQ, range(len(part)))
    finally:
        ledger.release(_SEQ)


def last_row(target: Target, ledger: KVCache, tokens: Sequence[int], prompt_len: int | None = None) -> FloatArray:
    """A copy of the logits float[V] after the last token; arguments as of `score`."""
    row: FloatArray | None = None
    for row in score(target, ledger, tokens, prompt_len):  # noqa: B007 - the last one is wanted
        pass
    if row is None:
        raise PromptTooLong("nothing to score: give at least one token")
    return np.array(row)
