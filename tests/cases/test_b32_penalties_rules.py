"""B32: penalties hold anew for every candidate prefix, not once per round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import emitted, follow
from draftproof.rules.rehearse import play
from draftproof.types import EMPTY_DRAFT, Draft, SamplingParams, chain

NOISE = PhiloxNoise()
CONST = np.array([1.0, 0.5, 0.0], np.float32)
A, B, C = range(3)


def scripted(tokens):
    return lambda item: chain(tokens[: item.budget])


FOUR_A = scripted([A, A, A, A])


def text(params, propose=FOUR_A, logits=CONST):
    return play(lambda tokens: logits, propose, [A], params, NOISE)


def letters(tokens):
    return "".join("abc"[token] for token in tokens)


def test_case_frequency_penalty():
    tokens, verdicts = text(SamplingParams(frequency_penalty=0.6, max_new_tokens=12))
    assert letters(tokens) == "abacbacbacba"
    assert (verdicts[0].path, verdicts[0].next_token) == ((1,), B)


def test_case_presence_penalty():
    assert letters(text(SamplingParams(presence_penalty=0.6, max_new_tokens=6))[0]) == "abaaaa"


def test_counts_frozen_per_round_are_seen():
    """The fault, played by hand: every row of a round sees the counts of the round's start."""
    tokens = []
    while len(tokens) < 9:
        counts = np.bincount(np.array(tokens, int), minlength=3)
        frozen = int(np.argmax(CONST - 0.6 * counts))
        draft = chain([A] * 4)
        tokens += emitted(draft, follow(draft, lambda node, token=frozen: token))
    assert letters(tokens[:9]) == "aaaaabcb" + letters(tokens[8:9])
    assert letters(tokens[:8]) != letters(text(SamplingParams(frequency_penalty=0.6, max_new_tokens=8))[0])


@st.composite
def scripts(draw):
    """Trees of any shape and tokens, another one each round."""
    shapes = draw(
        st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5), min_size=1, max_size=4)
    )

    def propose(item):
        nodes = shapes[item.round % len(shapes)]
        parents = [min(parent, index) for index, (parent, _) in enumerate(nodes)]
        return Draft(np.array([token for _, token in nodes], np.int32), np.array(parents, np.int32))

    return propose


@settings(max_examples=100, deadline=None)
@given(
    scripts(),
    st.lists(st.integers(-8, 8), min_size=4, max_size=4),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.9]),
        repetition_penalty=st.sampled_from([1.0, 0.8, 1.4]),
        presence_penalty=st.sampled_from([0.0, 0.6, -0.3]),
        frequency_penalty=st.sampled_from([0.0, 0.6, -0.3]),
        max_new_tokens=st.just(12),
        seed=st.integers(0, 99),
    ),
)
def test_kind_any_penalty_any_draft_equals_plain(propose, logits, params):
    row = np.array(logits, np.float32) / 4
    assert text(params, propose, row)[0] == text(params, lambda item: EMPTY_DRAFT, row)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_drafts_of_an_elder_sibling_do_not_penalise_the_younger(temperature):
    draft = Draft(np.array([A, B], np.int32), np.zeros(2, np.int32))
    params = SamplingParams(temperature=temperature, seed=1, frequency_penalty=0.6, max_new_tokens=12)
    assert text(params, lambda item: draft)[0] == text(params, lambda item: EMPTY_DRAFT)[0]
