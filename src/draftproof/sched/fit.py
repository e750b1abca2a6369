"""Drafts that are there are cut to what pays in this very step.

A budget is chosen before anybody has drafted: it counts on drafts that may not come, and knows nothing of the width
the step will have. Once the drafts are there both are known, and one token more can cost a row or the preparation of
another width (`models.lanes`).

Invariant: no text depends on it. Only chains that no rule has to account for are cut ("fixed", without laws, of
requests whose draws do not depend on a draft's length), so contract D2 asks nothing of them: a length decides how much
is tested, never what is said. Rows of what is cut were reserved, and are not kept.

Does not know: costs, acceptance (the policy's), what a width is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftproof.sched.policy import DraftPolicy, Offer, StepRows
from draftproof.types import Draft, StepItem, chain


def fitted(
    policy: DraftPolicy, items: Sequence[StepItem], drafts: Sequence[Draft], like: Callable[[int], float]
) -> list[Draft]:
    """The drafts, some of them shorter. like: as of `StepRows`, for steps without prompt rows."""
    found = list(drafts)
    places = [i for i, (item, draft) in enumerate(zip(items, drafts, strict=True)) if may_be_cut(item, draft)]
    if not places:
        return found
    offers = [Offer(items[i].seq, len(drafts[i])) for i in places]
    total = sum(item.feed for item in items) + sum(map(len, drafts))
    mixed = any(item.kv_len < item.prompt_len for item in items)  # its width is new whatever is drafted
    step = StepRows(
        num_sequences=sum(item.decides for item in items),
        rows=total - sum(offer.length for offer in offers),
        like=float if mixed else like,
    )
    for place, length in zip(places, policy.worth(offers, step), strict=True):
        if length < len(drafts[place]):
            found[place] = chain(drafts[place].tokens[:length])
    return found


def may_be_cut(item: StepItem, draft: Draft) -> bool:
    """True for a chain whose length can't change the text."""
    if not len(draft) or draft.siblings != "fixed" or draft.laws is not None or item.params.draws_drafts:
        return False
    return bool((draft.parents == np.arange(len(draft))).all())
