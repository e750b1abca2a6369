"""Items for drafters, without an engine."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.noise import PhiloxNoise
from draftproof.types import SamplingParams, StepItem


@pytest.fixture(scope="session")
def item():
    """item(tokens, budget, seq, stop_ids, **params): one greedy sequence in one step, unless params say otherwise."""

    def make(tokens, budget=3, seq=0, stop_ids=frozenset(), round_=0, **params) -> StepItem:
        ids = np.array(tokens, np.int32)
        ids.setflags(write=False)
        params = SamplingParams(**{"seed": 1} | params)
        return StepItem(seq, ids, len(ids), 1, 1, budget, params, round_, frozenset(stop_ids))

    return make


@pytest.fixture(scope="session")
def drafted(item):
    """drafted(drafter, tokens, ...): the draft's tokens as a list."""

    def propose(drafter, tokens, budget=3, seq=0, stop_ids=frozenset()) -> list[int]:
        return drafter.propose([item(tokens, budget, seq, stop_ids)], PhiloxNoise())[0].tokens.tolist()

    return propose
