"""B04: the residual is divided by its own sum; a token without residual is never the replacement."""

import importlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, reject
from draftproof.rules.law import outcomes
from draftproof.types import chain

rule = importlib.import_module("draftproof.rules.reject")


def law(*weights):
    return np.array([Fraction(w) / sum(map(Fraction, weights)) for w in weights], dtype=object)


def masses_of(target, drafted):
    def run(coins):
        draft = chain([coins.draw(0, drafted)], "iid", drafted[None])
        verdict = reject(draft, lambda node: target, coins)
        return emitted(draft, verdict)[0], verdict.source

    return outcomes(run)


TARGET, DRAFTED = law(5, 3, 2), law(7, 1, 2)


def test_case():
    masses = masses_of(TARGET, DRAFTED)
    assert {token for token, source in masses if source == "correction"} == {1}
    assert [sum(m for (t, _), m in masses.items() if t == i) for i in range(3)] == list(TARGET)


def test_the_fault_is_seen(monkeypatch):
    def softmax(target_law, draft_law):
        weights = np.exp(np.maximum(target_law - draft_law, 0).astype(float))
        return law(*(Fraction(w) for w in weights))

    monkeypatch.setattr(rule, "residual", softmax)
    masses = masses_of(TARGET, DRAFTED)
    wrong = [float(sum(m for (t, _), m in masses.items() if t == i)) for i in range(3)]
    assert wrong == pytest.approx([0.5621, 0.1758, 0.2621], abs=1e-4)
    refused = sum(m for (_, source), m in masses.items() if source == "correction")
    assert float(masses[1, "correction"] / refused) == pytest.approx(0.3792, abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4).flatmap(lambda v: st.tuples(*[st.lists(st.integers(0, 4), min_size=v, max_size=v)] * 2)))
def test_kind_no_residual_no_replacement(pair):
    if not all(map(any, pair)):
        return
    target, drafted = (law(*weights) for weights in pair)
    masses = masses_of(target, drafted)
    refused = sum(m for (_, source), m in masses.items() if source == "correction")
    for token in range(len(target)):
        share = masses.get((token, "correction"), Fraction(0))
        assert share == max(target[token] - drafted[token], 0)
    assert refused == 1 - sum(np.minimum(target, drafted))
