"""Engines whose cascade drafts trees, certified: lookups where the chain repeats itself, a head's trees elsewhere."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from setups import OPTIONS, engine

from draftproof.certify import EngineReference, EngineSampler, Plan, run
from draftproof.drafters import make
from draftproof.drafters.cascade import Cascade
from draftproof.drafters.eagle import EagleDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.drafters.tree_shape import DynamicShape, StaticShape
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_head import HashHead
from draftproof.models.toy_medusa import StateTarget
from draftproof.sched.policy import FixedGamma
from draftproof.types import SamplingParams

V = 7
TABLE = 1.5 * np.random.default_rng(8).normal(size=(V, V))
PROMPTS = ((1, 2, 3), (5, 4, 5, 4), (0, 3))
SHAPES = {"static": StaticShape.of_widths((2, 2, 1)), "dynamic": DynamicShape()}


class NearHead(HashHead):
    """A hash head that looks back two rows, so that what it says can be kept."""

    @staticmethod
    @cache
    def _kept(vocab_size, *cells):
        return HashHead(vocab_size, num_pages=1).answer(list(cells))

    def answer(self, cells):
        return self._kept(self.vocab_size, *cells[-2:])


class WrongParents(EagleDrafter):
    """The fault that is to be found: nodes report the law of another parent than the one they were drawn after."""

    def propose(self, items, noise):
        drafts = super().propose(items, noise)
        for draft in drafts:
            if draft.laws is not None:
                draft.law_row[:] = 0
        return drafts


def certified(params, shape, kind=EagleDrafter, **plan):
    target = StateTarget(TABLE, OPTIONS)
    ledger = PageLedger(target.num_pages, target.page_size)
    head = NearHead(V)
    eagle = kind(head, PageLedger(head.num_pages, head.page_size), V, tree=shape)
    plain = EngineSampler(engine(target, make("none"), ledger, FixedGamma(0)))
    # A law of so few tokens repeats itself at once: only what occurred several times is looked up.
    sampler = EngineSampler(engine(target, Cascade([SuffixDrafter(min_match=3), eagle]), ledger, FixedGamma(6)))
    stages = ("oracle", "fit", "joint", "identity", "invariance")
    given = {"tokens": 1000, "text_tokens": 12, "batch": 8, "max_tv": 0.5, "tests": stages, **plan}
    return run(sampler, EngineReference(target, ledger, plain), Plan(PROMPTS, params, **given))


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ("static", {"temperature": 1.0, "rule": "reject"}),
        ("dynamic", {"temperature": 0.7, "rule": "reject", "presence_penalty": 0.6}),
        ("static", {"temperature": 1.0, "rule": "block"}),
        ("dynamic", {"temperature": 1.0, "rule": "coupled"}),
        ("static", {"temperature": 1.0, "rule": "follow"}),
        ("dynamic", {}),
    ],
)
def test_the_law_is_the_targets(params, shape):
    made = certified(SamplingParams(**params), SHAPES[shape])
    assert made["verdict"] == "lossless", made["reasons"]
    assert made["speculation"]["accepted"] > 100


def test_a_law_of_another_parent_is_found():
    made = certified(SamplingParams(temperature=1.0, rule="reject"), SHAPES["static"], WrongParents, tokens=3000)
    assert made["verdict"] == "fault"
