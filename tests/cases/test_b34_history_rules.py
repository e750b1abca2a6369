"""B34: what processors know of the history holds no rejected token and no token twice."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, Nodes, decide, emitted
from draftproof.types import SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
A, B, C = range(3)
PARAMS = SamplingParams(presence_penalty=0.1, frequency_penalty=0.01)


def step_item(output, params=PARAMS):
    tokens = np.array([C, *output], np.int32)  # a prompt of one token
    return StepItem(0, tokens, 1, 1, 1, 8, params, 0)


def counts_after(output):
    nodes = Nodes(step_item(output), chain([]), HostLogits(np.zeros((1, 3))), 0)
    tokens, counts = np.unique(nodes.history(0).output, return_counts=True)
    return dict(zip(tokens.tolist(), counts.tolist(), strict=True))


def test_case():
    rows = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9], [0, 0, 9]], np.float64)
    draft = chain([A, C, C])
    verdict = decide(step_item([]), draft, HostLogits(rows), 0, 3, NOISE)
    assert emitted(draft, verdict) == (A, B)
    assert counts_after(emitted(draft, verdict)) == {A: 1, B: 1}


def test_case_the_next_row_is_penalised_for_what_was_kept_only():
    nodes = Nodes(step_item([A, B]), chain([]), HostLogits(np.zeros((1, 3))), 0)
    np.testing.assert_allclose(nodes.processed(0), [-0.11, -0.11, 0])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=5),
    st.lists(st.integers(0, 2), max_size=5),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["follow", "coupled", "reject"]),
)
def test_kind_deciding_changes_nothing_and_asking_twice_gives_the_same(output, drafted, seed, rule):
    params = SamplingParams(temperature=1.0, seed=seed, rule=rule, presence_penalty=0.3, repetition_penalty=1.2)
    rows = np.random.default_rng(seed).standard_normal((len(drafted) + 1, 3))
    before, laws = rows.copy(), np.full((len(drafted), 3), 1 / 3)
    item, draft = step_item(output, params), chain(drafted, "iid", laws)
    tokens_before = item.tokens.copy()
    nodes = Nodes(item, draft, HostLogits(rows), 0)
    # in any order, and with a verdict between: a row's processed logits are those of its own history
    once = [nodes.processed(node).tolist() for node in range(len(rows))]
    verdict = decide(item, draft, HostLogits(rows), 0, 3, NOISE)
    again = [nodes.processed(node).tolist() for node in reversed(range(len(rows)))][::-1]
    assert once == again
    assert decide(item, draft, HostLogits(rows), 0, 3, NOISE) == verdict
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(item.tokens, tokens_before)
    for node in range(len(rows)):
        plain = Nodes(step_item([*output, *drafted[:node]], params), chain([]), HostLogits(rows[node : node + 1]), 0)
        assert plain.processed(0).tolist() == once[node]
