"""The Medusa drafter against drafts computed from scratch: refusals, gaps, set-backs, states that are not there."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.tree_shape import StaticShape
from draftproof.errors import PairingError, UnknownDrafter
from draftproof.models.toy_medusa import HashHeads
from draftproof.noise import PhiloxNoise
from draftproof.rules.coins import draw
from draftproof.types import Commit, SamplingParams, StepItem

V, MAPPING = 23, np.array([0, 2, 3, 5, 7, 8, 11, 13, 17, 19, 22], np.int32)
NOISE, STOP = PhiloxNoise(), 19
PARAMS = (
    {},
    {"temperature": 0.8, "rule": "coupled", "top_p": 0.9},
    {"temperature": 1.0, "rule": "reject"},
    {"temperature": 1.0, "rule": "block", "presence_penalty": 1.5},
    {"temperature": 1.0, "rule": "follow"},
    {"repetition_penalty": 1.3, "logit_bias": {5: 2.0}},
)


def state_after(tokens):
    """float32[3]: what the target's last hidden state would be after these tokens."""
    return np.random.default_rng([7, *tokens]).standard_normal(3).astype(np.float32)


def from_scratch(item, min_path):
    """The chain, from the state after the last token but one."""
    rows = HashHeads(len(MAPPING)).answer(state_after(item.tokens[:-1].tolist()))
    choice = Choice(item, NOISE, DraftVocab(len(MAPPING), V, MAPPING), min(item.budget, len(rows)), min_path=min_path)
    for row in rows:
        if not choice.ended:
            choice.extend(row)
    return choice.draft()


class Life:
    """One sequence: what the engine would do with it."""

    def __init__(self, seq, rng, params):
        self.seq, self.rng, self.params, self.round = seq, rng, params, 0
        self.tokens = rng.integers(0, V, int(rng.integers(2, 30))).tolist()
        self.prompt_len = len(self.tokens)

    def fed(self, start, end):
        """The commit of a chunk: rows start..end - 1, nothing decided."""
        return Commit(
            self.seq, np.zeros(0, np.int32), range(end - start), start=start, features=self._states(start, end)
        )

    def feed(self, drafter, chunk):
        for start in range(0, len(self.tokens) - 1, chunk):
            drafter.observe([self.fed(start, min(start + chunk, len(self.tokens) - 1))])

    def item(self, budget):
        ids = np.array(self.tokens, np.int32)
        ids.setflags(write=False)
        return StepItem(self.seq, ids, self.prompt_len, 1, 1, budget, self.params, self.round, frozenset({STOP}))

    def commit(self, draft):
        accepted, start = int(self.rng.integers(0, len(draft) + 1)), len(self.tokens) - 1
        emitted = [*draft.tokens[:accepted].tolist(), int(self.rng.integers(0, V))]
        self.tokens += emitted
        self.round += 1
        states = self._states(start, start + accepted + 1)
        return Commit(self.seq, np.array(emitted, np.int32), range(accepted + 1), start=start, features=states)

    def _states(self, start, end):
        return np.array([state_after(self.tokens[: position + 1]) for position in range(start, end)], np.float32)


def same(draft, other):
    laws = (draft.laws is None) == (other.laws is None) and (
        draft.laws is None or np.array_equal(draft.laws, other.laws)
    )
    return laws and draft.tokens.tolist() == other.tokens.tolist() and draft.siblings == other.siblings


def drafter_of(**options):
    heads = HashHeads(len(MAPPING))
    return MedusaDrafter(heads, V, mapping=MAPPING, **options), heads


@pytest.mark.parametrize("min_path", [0.0, 0.3])
def test_drafts_are_those_of_the_last_state(min_path):
    drafted, ended = 0, 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        drafter, _ = drafter_of(min_path=min_path)
        lives = [Life(seq, rng, SamplingParams(seed=seq, **PARAMS[(seed + seq) % len(PARAMS)])) for seq in range(4)]
        for life in lives:
            life.feed(drafter, 7)
        for _ in range(10):
            items = [life.item(int(rng.integers(0, 7))) for life in lives]
            drafts = drafter.propose(items, NOISE)
            if rng.random() < 0.2:  # a step that broke off is proposed again
                assert all(map(same, drafts, drafter.propose(items, NOISE)))
            for draft, item in zip(drafts, items, strict=True):
                assert len(draft) == 0 if item.budget == 0 else same(draft, from_scratch(item, min_path))
                assert len(draft) <= min(item.budget, 4)
                drafted += len(draft)
                ended += len(draft) < min(item.budget, 4)
            drafter.observe([life.commit(draft) for life, draft in zip(lives, drafts, strict=True)])
            if rng.random() < 0.2:  # set back: the target writes its rows again
                life = lives[0]
                drafter.observe([life.fed(0, 1)])
                assert len(drafter.propose([life.item(3)], NOISE)[0]) == 0
                life.feed(drafter, 6)
    assert drafted > 300
    assert ended > 20


def test_laws_are_those_drawn_from():
    """D1: each token is the draw from the row that is reported, by the number of its node."""
    life = Life(0, np.random.default_rng(3), SamplingParams(seed=5, temperature=1.0, rule="reject"))
    drafter, _ = drafter_of(min_path=0.0)
    seen = 0
    for turn in range(30):
        life.tokens, life.round = [1, turn % V, 2], turn
        life.feed(drafter, 10)
        draft = drafter.propose([life.item(4)], NOISE)[0]
        numbers = NOISE.uniform(5, "draft", turn, 4)
        assert draft.siblings == "iid"
        assert draft.law_row.tolist() == list(range(len(draft)))
        for node, token in enumerate(draft.tokens.tolist()):
            assert token == draw(draft.laws[node], numbers[node])
            assert draft.laws[node].sum() == pytest.approx(1.0)
            assert set(np.flatnonzero(draft.laws[node])) <= set(MAPPING.tolist())
            seen += 1
    assert seen > 90


def test_without_the_state_there_is_no_draft():
    drafter, heads = drafter_of(min_path=0.0)
    life = Life(0, np.random.default_rng(0), SamplingParams(seed=1))
    last = len(life.tokens) - 1
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0
    drafter.observe([life.fed(0, last - 1)])  # one row short
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0
    drafter.observe([Commit(0, np.zeros(0, np.int32), range(1))])  # the last row came without its state
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0
    assert heads.num_rows == 0
    drafter.observe([life.fed(last - 1, last)])
    assert same(drafter.propose([life.item(4)], NOISE)[0], from_scratch(life.item(4), 0.0))
    drafter.observe(
        [Commit(0, np.array([3], np.int32), range(1), "stop", start=last, features=life._states(last, last + 1))]
    )
    drafter.forget(0)
    assert not drafter._states
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0


def test_one_forward_for_all_sequences_that_may_draft():
    drafter, heads = drafter_of()
    lives = [Life(seq, np.random.default_rng(seq), SamplingParams(seed=seq)) for seq in range(5)]
    for life in lives:
        life.feed(drafter, 100)
    drafter.propose([life.item(budget) for life, budget in zip(lives, (3, 0, 1, 0, 2), strict=True)], NOISE)
    assert heads.num_rows == 3


PLACES = ((1,), (2,), (1, 1), (3,), (1, 2), (2, 1), (1, 1, 1))
PARENTS = (0, 0, 1, 0, 1, 2, 3)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "rule": "follow"}])
def test_a_fixed_tree_holds_the_best_tokens_of_each_head(params):
    drafter, heads = drafter_of(tree=StaticShape(PLACES))
    life = Life(0, np.random.default_rng(4), SamplingParams(seed=1, **params))
    for _ in range(20):
        life.feed(drafter, 100)
        ranks = np.argsort(-heads.answer(state_after(life.tokens[:-1])), axis=1)  # [K, Vd]
        expected = [int(MAPPING[ranks[len(place) - 1, place[-1] - 1]]) for place in PLACES]
        draft = drafter.propose([life.item(7)], NOISE)[0]
        if STOP not in expected:
            assert draft.tokens.tolist() == expected
            assert draft.parents.tolist() == list(PARENTS)
        assert draft.siblings == "fixed"
        assert drafter.propose([life.item(3)], NOISE)[0].tokens.tolist() == draft.tokens[:3].tolist()
        life.tokens.append(int(life.rng.integers(0, V)))


def test_drawn_siblings_are_distinct_draws_from_the_law_of_their_head():
    drafter, heads = drafter_of(tree=StaticShape(PLACES))
    life = Life(0, np.random.default_rng(4), SamplingParams(seed=1, temperature=1.0, rule="reject"))
    seen = 0
    for _ in range(20):
        life.feed(drafter, 100)
        logits = heads.answer(state_after(life.tokens[:-1]))
        laws = np.zeros((4, V))
        laws[:, MAPPING] = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        draft = drafter.propose([life.item(7)], NOISE)[0]
        assert draft.siblings == "distinct"
        depths = [0]
        for node, (token, parent) in enumerate(zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True)):
            depths.append(depths[parent] + 1)
            np.testing.assert_allclose(draft.laws[draft.law_row[node]], laws[depths[-1] - 1], atol=1e-12)
            elders = draft.tokens[:node][draft.parents[:node] == parent]
            assert token not in elders
            seen += len(elders) > 0
        life.round += 1
        life.tokens.append(int(life.rng.integers(0, V)))
    assert seen > 30


def test_under_block_there_are_chains():
    drafter, _ = drafter_of(tree=StaticShape(PLACES), min_path=0.0)
    life = Life(0, np.random.default_rng(4), SamplingParams(seed=1, temperature=1.0, rule="block"))
    life.feed(drafter, 100)
    draft = drafter.propose([life.item(4)], NOISE)[0]
    assert same(draft, from_scratch(life.item(4), 0.0))
    assert draft.parents.tolist() == list(range(len(draft)))


def test_what_does_not_fit_is_refused():
    with pytest.raises(UnknownDrafter, match="min_path in"):
        drafter_of(min_path=1.0)
    with pytest.raises(PairingError, match="mapping"):
        MedusaDrafter(HashHeads(4), V, mapping=MAPPING)
