"""decide picks the right theorem, reads rows under the right history, and is path-exact where it says so."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import InvalidParams, RowError
from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, Nodes, RoundCoins, decide, emitted, reject
from draftproof.rules.rehearse import draw_tree, play, rows_of
from draftproof.types import EMPTY_DRAFT, Draft, SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
VOCAB = 6


def step_item(params, tokens=(0, 1), round_=0):
    return StepItem(0, np.array(tokens, np.int32), 1, 1, 1, 8, params, round_, frozenset(params.stop_ids))


def logits_of(tokens):
    """A little language model: logits are a function of the last three tokens."""
    return np.random.default_rng([7, *tokens[-3:]]).standard_normal(VOCAB) * 1.5


def scripted(seed):
    """A drafter that says anything: chains, trees, drawn or not, of changing length."""

    def propose(item):
        rng = np.random.default_rng([seed, len(item.tokens)])
        size = min(int(rng.integers(0, 5)), item.budget)
        parents = [int(rng.integers(0, i + 1)) for i in range(size)]
        return Draft(rng.integers(0, VOCAB, size).astype(np.int32), np.array(parents, np.int32))

    return propose


def drawn(siblings, branching):
    class Coins:
        def __init__(self, item):
            self.numbers = iter(NOISE.uniform(item.seed, "draft", item.round, 64))

        def draw(self, node, weights):
            return int(np.searchsorted(np.cumsum(weights), next(self.numbers) * weights.sum(), side="right"))

    def propose(item):
        def draft_law(tokens):
            weights = np.exp(logits_of((*tokens, 3)))
            return weights / weights.sum()

        return draw_tree(draft_law, tuple(item.tokens.tolist()), branching, siblings, Coins(item))

    return propose


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
    top_k=st.sampled_from([None, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    logit_bias=st.sampled_from([{}, {2: 1.5}]),
    bad_words=st.sampled_from([(), ([1, 2], [4])]),
    min_new_tokens=st.sampled_from([0, 5]),
    stop_ids=st.just((5,)),
    max_new_tokens=st.just(14),
    seed=st.integers(0, 2**64 - 1),
    rule=st.sampled_from(["auto", "follow", "coupled"]),
)


@settings(max_examples=80, deadline=None)
@given(PARAMS, st.integers(0, 99))
def test_path_exact_rules_give_the_tokens_of_plain_decoding(params, script):
    plain, _ = play(logits_of, lambda item: EMPTY_DRAFT, [0, 1], params, NOISE)
    for propose in (scripted(script), drawn("iid", (2, 1)), drawn("distinct", (2, 2))):
        tokens, verdicts = play(logits_of, propose, [0, 1], params, NOISE)
        assert tokens == plain
        assert all(verdict.empty_residuals == 0 for verdict in verdicts)


@settings(max_examples=30, deadline=None)
@given(PARAMS, st.integers(0, 99))
def test_fixed_drafts_under_reject_are_followed(params, script):
    texts = []
    for rule in ("follow", "reject"):
        ruled = SamplingParams(
            **{name: getattr(params, name) for name in params.__slots__ if name != "rule"}, rule=rule
        )
        texts.append(play(logits_of, scripted(script), [0, 1], ruled, NOISE)[0])
    assert texts[0] == texts[1]


def test_reject_is_used_for_drawn_drafts_and_only_above_temperature_zero():
    law = np.eye(VOCAB)[[2]]
    rows = HostLogits(np.log(np.tile([0.1, 0.1, 0.1, 0.1, 0.1, 0.5], (2, 1))))
    params = SamplingParams(temperature=1.0, rule="reject", seed=1)
    # a point mass on 2 is accepted with p(2) = 1/10, judged with numbers keyed by the round
    accepted = [
        bool(decide(step_item(params, round_=r), chain([2], "iid", law), rows, 0, VOCAB, NOISE).path)
        for r in range(400)
    ]
    assert 15 < sum(accepted) < 75
    greedy = SamplingParams(temperature=0.0, rule="reject")
    verdict = decide(step_item(greedy), chain([2], "iid", law), rows, 0, VOCAB, None)
    assert (verdict.path, verdict.next_token) == ((), 5)


@pytest.mark.parametrize("siblings", ["iid", "distinct"])
def test_drawn_trees_under_reject_are_judged_by_the_ratio_rule(siblings):
    params = SamplingParams(temperature=0.8, rule="reject", seed=5)
    for round_ in range(50):
        item = step_item(params, round_=round_)
        draft = drawn(siblings, (2, 2))(item)
        rows = rows_of(logits_of, item, draft)
        nodes = Nodes(item, draft, rows, 0)
        coins = RoundCoins(NOISE, params.seed, round_, len(draft))
        expected = reject(draft, lambda node, nodes=nodes: nodes.warped(node).law(VOCAB), coins)
        assert decide(item, draft, rows, 0, VOCAB, NOISE) == expected


def test_broken_rows_matter_only_when_reached():
    rows = np.zeros((3, VOCAB))
    rows[0, 4], rows[1], rows[2] = 1, np.nan, np.nan
    assert decide(step_item(SamplingParams()), chain([3, 3]), HostLogits(rows), 0, VOCAB, NOISE).next_token == 4
    for temperature in (0.0, 1e-3):
        item = step_item(SamplingParams(temperature=temperature, seed=1))
        with pytest.raises(RowError):
            decide(item, chain([4, 3]), HostLogits(rows), 0, VOCAB, NOISE)


def test_a_seed_that_was_never_resolved_is_refused():
    with pytest.raises(InvalidParams, match="seed"):
        decide(step_item(SamplingParams(temperature=1.0)), EMPTY_DRAFT, HostLogits(np.zeros((1, 6))), 0, 6, NOISE)


def test_nodes_know_their_history_and_position():
    tree = Draft(np.array([10, 11, 12], np.int32), np.array([0, 0, 2], np.int32))
    nodes = Nodes(step_item(SamplingParams(), tokens=(7, 8, 9)), tree, HostLogits(np.zeros((5, 20))), 1)
    assert [nodes.history(node).tokens.tolist() for node in range(4)] == [
        [7, 8, 9],
        [7, 8, 9, 10],
        [7, 8, 9, 11],
        [7, 8, 9, 11, 12],
    ]
    assert nodes.history(3).output.tolist() == [8, 9, 11, 12]
    assert [nodes.position_after(node) for node in range(4)] == [3, 4, 4, 5]


def test_first_row_places_a_sequence_in_the_flat_batch():
    rows = np.eye(VOCAB)
    for first_row in range(VOCAB - 1):
        draft = chain([first_row])
        verdict = decide(step_item(SamplingParams()), draft, HostLogits(rows), first_row, VOCAB, NOISE)
        assert emitted(draft, verdict) == (first_row, first_row + 1)


def test_a_rehearsal_needs_an_end():
    with pytest.raises(ValueError, match="max_new_tokens"):
        play(logits_of, lambda item: EMPTY_DRAFT, [0], SamplingParams(max_new_tokens=None), NOISE)


def test_rows_of_a_draft_are_root_and_nodes():
    item = step_item(SamplingParams())
    rows = rows_of(logits_of, item, chain([2, 3]))
    assert len(rows) == 3
    assert rows.row(2).tolist() == logits_of((0, 1, 2, 3)).tolist()
