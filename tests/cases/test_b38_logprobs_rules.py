"""B38: log-probabilities of accepted, replacement and bonus tokens; raw and processed never mixed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, Nodes, decide, emitted, verdict_logprobs
from draftproof.types import SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
CONST = np.log([1 / 2, 1 / 4, 1 / 8, 1 / 8])


def entries_of(params, drafted, rows):
    item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 8, params, 0)
    draft, logits = chain(drafted), HostLogits(rows)
    verdict = decide(item, draft, logits, 0, rows.shape[1], NOISE)
    tokens = list(emitted(draft, verdict))
    return tokens, verdict_logprobs(Nodes(item, draft, logits, 0), verdict, tokens)


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_case_greedy_with_perfect_drafts(mode):
    params = SamplingParams(logprobs=2, logprobs_mode=mode)
    tokens, entries = entries_of(params, [0, 0, 0], np.tile(CONST, (4, 1)))
    assert tokens == [0] * 4
    for entry in entries:
        assert entry.logprob == pytest.approx(-0.693147, abs=1e-6)
        assert entry.top[0] == (0, pytest.approx(-0.693147, abs=1e-6))
        assert entry.top[1] == (1, pytest.approx(-1.386294, abs=1e-6))


@pytest.mark.parametrize(("mode", "value"), [("raw", -0.693147), ("processed", -0.995880)])
def test_case_temperature_two(mode, value):
    for seed in range(20):
        params = SamplingParams(temperature=2.0, logprobs=2, logprobs_mode=mode, seed=seed)
        tokens, entries = entries_of(params, [0, 0, 0], np.tile(CONST, (4, 1)))
        assert len(entries) == len(tokens)
        assert [e.token for e in entries] == tokens
        assert all(entry.top[0] == (0, pytest.approx(value, abs=1e-6)) for entry in entries)
        assert all(entry.logprob == pytest.approx(value, abs=1e-6) for entry in entries if entry.token == 0)
    assert np.exp(-0.995880) == pytest.approx(0.369398, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from(["follow", "coupled"]),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 9),
)
def test_kind_raw_is_the_log_softmax_of_the_row_of_each_token(seed, temperature, rule, drafted, num_top):
    rows = np.random.default_rng(seed).standard_normal((len(drafted) + 1, 5))
    params = SamplingParams(
        temperature=temperature, rule=rule, seed=seed, logprobs=num_top, frequency_penalty=0.5, logit_bias={1: 2.0}
    )
    tokens, entries = entries_of(params, drafted, rows)
    truth = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    for index, (token, entry) in enumerate(zip(tokens, entries, strict=True)):
        assert entry.token == token
        assert entry.logprob == pytest.approx(truth[index, token], abs=1e-10)
        best = np.argsort(-truth[index], kind="stable")[:num_top]
        assert entry.top == tuple((int(i), pytest.approx(truth[index, i], abs=1e-10)) for i in best)
