"""D1 to D5 for every drafter, over random lives: ragged budgets, refusals anywhere, mixed parameters."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.types import SamplingParams

V = 9
STOP = 8


def check_legal(draft, item):
    """What any draft must be, whoever made it."""
    assert len(draft) <= item.budget
    assert draft.tokens.dtype == np.int32
    assert draft.parents.dtype == np.int32
    assert len(draft.parents) == len(draft)
    assert ((draft.tokens >= 0) & (draft.tokens < V)).all()
    assert all(0 <= parent <= index for index, parent in enumerate(draft.parents.tolist()))
    if draft.siblings == "fixed":
        assert draft.laws is None
        edges = list(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True))
        assert len(set(edges)) == len(edges), "the same candidate twice"
        return
    assert len(draft.law_row) == len(draft)
    for token, row in zip(draft.tokens.tolist(), draft.law_row.tolist(), strict=True):
        law = draft.laws[row]
        assert law.shape == (V,)
        assert law[token] > 0
        assert abs(law.sum() - 1) < 1e-12


def test_every_draft_is_legal(make_drafter, lives, noise, budgets):
    drafter = make_drafter()
    assert isinstance(drafter.name, str)
    assert drafter.wants == frozenset()
    for seed in range(4):
        batch = lives(seed)
        for _ in range(8):
            items = [life.item(b) for life, b in zip(batch, budgets(batch[0].rng, 4), strict=True)]
            drafts = drafter.propose(items, noise)
            assert len(drafts) == len(items)
            for draft, item in zip(drafts, items, strict=True):
                check_legal(draft, item)
            drafter.observe([life.commit(draft) for life, draft in zip(batch, drafts, strict=True)])
        for life in batch:
            drafter.forget(life.seq)


@pytest.mark.parametrize("observes", [True, False])
def test_d3_a_life_long_drafter_drafts_as_a_fresh_one(make_drafter, lives, noise, budgets, same, observes):
    """Whatever was drafted, refused, accepted or skipped before: state is a cache, never an input."""
    for seed in range(5):
        drafter, batch = make_drafter(), lives(seed)
        keep = 1.0 if seed == 0 else 0.7  # one life of full acceptances
        for _ in range(9):
            items = [life.item(b) for life, b in zip(batch, budgets(batch[0].rng, 4), strict=True)]
            drafts = drafter.propose(items, noise)
            for draft, item in zip(drafts, items, strict=True):
                assert same(draft, make_drafter().propose([item], noise)[0])
            commits = [life.commit(draft, keep) for life, draft in zip(batch, drafts, strict=True)]
            if observes:
                drafter.observe(commits)


def test_d5_same_items_and_noise_same_drafts(make_drafter, lives, noise, same):
    """Twice by one drafter, by another one, in another order, and alone."""
    batch = lives(11, 5)
    items = [life.item(budget) for life, budget in zip(batch, (4, 0, 2, 6, 1), strict=True)]
    drafter = make_drafter()
    drafts = drafter.propose(items, noise)
    assert all(map(same, drafts, drafter.propose(items, noise)))
    assert all(map(same, drafts, make_drafter().propose(items, noise)))
    assert all(map(same, drafts, list(make_drafter().propose(items[::-1], noise))[::-1]))
    assert len(drafts[1]) == 0


def test_d2_the_budget_only_cuts(make_drafter, lives, noise):
    """A smaller budget gives the first nodes of the larger one's draft: nothing drawn is dropped for its value."""
    for seed in range(6):
        for life in lives(seed):
            drafter = make_drafter()
            whole = drafter.propose([life.item(9)], noise)[0]
            for budget in range(9):
                cut = drafter.propose([life.item(budget)], noise)[0]
                size = min(budget, len(whole))
                assert cut.tokens.tolist() == whole.tokens[:size].tolist()
                assert cut.parents.tolist() == whole.parents[:size].tolist()


def test_nothing_comes_after_a_stop_id(make_with_model, lives, noise):
    seen = 0
    for seed in range(40):
        for life in lives(seed):
            draft = make_with_model().propose([life.item(9)], noise)[0]
            stops = np.flatnonzero(draft.tokens == STOP) + 1
            seen += len(stops)
            assert not set(stops.tolist()) & set(draft.parents.tolist())
    assert seen, "no stop id was drafted: the test shows nothing"


def test_a_number_may_come_again_for_another_request(make_drafter, lives, noise, same):
    drafter = make_drafter()
    for seed in range(6):
        life = lives(seed, 1)[0]
        for _ in range(5):
            item = life.item(4)
            draft = drafter.propose([item], noise)[0]
            assert same(draft, make_drafter().propose([item], noise)[0])
            drafter.observe([life.commit(draft)])
        drafter.forget(life.seq)
        drafter.forget(life.seq)  # twice is no error


def test_a_history_that_was_cut_shifted_or_swapped(make_drafter, lives, noise, same):
    """Even without a `forget`: the tokens of the item are the only truth (B40)."""
    rng = np.random.default_rng(5)
    drafter, life = make_drafter(), lives(2, 1)[0]
    for _ in range(25):
        match int(rng.integers(4)):
            case 0:
                life.tokens = life.tokens[: max(1, len(life.tokens) // 2)]
            case 1:
                life.tokens = life.tokens[len(life.tokens) // 3 :] + life.tokens[:2]
            case 2:
                life.tokens = rng.integers(0, V, len(life.tokens)).tolist()
            case _:
                pass
        life.prompt_len = min(life.prompt_len, len(life.tokens))
        item = life.item(5)
        draft = drafter.propose([item], noise)[0]
        assert same(draft, make_drafter().propose([item], noise)[0])
        life.commit(draft)


def test_items_are_left_alone(make_drafter, lives, noise):
    """Read-only tokens, and parameters that nothing writes to."""
    life = lives(3, 1)[0]
    item = life.item(6)
    before = (item.tokens.tolist(), repr(item.params))
    make_drafter().propose([item], noise)
    assert (item.tokens.tolist(), repr(item.params)) == before


def test_a_sequence_without_budget_is_not_looked_at(make_drafter, noise, lives):
    life = lives(1, 1)[0]
    life.params = SamplingParams(temperature=1.0)  # no seed: asking for its noise would raise
    assert len(make_drafter().propose([life.item(0)], noise)[0]) == 0
