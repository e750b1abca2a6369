"""B42 in the engine: a seed belongs to its request; batch mates, order and pre-emption change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.models.toy import ConstTarget, ToyOptions
from draftproof.types import SamplingParams

OPTIONS = ToyOptions(min_rows=2, num_pages=200)


def seeded(seed, rule="coupled", length=64):
    return [0], SamplingParams(seed=seed, temperature=1.0, max_new_tokens=length, rule=rule)


def texts(engine_of, play, always, requests, **options):
    engine = engine_of(ConstTarget(np.zeros(8), OPTIONS), always(1, 2, 3), gamma=3, **options)
    return [run.tokens for run in play(engine, requests)]


@pytest.mark.parametrize("rule", ["coupled", "follow", "reject"])
def test_a_seed_gives_the_same_text_in_any_company(rule, engine_of, play, always):
    alone = texts(engine_of, play, always, [seeded(7, rule)])[0]
    mates = [seeded(7, rule), seeded(8, rule), seeded(991, rule), ([0], SamplingParams(max_new_tokens=30))]
    first = texts(engine_of, play, always, mates)
    second = texts(engine_of, play, always, mates[::-1])
    squeezed = texts(engine_of, play, always, mates, pages=40)
    assert first[0] == second[3] == squeezed[0] == alone
    assert first == second[::-1] == squeezed
    assert first[1] != alone
    assert first[3] == [0] * 30  # greedy neighbours never see the noise


def test_positions_are_uniform_and_unrelated(engine_of, play, always):
    requests = [seeded(10**6 + i, length=12) for i in range(1500)]
    runs = texts(engine_of, play, always, requests, max_sequences=100, max_step_rows=600)
    tokens = np.array(runs)  # [1500, 12]
    limit = 24.32  # chi-square, 7 degrees of freedom, 0.1 %
    for position in range(12):
        counts = np.bincount(tokens[:, position], minlength=8)
        assert ((counts - 187.5) ** 2 / 187.5).sum() < limit + 5  # 12 looks
    pairs = np.bincount(tokens[:, :-1:2].ravel() * 8 + tokens[:, 1::2].ravel(), minlength=64)  # apart, so independent
    expected = pairs.sum() / 64
    assert ((pairs - expected) ** 2 / expected).sum() < 103.4  # 63 degrees of freedom, 0.1 %
