"""The EAGLE drafter against a chain computed from scratch: lives with refusals, gaps, chunks, pre-emption, lost pages.

The toy head reads everything back from its pages, so nothing that is cached wrongly goes unseen.
"""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.eagle import EagleDrafter
from draftproof.errors import UnknownDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_head import HashHead, cell
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, StepItem

V, MAPPING = 23, np.array([0, 2, 3, 5, 7, 8, 11, 13, 17, 19, 22], np.int32)
NOISE = PhiloxNoise()
PARAMS = (
    {},
    {"temperature": 0.8, "rule": "coupled", "top_p": 0.9},
    {"temperature": 1.0, "rule": "reject"},
    {"temperature": 1.0, "rule": "follow"},
    {"repetition_penalty": 1.3, "logit_bias": {5: 2.0}},
)


def state_after(tokens, position):
    """float32[3]: what the target's hidden states would be after tokens[: position + 1]."""
    return np.random.default_rng([7, *tokens[: position + 1]]).standard_normal(3).astype(np.float32)


def from_scratch(item, min_path):
    """The chain without caches."""
    tokens = item.tokens.tolist()
    held = [cell(tokens[t + 1], state_after(tokens, t), False) for t in range(len(tokens) - 1)]
    choice = Choice(item, NOISE, DraftVocab(len(MAPPING), V, MAPPING), item.budget, min_path=min_path)
    while True:
        logits, own = HashHead(len(MAPPING)).answer(held)
        choice.extend(logits)
        if choice.ended:
            return choice.draft()
        held.append(cell(choice.tokens[-1], own, True))


class Life:
    """One sequence: what the engine would do with it, pre-emption included."""

    def __init__(self, seq, rng, params):
        self.seq, self.rng, self.params, self.round = seq, rng, params, 0
        self.tokens = rng.integers(0, V, int(rng.integers(2, 30))).tolist()
        self.prompt_len = len(self.tokens)

    def feed(self, drafter, chunk):
        """The prompt (or everything, after pre-emption) but the last token, in pieces."""
        for start in range(0, len(self.tokens) - 1, chunk):
            drafter.observe([self.fed(start, min(start + chunk, len(self.tokens) - 1))])

    def fed(self, start, end):
        states = np.array([state_after(self.tokens, t) for t in range(start, end)], np.float32)
        return Commit(self.seq, np.zeros(0, np.int32), range(end - start), start=start, features=states)

    def item(self, budget):
        ids = np.array(self.tokens, np.int32)
        ids.setflags(write=False)
        return StepItem(self.seq, ids, self.prompt_len, 1, 1, budget, self.params, self.round, frozenset({19}))

    def commit(self, draft):
        accepted = int(self.rng.integers(0, len(draft) + 1))
        start = len(self.tokens) - 1
        emitted = [*draft.tokens[:accepted].tolist(), int(self.rng.integers(0, V))]
        self.tokens += emitted
        self.round += 1
        states = np.array([state_after(self.tokens, start + i) for i in range(accepted + 1)], np.float32)
        return Commit(self.seq, np.array(emitted, np.int32), range(accepted + 1), start=start, features=states)


def same(draft, other):
    laws = (draft.laws is None) == (other.laws is None) and (
        draft.laws is None or np.array_equal(draft.laws, other.laws)
    )
    return laws and draft.tokens.tolist() == other.tokens.tolist() and draft.siblings == other.siblings


def drafter_of(head, **options):
    ledger = PageLedger(head.num_pages, head.page_size)
    return EagleDrafter(head, ledger, V, mapping=MAPPING, **options), ledger


@pytest.mark.parametrize("min_path", [0.0, 0.2])
def test_drafts_are_those_of_a_fresh_start(min_path):
    drafted = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        drafter, ledger = drafter_of(HashHead(len(MAPPING)), min_path=min_path, chunk=5)
        lives = [Life(seq, rng, SamplingParams(seed=seq, **PARAMS[(seed + seq) % len(PARAMS)])) for seq in range(4)]
        for life in lives:
            life.feed(drafter, 7)
        for _ in range(10):
            items = [life.item(int(rng.integers(0, 6))) for life in lives]
            drafts = drafter.propose(items, NOISE)
            if rng.random() < 0.2:  # a step that broke off is proposed again
                assert all(map(same, drafts, drafter.propose(items, NOISE)))
            for draft, item in zip(drafts, items, strict=True):
                assert len(draft) == 0 if item.budget == 0 else same(draft, from_scratch(item, min_path))
                drafted += len(draft)
            drafter.observe([life.commit(draft) for life, draft in zip(lives, drafts, strict=True)])
            if rng.random() < 0.2:  # pre-empted: the target writes its rows again
                lives[0].feed(drafter, 6)
        for life in lives:
            drafter.forget(life.seq)
        assert ledger.free_pages == ledger.num_pages
    assert drafted > 300


def test_without_the_states_there_is_no_draft_until_the_target_feeds_from_the_start():
    rng = np.random.default_rng(0)
    drafter, _ = drafter_of(HashHead(len(MAPPING)), min_path=0.0)
    life = Life(0, rng, SamplingParams(seed=1))
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0
    drafter.observe([life.fed(2, len(life.tokens) - 1)])  # a gap before them
    assert len(drafter.propose([life.item(4)], NOISE)[0]) == 0
    life.feed(drafter, 100)
    assert same(drafter.propose([life.item(4)], NOISE)[0], from_scratch(life.item(4), 0.0))


def test_taken_pages_cost_drafts_and_nothing_else():
    rng = np.random.default_rng(1)
    drafter, ledger = drafter_of(HashHead(len(MAPPING), num_pages=12), min_path=0.0)
    lives = [Life(seq, rng, SamplingParams(seed=seq)) for seq in range(6)]
    seen = {True: 0, False: 0}
    for life in lives:
        life.feed(drafter, 100)
    for turn in range(60):
        life = lives[turn % 6]
        item = life.item(3)
        draft = drafter.propose([item], NOISE)[0]
        seen[bool(len(draft))] += 1
        assert not len(draft) or same(draft, from_scratch(item, 0.0))
        drafter.observe([life.commit(draft)])
        if not len(draft):
            life.feed(drafter, 100)
    assert min(seen.values()) > 5
    for life in lives:
        drafter.forget(life.seq)
    assert ledger.free_pages == ledger.num_pages


def test_a_draft_ends_where_its_whole_chain_is_unlikely():
    item = StepItem(0, np.array([1, 2], np.int32), 2, 1, 1, 9, SamplingParams(seed=1), 0)
    row = np.full(len(MAPPING), -1e9, np.float32)
    row[[3, 4]] = np.log([0.6, 0.4])
    choice = Choice(item, NOISE, DraftVocab(len(MAPPING), V, MAPPING), 9, min_path=0.2)
    while not choice.ended:
        choice.extend(row)
    assert choice.tokens == [5, 5, 5, 5]  # 0.6, 0.36, 0.216 go on, 0.13 is the last
    row[[3, 4, 6, 8]] = np.log([0.04, 0.03, 0.02, 0.01])  # of a law that is spread, the best is below a quarter
    row[[0, 1, 2, 5, 7, 9, 10]] = np.log(0.9 / 7)
    choice = Choice(item, NOISE, DraftVocab(len(MAPPING), V, MAPPING), 9, min_path=0.9)
    choice.extend(row)
    assert choice.ended
    assert not choice.tokens


@pytest.mark.parametrize("params", [*PARAMS[:4], {"temperature": 1.0, "top_k": 4, "rule": "coupled"}])
def test_a_law_over_the_draft_ids_is_the_dense_one(params, monkeypatch):
    """The short way (laws over the head's own ids) gives the tokens and laws of the long way."""
    rng = np.random.default_rng(3)
    for seed in range(40):
        row = (3 * rng.standard_normal(len(MAPPING))).astype(np.float32)
        item = StepItem(0, np.array([1, 2], np.int32), 2, 1, 1, 1, SamplingParams(seed=seed, **params), 0)
        found = []
        for short in (True, False):
            choice = Choice(item, NOISE, DraftVocab(len(MAPPING), V, MAPPING), 1)
            if not short:
                choice._ids = None
            choice.extend(row)
            found.append(choice.draft())
        assert found[0].tokens.tolist() == found[1].tokens.tolist()
        if found[0].laws is not None:
            np.testing.assert_allclose(found[0].laws, found[1].laws, rtol=1e-6)


def test_an_option_out_of_range_is_refused():
    with pytest.raises(UnknownDrafter, match="min_path in"):
        drafter_of(HashHead(len(MAPPING)), min_path=1.0)
