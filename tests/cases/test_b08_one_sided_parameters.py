"""B08: sampling parameters hold on every verified row: accepted, replacement and bonus tokens stay in the nucleus."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, emitted, reject, warp
from draftproof.rules.law import outcomes
from draftproof.types import SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
RAW = np.log([0.5, 0.3, 0.2])
DRAFTED = np.array([Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)], dtype=object)


def exact(floats):
    """The Fractions that a float law stands for."""
    return np.array([Fraction(float(x)).limit_denominator(1000) for x in floats], dtype=object)


def masses_of(target):
    def run(coins):
        draft = chain([coins.draw(0, DRAFTED)], "iid", DRAFTED[None])
        verdict = reject(draft, lambda node: target, coins)
        return emitted(draft, verdict)[0], verdict.source

    return outcomes(run)


def test_case():
    target = exact(warp(RAW, SamplingParams(temperature=1.0, top_p=0.7)).law(3))
    assert list(target) == [Fraction(5, 8), Fraction(3, 8), 0]
    masses = masses_of(target)
    assert sum(m for (_, source), m in masses.items() if source == "bonus") == Fraction(5, 8)
    assert {token for token, source in masses if source == "correction"} == {0}
    assert [sum(m for (t, _), m in masses.items() if t == i) for i in range(3)] == list(target)


def test_the_fault_is_seen():
    masses = masses_of(exact(np.exp(RAW)))
    assert sum(m for (t, _), m in masses.items() if t == 2) == Fraction(1, 5)


@pytest.mark.parametrize("rule", ["reject", "follow", "coupled"])
def test_case_all_three_sources(rule):
    """Accepted, replacement and bonus tokens all occur, and none of them is token 2."""
    rows, law, seen = HostLogits(np.tile(RAW, (2, 1))), DRAFTED.astype(float)[None], set()
    for seed in range(200):
        params = SamplingParams(temperature=1.0, top_p=0.7, rule=rule, seed=seed)
        item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 4, params, 0)
        draft = chain([seed % 3], "iid", law)
        verdict = decide(item, draft, rows, 0, 3, NOISE)
        seen.add((verdict.source, len(verdict.path)))
        assert 2 not in emitted(draft, verdict)
    assert seen == {("bonus", 1), ("correction", 0)}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([{"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.4}, {"logit_bias": {1: -np.inf}}, {"bad_words": [[1]]}]),
    st.sampled_from(["reject", "follow", "coupled"]),
)
def test_kind_no_row_emits_outside_its_own_law(seed, limits, rule):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 6))
    params = SamplingParams(temperature=1.5, rule=rule, seed=seed, **limits)
    item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 4, params, 0)
    laws = rng.dirichlet(np.ones(6), 3)
    draft = chain([rng.choice(6, p=law) for law in laws], "iid", laws)
    for token, row in zip(emitted(draft, decide(item, draft, HostLogits(rows), 0, 6, NOISE)), rows, strict=False):
        banned = row.copy()
        if "logit_bias" in limits or "bad_words" in limits:
            banned[1] = -np.inf
        assert warp(banned, params).law(6)[token] > 0
