"""B32, B34, B35 in the engine: penalties, bias and bans apply to every candidate prefix, drafts or not."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.models.toy import ConstTarget, ToyOptions
from draftproof.types import SamplingParams

A, B, C = 0, 1, 2
OPTIONS = ToyOptions(min_rows=2)
CONST = [1.0, 0.5, 0.0]
START = [3]  # a fourth token that never wins, so that the prompt holds none of a, b, c


def run(engine_of, play, always, params, gamma=4, logits=(*CONST, -50.0)):
    engine = engine_of(ConstTarget(logits, OPTIONS), always(A, A, A, A), gamma=gamma)
    return play(engine, [(START, params)])[0]


@pytest.mark.parametrize("gamma", [0, 1, 2, 4])
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"frequency_penalty": 0.6}, "abacbacbacba"),
        ({"presence_penalty": 0.6}, "abaaaaaaaaaa"),
        ({"logit_bias": {A: -100.0}}, "bbbbbbbbbbbb"),
        ({"bad_words": ((A, A),)}, "abababababab"),
        ({}, "aaaaaaaaaaaa"),
    ],
)
def test_the_cases(params, text, gamma, engine_of, play, always):
    found = run(engine_of, play, always, SamplingParams(max_new_tokens=12, **params), gamma)
    assert "".join("abc"[token] for token in found.tokens) == text


def test_min_p_holds_in_every_source(engine_of, play, always):
    """Law [5/8, 3/8], token 2 never: accepted, correction or bonus."""
    logits = [*np.log([0.5, 0.3, 0.2]), -50.0]
    params = SamplingParams(max_new_tokens=4000, temperature=1.0, min_p=0.5, seed=3)
    options = ToyOptions(min_rows=2, max_len=4200, num_pages=1200)
    engine = engine_of(ConstTarget(logits, options), always(A, A, A))
    tokens = play(engine, [(START, params)], check=False)[0].tokens
    counts = np.bincount(tokens, minlength=4)
    assert counts[2] == counts[3] == 0
    expected = np.array([5 / 8, 3 / 8]) * len(tokens)
    assert ((counts[:2] - expected) ** 2 / expected).sum() < 10.83
