"""B42, at the rules: a request's random numbers are its own, and no two purposes share one."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, RoundCoins, decide, decide_batch, draw, emitted
from draftproof.rules.rehearse import play
from draftproof.types import SamplingParams, StepItem, TargetOutput, chain

NOISE = PhiloxNoise()
VOCAB = 8
UNIFORM = np.zeros(VOCAB)
RULES = ["follow", "coupled", "reject"]


def drafted(item):
    """Three candidates from the uniform law, drawn from the request's own numbers for drafts."""
    laws = np.full((3, VOCAB), 1 / VOCAB)
    numbers = NOISE.uniform(item.seed, "draft", item.round, 3)
    return chain([draw(law, u) for law, u in zip(laws, numbers, strict=True)], "iid", laws)


def run(seed, rule, num_tokens=64):
    params = SamplingParams(temperature=1.0, seed=seed, rule=rule, max_new_tokens=num_tokens)
    return play(lambda tokens: UNIFORM, drafted, [0], params, NOISE)[0]


def step_item(seq, seed, rule, temperature, length, round_):
    params = SamplingParams(temperature=temperature, seed=seed, rule=rule)
    return StepItem(seq, np.zeros(length, np.int32), 1, 1, 1, 8, params, round_)


@pytest.mark.parametrize("rule", RULES)
def test_case_one_seed_one_text(rule):
    assert run(7, rule) == run(7, rule)
    assert len({tuple(run(seed, rule)) for seed in (7, 8, 2**62, 2**62 + 1)}) == 4


@pytest.mark.parametrize("rule", RULES)
def test_case_in_a_batch_in_two_orders(rule):
    """One step of seed 7 among seed 8, two other streams and a greedy neighbour, wherever it stands."""
    seeds = [(7, 1.0), (8, 1.0), (91, 1.0), (17, 1.0), (3, 0.0)]
    for round_ in range(10):
        items = [step_item(i, seed, rule, t, 3 + round_, round_) for i, (seed, t) in enumerate(seeds)]
        alone = decide(items[0], drafted(items[0]), HostLogits(np.zeros((4, VOCAB))), 0, VOCAB, NOISE)
        for order in ([0, 1, 2, 3, 4], [3, 4, 0, 2, 1]):
            batch = [items[i] for i in order]
            output = TargetOutput(HostLogits(np.zeros((20, VOCAB))), np.arange(6) * 4)
            verdicts = decide_batch(batch, [drafted(item) for item in batch], output, VOCAB, NOISE)
            assert verdicts[order.index(0)] == alone
            assert verdicts[order.index(4)].next_token == 0


@pytest.mark.parametrize("rule", RULES)
def test_case_uniform_at_each_position_and_neighbours_uncorrelated(rule):
    texts = np.array([run(seed, rule, num_tokens=6) for seed in range(1500)])
    for position in range(6):
        assert scipy.stats.chisquare(np.bincount(texts[:, position], minlength=VOCAB)).pvalue > 1e-4
    for position in range(5):
        pairs = texts[:, position] * VOCAB + texts[:, position + 1]
        assert scipy.stats.chisquare(np.bincount(pairs, minlength=VOCAB**2)).pvalue > 1e-4


def test_draft_and_test_numbers_of_a_round_differ():
    draft, test = (NOISE.uniform(7, purpose, 0, 64) for purpose in ("draft", "test"))
    assert not set(draft.tolist()) & set(test.tolist())
    assert not set(test.tolist()) & set(NOISE.uniform(7, "test", 1, 64).tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 12))
def test_kind_no_two_questions_of_a_round_share_a_number(seed, round_, num_nodes):
    coins = RoundCoins(NOISE, seed, round_, num_nodes)
    law = np.full(2**16, 2.0**-16)
    draws = [coins.draw(node, law) for node in range(num_nodes + 1)]
    assert len(set(draws)) >= num_nodes  # 65 536 tokens: one chance meeting at most


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(RULES), st.data())
def test_kind_any_batch_any_order(seed, rule, data):
    rng = np.random.default_rng(seed)
    size = data.draw(st.integers(1, 6))
    items = [
        step_item(i, int(rng.integers(99)), rule, float(rng.choice([0, 0.5, 1])), int(rng.integers(1, 9)), i)
        for i in range(size)
    ]
    rows = rng.standard_normal((size, 4, VOCAB))
    order = data.draw(st.permutations(range(size)))
    output = TargetOutput(HostLogits(rows[list(order)].reshape(-1, VOCAB)), np.arange(size + 1) * 4)
    verdicts = decide_batch([items[i] for i in order], [drafted(items[i]) for i in order], output, VOCAB, NOISE)
    for i, verdict in zip(order, verdicts, strict=True):
        draft = drafted(items[i])
        alone = decide(items[i], draft, HostLogits(rows[i]), 0, VOCAB, NOISE)
        assert emitted(draft, verdict) == emitted(draft, alone)
        assert verdict == alone
