"""Log-probabilities against float64 softmax, by row of the token."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import HostLogits, Nodes, decide, emitted, token_logprobs, verdict_logprobs, warp
from draftproof.types import SamplingParams, StepItem, chain

VOCAB = 8


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_raw_equals_log_softmax(seed, num_top):
    row = np.random.default_rng(seed).standard_normal(VOCAB).astype(np.float32)
    entry = token_logprobs(warp(row, SamplingParams(temperature=1.0)), 3, num_top)
    truth = log_softmax(row)
    assert abs(entry.logprob - truth[3]) < 1e-6
    assert [token for token, _ in entry.top] == np.argsort(-row, kind="stable")[:num_top].tolist()
    np.testing.assert_allclose([logprob for _, logprob in entry.top], np.sort(truth)[::-1][:num_top], atol=1e-6)


def test_entries_are_those_of_the_row_that_decided_each_token():
    rows = np.random.default_rng(1).standard_normal((3, VOCAB))
    best = rows.argmax(axis=1).tolist()
    item = StepItem(0, np.zeros(2, np.int32), 1, 1, 1, 4, SamplingParams(logprobs=1), 0)
    draft = chain(best[:2])
    nodes = Nodes(item, draft, HostLogits(rows), 0)
    verdict = decide(item, draft, HostLogits(rows), 0, VOCAB, None)
    tokens = list(emitted(draft, verdict))
    assert tokens == best
    entries = verdict_logprobs(nodes, verdict, tokens)
    np.testing.assert_allclose([e.logprob for e in entries], [log_softmax(r).max() for r in rows], atol=1e-12)
    assert [e.top[0][0] for e in entries] == best
    assert len(verdict_logprobs(nodes, verdict, tokens[:1])) == 1  # cut at an ending


def test_none_asked_none_given():
    item = StepItem(0, np.zeros(2, np.int32), 1, 1, 1, 4, SamplingParams(), 0)
    nodes = Nodes(item, chain([]), HostLogits(np.zeros((1, 3))), 0)
    assert verdict_logprobs(nodes, decide(item, chain([]), HostLogits(np.zeros((1, 3))), 0, 3, None), [0]) == ()


def test_processed_reports_only_tokens_of_the_law():
    row = np.log(np.array([0.5, 0.3, 0.2]))
    entry = token_logprobs(warp(row, SamplingParams(temperature=1.0, top_k=2)), 1, 5)
    assert [token for token, _ in entry.top] == [0, 1]
    assert abs(entry.logprob - np.log(3 / 8)) < 1e-12


def test_processed_at_temperature_zero_keeps_penalties_and_drops_the_one_hot():
    row = np.log(np.array([[0.5, 0.3, 0.2]]))
    params = SamplingParams(logprobs=2, logprobs_mode="processed", logit_bias={0: -np.inf}, top_k=1)
    item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 4, params, 0)
    nodes = Nodes(item, chain([]), HostLogits(row), 0)
    verdict = decide(item, chain([]), HostLogits(row), 0, 3, None)
    (entry,) = verdict_logprobs(nodes, verdict, [verdict.next_token])
    assert entry.token == 1
    np.testing.assert_allclose([x for _, x in entry.top], np.log([0.6, 0.4]), atol=1e-12)
