"""B09: proposal and test are computed from one row, in one precision."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import draw, emitted, reject, warp
from draftproof.rules.law import outcomes
from draftproof.types import SamplingParams, chain

LOGITS = np.array([64.0, 64.2], np.float32)
PARAMS = SamplingParams(temperature=1.0)


def bfloat16(row):
    """Round to nearest even on 8 bits of mantissa."""
    bits = row.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def exact(law):
    fractions = np.array([Fraction(float(x)) for x in law], dtype=object)
    return fractions / fractions.sum()


def law_when(drawn_from, reported, target):
    def run(coins):
        draft = chain([coins.draw(0, drawn_from)], "iid", reported[None])
        return emitted(draft, reject(draft, lambda node: target, coins))[0]

    return outcomes(run)


def test_case():
    law = warp(LOGITS, PARAMS).law(2)
    assert law == pytest.approx([0.450166, 0.549834], abs=1e-6)
    one = exact(law)
    assert law_when(one, one, one) == {0: one[0], 1: one[1]}


def test_the_fault_is_seen():
    rounded = exact(warp(bfloat16(LOGITS), PARAMS).law(2))
    assert list(rounded) == [Fraction(1, 2), Fraction(1, 2)]
    one = exact(warp(LOGITS, PARAMS).law(2))
    assert law_when(rounded, one, one) == {0: Fraction(1, 2), 1: Fraction(1, 2)}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]), st.sampled_from([1.0, 0.7]))
def test_kind_the_stored_row_is_what_the_draw_sees_bit_for_bit(seed, dtype, top_p):
    """The frequencies of `draw` over a fine grid are the stored row itself; no copy in another precision is between."""
    row = np.random.default_rng(seed).standard_normal(6).astype(dtype)
    stored = warp(row, SamplingParams(temperature=1.0, top_p=top_p)).law(6)
    assert stored.dtype == dtype
    assert stored.tobytes() == warp(row, SamplingParams(temperature=1.0, top_p=top_p)).law(6).tobytes()
    edges = np.concatenate([[0], np.cumsum(stored, dtype=np.float64)]) / stored.sum(dtype=np.float64)
    for token in np.flatnonzero(stored):
        inside = edges[token] + (edges[token + 1] - edges[token]) * np.array([1e-6, 0.5, 1 - 1e-6])
        assert [draw(stored, float(u)) for u in inside] == [token] * 3
