"""B11: temperature zero and near zero, one meaning in every place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, decide_batch, emitted, warp
from draftproof.types import SamplingParams, StepItem, TargetOutput, chain

NOISE = PhiloxNoise()
TEMPERATURES = [0.0, 1e-6, 1e-38, 1e-40, 1.0]
ROW = np.array([2, 1, 0], np.float32)


def step_item(temperature, seed, rule):
    params = SamplingParams(temperature=temperature, seed=seed, rule=rule)
    return StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 4, params, 0)


@pytest.mark.parametrize("rule", ["auto", "reject", "follow", "coupled"])
@pytest.mark.parametrize("drafted", [0, 2])
@pytest.mark.parametrize("siblings", ["fixed", "iid"])
def test_case(rule, drafted, siblings):
    items = [step_item(t, seed=9, rule=rule) for t in TEMPERATURES]
    laws = np.eye(3, dtype=np.float32)[[drafted]]
    drafts = [chain([drafted], siblings, laws) for _ in items]
    output = TargetOutput(HostLogits(np.tile(ROW, (10, 1))), np.arange(6) * 2)
    verdicts = decide_batch(items, drafts, output, 3, NOISE)
    for verdict in verdicts[:4]:
        assert emitted(drafts[0], verdict) == ((0, 0) if drafted == 0 else (0,))
        assert verdict.source == ("bonus" if drafted == 0 else "correction")
    alone = decide(items[4], drafts[4], HostLogits(np.tile(ROW, (2, 1))), 0, 3, NOISE)
    assert verdicts[4] == alone


def test_a_seed_never_changes_a_greedy_result():
    rows = HostLogits(np.array([[1, 1, 0]], np.float32))
    assert {decide(step_item(0.0, seed, "auto"), chain([]), rows, 0, 3, NOISE).next_token for seed in range(50)} == {0}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-60, 60), min_size=2, max_size=6),
    st.floats(0, 1e-3),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(["reject", "follow", "coupled"]),
)
def test_kind_small_temperatures_are_greedy_up_to_ties(logits, temperature, dtype, rule):
    row = np.array(logits, dtype)
    law = warp(row, SamplingParams(temperature=temperature)).law(len(row))
    assert np.isfinite(law).all()
    assert abs(law.sum() - 1) < 1e-6
    verdict = decide(step_item(temperature, 3, rule), chain([]), HostLogits(row[None]), 0, len(row), NOISE)
    assert row[verdict.next_token] == row.max()
    if temperature == 0:
        assert verdict.next_token == int(row.argmax())
