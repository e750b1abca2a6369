"""Items and their drafts -> one flat batch for the target.

Rows of one sequence: the fed tokens, then its draft nodes, then padding up to the target's `packed_rows`, never kept.
Prompt rows are marked, since a target may compute them by another kernel than later rows.

Does not know: laws, rules, what a token means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.models.batch import Rows, flat_batch
from draftproof.types import Draft, Slots, StepBatch, StepItem


def _rows(item: StepItem, draft: Draft, slots: Slots) -> Rows:
    kv_len = item.kv_len
    fed = item.tokens[kv_len : kv_len + item.feed]
    wide = kv_len < item.prompt_len  # the scheduler never feeds prompt rows and later ones in one step
    if not len(draft):
        return Rows(fed, item.feed, slots, None, item.decides, wide)
    return Rows(np.concatenate([fed, draft.tokens]), item.feed, slots, draft.parents, item.decides, wide)


def pack(items: Sequence[StepItem], drafts: Sequence[Draft], slots: Sequence[Slots], min_rows: int) -> StepBatch:
    """One flat forward: logits are asked for of the root row and each node of every sequence that decides."""
    return flat_batch([_rows(*each) for each in zip(items, drafts, slots, strict=True)], min_rows)
