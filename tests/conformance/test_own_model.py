"""Drafters with a model of their own: what is drawn is what is reported, and the own cache holds only what is true."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.model import ModelDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.toy import ConstTarget, HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.rules.coins import draw
from draftproof.rules.coupled import race, race_top
from draftproof.rules.select import best_ids
from draftproof.rules.warp import History, processed, warp
from draftproof.types import SamplingParams, Slots, StepItem

V = 9
STOP = frozenset({8})
NOISE = PhiloxNoise()


def toy(**options):
    settings = {"max_len": 400, "num_pages": 800, "page_size": 4, "min_rows": 2} | options
    return HashTarget(V, seed=3, window=2, scale=3.0, options=ToyOptions(**settings))


def fresh_row(tokens):
    """float[V]: what the drafter's model says after tokens, from an empty cache."""
    target, ids = toy(), np.array(tokens, np.int32)
    pages = np.arange(len(ids) // 4 + 2, dtype=np.int32)
    output = target.verify(flat_batch([Rows(ids, len(ids), Slots(pages, 0, len(ids)))], 2))
    return output.logits.row(0).copy()


def node_logits(item, path):
    tokens = np.concatenate([item.tokens, np.array(path, np.int32)])
    return processed(fresh_row(tokens), item.params, History(tokens, item.prompt_len), item.stop_ids)


def path_to(draft, node):
    path = []
    while node:
        path.append(int(draft.tokens[node - 1]))
        node = int(draft.parents[node - 1])
    return path[::-1]


def follow_lives(drafter, lives, rounds=6, seeds=6):
    """(item, draft) of many rounds with random refusals."""
    for seed in range(seeds):
        batch = lives(seed)
        for _ in range(rounds):
            items = [life.item(5) for life in batch]
            drafts = drafter.propose(items, NOISE)
            yield from zip(items, drafts, strict=True)
            drafter.observe([life.commit(draft) for life, draft in zip(batch, drafts, strict=True)])
        for life in batch:
            drafter.forget(life.seq)


def model_drafter(target=None, **options):
    target = toy() if target is None else target
    return ModelDrafter(target, PageLedger(target.num_pages, target.page_size), V, **options)


def test_d1_each_token_comes_from_the_law_of_its_node(lives):
    """Bit for bit: the reported row is the warped law under the node's history, and the token comes from it."""
    rules = {"follow": 0, "coupled": 0, "reject": 0, "block": 0}
    for item, draft in follow_lives(model_drafter(), lives, seeds=9):
        rule = "follow" if item.params.temperature == 0 else item.params.resolved_rule
        numbers = NOISE.uniform(item.seed, "draft", item.round, 9)
        for index, token in enumerate(draft.tokens.tolist()):
            path = draft.tokens[:index].tolist()
            logits = node_logits(item, path)
            rules[rule] += 1
            if rule == "follow":
                assert token == int(logits.argmax())
            elif rule == "coupled":
                warped = warp(logits, item.params)
                gumbel = NOISE.gumbel(item.seed, len(item.tokens) + index, warped.ids, V)
                assert token == race(warped, gumbel)
            else:
                law = warp(logits, item.params).law(V)
                assert draft.siblings == "iid"
                assert np.array_equal(draft.laws[draft.law_row[index]], law)
                assert token == draw(draft.laws[draft.law_row[index]], numbers[index])
    assert min(rules.values()) > 80, rules


def test_d1_the_reported_law_is_the_frequency():
    """20 000 first tokens and 20 000 second ones against the reported law; false alarm 1 in 1000 a test."""
    logits = np.log([0.35, 0.25, 0.15, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01])
    target = ConstTarget(logits, ToyOptions(num_pages=12000, page_size=4))
    drafter = ModelDrafter(target, PageLedger(12000, 4), V)
    params = SamplingParams(temperature=1.0, rule="reject", top_k=5, seed=1)
    tokens = np.array([1, 2, 3], np.int32)
    items = [
        StepItem(seq, tokens, 3, 1, 1, 2, SamplingParams(temperature=1.0, rule="reject", top_k=5, seed=seq), 4)
        for seq in range(5000)
    ]
    counts, pairs = np.zeros((2, V)), np.zeros((V, V))
    for _ in range(4):
        for draft in drafter.propose(items, NOISE):
            counts[0, draft.tokens[0]] += 1
            counts[1, draft.tokens[1]] += 1
            pairs[draft.tokens[0], draft.tokens[1]] += 1
        items = [StepItem(i.seq, i.tokens, 3, 1, 1, 2, i.params, i.round + 1) for i in items]
    law = warp(logits, params).law(V)
    for row in counts:
        assert row[law == 0].sum() == 0
        assert stats.chisquare(row[law > 0], 20000 * law[law > 0]).pvalue > 1e-3
    assert stats.chi2_contingency(pairs[:5, :5]).pvalue > 1e-3, "the two tokens of a draft are not independent"


def test_d2_whether_to_go_on_is_decided_before_the_draw(lives):
    """A draft ends exactly where the best token of the node's law is too unlikely: no token has a say in it."""
    threshold, ended = 0.45, 0
    drafter = model_drafter(min_probability=threshold)
    for item, draft in follow_lives(drafter, lives):
        tokens = draft.tokens.tolist()
        for node in range(len(tokens) + 1):
            if node == 5 or (node and tokens[node - 1] in STOP):
                break
            logits = node_logits(item, tokens[:node])
            follow = item.params.temperature == 0 or item.params.resolved_rule == "follow"
            scores = logits - logits.max() if follow else warp(logits, item.params).scores
            sure = 1 / np.exp(scores).sum() >= threshold
            assert sure == (node < len(tokens))
            ended += not sure
    assert ended > 50


def test_a_tree_is_ranked_level_by_level(lives):
    """Each node's children are the best of its own law under its own history: masks and positions of the tree hold."""
    target, compared = toy(), 0
    drafter = FixedTreeDrafter(target, PageLedger(target.num_pages, 4), V, widths=(3, 2, 1))
    for seed in range(6):
        batch = lives(seed)
        for _ in range(4):
            items = [life.item(15) for life in batch]
            drafts = drafter.propose(items, NOISE)
            for item, draft in zip(items, drafts, strict=True):
                for node in range(len(draft)):
                    children = draft.tokens[draft.parents == node].tolist()
                    if not children:
                        continue
                    path = path_to(draft, node)
                    logits, width = node_logits(item, path), (3, 2, 1)[len(path)]
                    if item.params.temperature and item.params.resolved_rule == "coupled":
                        warped = warp(logits, item.params)
                        gumbel = NOISE.gumbel(item.seed, len(item.tokens) + len(path), warped.ids, V)
                        wanted = race_top(warped, gumbel, width)
                    else:
                        wanted = best_ids(logits, width)
                    assert children == wanted.tolist()
                    compared += len(path) > 0
                assert draft.siblings == "fixed"
            drafter.observe([life.commit(draft) for life, draft in zip(batch, drafts, strict=True)])
        for life in batch:
            drafter.forget(life.seq)
    assert compared > 200


def held(target, ledger, seq):
    """(tokens, positions) in the kept rows of a sequence."""
    length = ledger.kv_len(seq)
    slots = ledger.reserve(seq, 1)
    ledger.commit(seq, range(0))
    return target.read(slots.table, length)


@pytest.mark.parametrize("kind", [ModelDrafter, FixedTreeDrafter])
def test_d3_the_own_cache_holds_a_prefix_of_what_is_committed(kind, lives, budgets):
    """B19: after every round at most committed - 1 rows, and each holds the committed token at its own position."""
    target = toy()
    ledger = PageLedger(target.num_pages, 4)
    drafter = kind(target, ledger, V)
    full = 0
    for seed in range(5):
        batch = lives(seed)
        for _ in range(8):
            items = [life.item(b) for life, b in zip(batch, budgets(batch[0].rng, 4), strict=True)]
            drafts = drafter.propose(items, NOISE)
            drafter.observe([life.commit(draft) for life, draft in zip(batch, drafts, strict=True)])
            for life in batch:
                tokens, positions = held(target, ledger, life.seq)
                assert len(tokens) <= len(life.tokens) - 1
                assert tokens.tolist() == life.tokens[: len(tokens)]
                assert positions.tolist() == list(range(len(tokens)))
                full += len(tokens) == len(life.tokens) - 1
            ledger.check()
        for life in batch:
            drafter.forget(life.seq)
        assert ledger.free_pages == ledger.num_pages
    assert full or kind is FixedTreeDrafter, "no accepted draft row was ever kept"


def test_no_budget_no_forward(make_with_model, lives):
    target = toy()
    drafter = ModelDrafter(target, PageLedger(target.num_pages, 4), V)
    batch = lives(0)
    drafter.propose([life.item(0) for life in batch], NOISE)
    assert target.num_forwards == 0
    drafter.propose([batch[0].item(3), *(life.item(0) for life in batch[1:])], NOISE)
    assert target.num_forwards >= 1
    assert target.num_rows == len(batch[0].tokens) + (len(batch[0].tokens) == 1) + 2 * 2  # two padded single rows


def test_all_sequences_share_each_forward(lives):
    """Budgets 4, 2, 1 cost four forwards, not seven; nobody's draft goes on after its budget."""
    target = toy()
    drafter = ModelDrafter(target, PageLedger(target.num_pages, 4), V)
    batch = lives(5, 3)
    for life in batch:
        life.params = SamplingParams(seed=1)
    items = [life.item(budget) for life, budget in zip(batch, (4, 2, 1), strict=True)]
    items = [StepItem(i.seq, i.tokens, i.prompt_len, 1, 1, i.budget, i.params, 0) for i in items]
    assert [len(draft) for draft in drafter.propose(items, NOISE)] == [4, 2, 1]
    assert target.num_forwards == 4


def test_what_is_known_is_not_fed_again(lives):
    """A fully accepted round leaves two tokens to feed: the last draft and the bonus (B20)."""
    target = toy(min_rows=1)
    drafter = ModelDrafter(target, PageLedger(target.num_pages, 4), V)
    life = lives(0, 1)[0]
    life.params, rows = SamplingParams(seed=1), []
    for _ in range(4):
        item = life.item(3)
        item = StepItem(0, item.tokens, item.prompt_len, 1, 1, 3, item.params, item.round)
        before = target.num_rows
        draft = drafter.propose([item], NOISE)[0]
        rows.append(target.num_rows - before)
        drafter.observe([life.commit(draft, keep=1.0)])
    assert rows == [life.prompt_len + 2, 4, 4, 4]


def test_a_full_ledger_costs_drafts_never_right_ones(lives):
    """Room for about two sequences of five: those outside the batch lose their pages, those without go undrafted."""
    for seed in range(8):
        target = toy(num_pages=14)
        ledger = PageLedger(14, 4)
        drafter = ModelDrafter(target, ledger, V)
        batch, rng = lives(seed, 5), np.random.default_rng(seed)
        drafted = 0
        for _ in range(12):
            chosen = [life for life in batch if rng.random() < 0.5]
            items = [life.item(3) for life in chosen]
            for life, item, draft in zip(chosen, items, drafter.propose(items, NOISE), strict=True):
                fresh = model_drafter().propose([item], NOISE)[0]
                assert len(draft) == 0 or draft.tokens.tolist() == fresh.tokens.tolist()
                drafted += len(draft) > 0
                drafter.observe([life.commit(draft, keep=0.2)])
            ledger.check()
        assert drafted > 3
        for life in batch:
            drafter.forget(life.seq)
        assert ledger.free_pages == 14


def test_the_pages_of_the_one_drafted_longest_ago_go_first():
    target = toy(num_pages=6)
    ledger = PageLedger(6, 4)
    drafter = ModelDrafter(target, ledger, V)
    params = SamplingParams(seed=1)
    items = [StepItem(seq, np.arange(7, dtype=np.int32), 7, 1, 1, 1, params, 0) for seq in range(4)]
    for seq in (0, 1, 2, 0):  # two pages each; 1 is now the oldest
        drafter.propose([items[seq]], NOISE)
    assert len(drafter.propose([items[3]], NOISE)[0]) == 1
    assert [ledger.pages_held(seq) > 0 for seq in range(4)] == [True, False, True, True]
    drafter.propose([items[0], items[2], items[3], items[1]], NOISE)  # a batch mate is never robbed
    assert [ledger.pages_held(seq) > 0 for seq in range(4)] == [True, False, True, True]


@pytest.mark.parametrize("kind", [ModelDrafter, FixedTreeDrafter])
def test_past_its_own_context_limit_it_goes_on_without_drafts(kind):
    """B31: the draft is cut to the room left, then empty, and the pages are free; its batch mate drafts on."""
    target = toy(max_len=8)
    ledger = PageLedger(target.num_pages, 4)
    drafter = kind(target, ledger, V)
    params, lengths = SamplingParams(seed=1), []
    mate = StepItem(1, np.array([5, 6], np.int32), 2, 1, 1, 4, params, 0)
    for length in range(1, 12):
        item = StepItem(0, np.arange(length, dtype=np.int32) % 7, 1, 1, 1, 4, params, length)
        drafts = drafter.propose([item, mate], NOISE)
        lengths.append(len(drafts[0]))
        assert len(drafts[1]) == 4
    assert lengths == [4, 4, 4, 4, 3, 2, 1, 0, 0, 0, 0]
    assert ledger.pages_held(0) == 0
    assert ledger.pages_held(1) > 0


def test_a_row_without_a_law_ends_the_draft():
    """A NaN, or everything forbidden, is no token (B06); the batch mate is untouched."""
    broken = ConstTarget([np.nan] * V)
    drafter = ModelDrafter(broken, PageLedger(64, 4), V)
    tokens = np.array([1, 2], np.int32)
    for params in ({}, {"temperature": 1.0, "rule": "coupled"}, {"temperature": 1.0, "rule": "reject"}):
        item = StepItem(0, tokens, 2, 1, 1, 3, SamplingParams(seed=1, **params), 0)
        assert len(drafter.propose([item], NOISE)[0]) == 0
    forbid = SamplingParams(seed=1, logit_bias=dict.fromkeys(range(V), -np.inf))
    pair = [StepItem(0, tokens, 2, 1, 1, 3, forbid, 0), StepItem(1, tokens, 2, 1, 1, 3, SamplingParams(seed=1), 0)]
    for kind in (ModelDrafter, FixedTreeDrafter):
        drafts = kind(toy(), PageLedger(800, 4), V).propose(pair, NOISE)
        assert [len(draft) for draft in drafts] == [0, 3]
