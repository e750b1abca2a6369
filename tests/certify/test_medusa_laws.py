"""Engines that draft with Medusa heads, certified: a Markov chain whose heads say the exact law of each place ahead."""

from __future__ import annotations

import numpy as np
import pytest
from setups import OPTIONS, engine

from draftproof.certify import EngineReference, EngineSampler, Plan, run
from draftproof.drafters import make
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.tree_shape import DynamicShape, StaticShape
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_medusa import ChainHeads, StateTarget
from draftproof.sched.policy import FixedGamma
from draftproof.types import SamplingParams

V = 7
TABLE = 1.5 * np.random.default_rng(8).normal(size=(V, V))
PROMPTS = ((1, 2, 3), (5, 4, 5, 4), (0, 3))


class WrongLaws(MedusaDrafter):
    """The fault that is to be found: the law reported is not the one drawn from (it is head 0's at every place)."""

    def _draft(self, item, logits, noise):
        draft = super()._draft(item, logits, noise)
        if draft.laws is not None:
            draft.law_row[:] = 0
        return draft


def certified(params, kind=MedusaDrafter, gamma=3, tree=None, **plan):
    target = StateTarget(TABLE, OPTIONS)
    ledger = PageLedger(target.num_pages, target.page_size)
    drafter = kind(ChainHeads(TABLE), V, min_path=0.0, tree=tree)
    plain = EngineSampler(engine(target, make("none"), ledger, FixedGamma(0)))
    sampler = EngineSampler(engine(target, drafter, ledger, FixedGamma(gamma)))
    given = {"tokens": 2500, "text_tokens": 20, "batch": 8, "max_tv": 0.3, **plan}
    return run(sampler, EngineReference(target, ledger, plain), Plan(PROMPTS, params, **given))


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0, "rule": "reject"},
        {"temperature": 0.7, "rule": "reject", "presence_penalty": 0.6},
        {"temperature": 1.0, "rule": "block"},
        {"temperature": 1.0, "rule": "coupled"},
        {"temperature": 0.9, "rule": "coupled", "top_k": 4},
        {"temperature": 1.0, "rule": "follow"},
        {},
    ],
)
def test_the_law_is_the_targets(params):
    made = certified(SamplingParams(**params))
    assert made["verdict"] == "lossless", made["reasons"]
    assert made["speculation"]["accepted"] > 100


def test_a_law_that_was_not_drawn_from_is_found():
    made = certified(SamplingParams(temperature=1.0, rule="reject"), WrongLaws, tokens=6000)
    assert made["verdict"] == "fault"


@pytest.mark.parametrize("tree", [StaticShape.of_widths((2, 2, 1)), DynamicShape()], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0, "rule": "reject"},
        {"temperature": 0.7, "rule": "reject", "presence_penalty": 0.6},
        {"temperature": 1.0, "rule": "coupled"},
        {"temperature": 1.0, "rule": "follow"},
        {},
    ],
)
def test_trees_have_the_targets_law(params, tree):
    made = certified(SamplingParams(**params), gamma=6, tree=tree)
    assert made["verdict"] == "lossless", made["reasons"]
    assert made["speculation"]["accepted"] > 100
