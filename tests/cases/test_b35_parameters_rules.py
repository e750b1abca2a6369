"""B35: every sampling parameter is honoured on verified rows as on plain ones."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import RowError
from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, warp
from draftproof.rules.rehearse import play
from draftproof.types import EMPTY_DRAFT, SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
A, B, C = range(3)
CONST = np.array([1.0, 0.5, 0.0], np.float32)


def text(params, drafted=(A, A, A), logits=CONST):
    return play(lambda tokens: logits, lambda item: chain(list(drafted)[: item.budget - 1]), [C], params, NOISE)


def test_case_a_logit_bias():
    assert text(SamplingParams(logit_bias={A: -100}, max_new_tokens=6))[0] == [B] * 6


def test_case_b_bad_words():
    tokens, verdicts = text(SamplingParams(bad_words=[[A, A]], max_new_tokens=6))
    assert tokens == [A, B, A, B, A, B]
    assert (verdicts[0].path, verdicts[0].next_token) == ((1,), B)


def test_case_b_the_bonus_after_an_accepted_draft():
    _, verdicts = text(SamplingParams(bad_words=[[A, A]], max_new_tokens=6), drafted=[A])
    assert all((v.source, v.path, v.next_token) == ("bonus", (1,), B) for v in verdicts)


def test_case_c_min_p():
    row = np.log([0.5, 0.3, 0.2])
    params = SamplingParams(temperature=1.0, min_p=0.5, seed=4, max_new_tokens=400)
    np.testing.assert_allclose(warp(row, params).law(3), [5 / 8, 3 / 8, 0])
    tokens, _ = text(params, logits=row)
    assert C not in tokens
    assert 200 < tokens.count(A) < 300


SHOWN = {
    "temperature": 5.0,
    "top_k": 1,
    "top_p": 0.01,
    "min_p": 1.0,
    "repetition_penalty": 3.0,
    "presence_penalty": 2.0,
    "frequency_penalty": 2.0,
    "logit_bias": {C: 1.0},
    "bad_words": [[A, A]],
    "min_new_tokens": 5,
}  # values that move the law after an accepted A, and still let A be accepted
NOT_OF_THE_LAW = {
    "max_new_tokens", "stop_ids", "ignore_eos", "stop", "seed", "logprobs", "logprobs_mode", "rule", "max_draft_tokens"
}  # fmt: skip


def test_the_list_is_complete():
    assert SHOWN.keys() | NOT_OF_THE_LAW == {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize("rule", ["follow", "coupled", "reject"])
@pytest.mark.parametrize("name", SHOWN)
def test_each_parameter_changes_what_a_verified_row_says(name, rule):
    """The frequencies of the token after an accepted A move by more than their noise when the parameter is set."""

    def frequencies(params):
        rows, laws = HostLogits(np.tile(CONST, (2, 1))), np.array([[1.0, 0.0, 0.0]], np.float32)
        found = np.zeros(3)
        for seed in range(500):
            asked = SamplingParams(**{"temperature": 1.0, **params}, stop_ids=[B], seed=seed, rule=rule)
            item = StepItem(0, np.array([C], np.int32), 1, 1, 1, 4, asked, seed, frozenset([B]))
            verdict = decide(item, chain([A], "iid", laws), rows, 0, 3, NOISE)
            found[verdict.next_token] += verdict.source == "bonus"
        assert found.sum() > 100
        return found / found.sum()

    assert np.abs(frequencies({name: SHOWN[name]}) - frequencies({})).max() > 0.09


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1.0]),
        top_k=st.sampled_from([None, 2]),
        top_p=st.sampled_from([1.0, 0.8]),
        min_p=st.sampled_from([0.0, 0.3]),
        logit_bias=st.dictionaries(st.integers(0, 3), st.sampled_from([-np.inf, -1.0, 2.0]), max_size=3),
        bad_words=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=3), max_size=4),
        min_new_tokens=st.integers(0, 8),
        stop_ids=st.just([3]),
        seed=st.integers(0, 99),
        max_new_tokens=st.just(10),
    ),
    st.lists(st.integers(0, 3), max_size=5),
)
def test_kind_any_mix_equals_plain(params, drafted):
    logits = np.array([0.3, 0.1, 0.2, 0.4])
    try:
        plain, _ = play(lambda tokens: logits, lambda item: EMPTY_DRAFT, [C], params, NOISE)
    except RowError:
        with pytest.raises(RowError):
            text(params, drafted, logits)
        return
    assert text(params, drafted, logits)[0] == plain
