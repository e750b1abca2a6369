"""Trees of the EAGLE drafter against trees computed from scratch: every node's row from its own branch, no cache.

The toy head reads everything back from its pages, so a branch that wrote into another's page, or was copied too late,
changes the drafts after it.
"""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters import eagle_tree, tree_children
from draftproof.drafters.cascade import Cascade
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.eagle import EagleDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.drafters.tree_children import Children
from draftproof.drafters.tree_pages import Branches
from draftproof.drafters.tree_shape import FREE, DynamicShape, Node, Prices, StaticShape, first_number, parse_shape
from draftproof.errors import UnknownDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_head import HashHead, cell
from draftproof.noise import PhiloxNoise
from draftproof.rules.select import best_ids
from draftproof.rules.warp import warp
from draftproof.types import Commit, SamplingParams, StepItem

V, MAPPING = 23, np.array([0, 2, 3, 5, 7, 8, 11, 13, 17, 19, 22], np.int32)
NOISE, STOP = PhiloxNoise(), 19
VOCAB = DraftVocab(len(MAPPING), V, MAPPING)
PARAMS = (
    {},
    {"temperature": 0.8, "rule": "coupled", "top_p": 0.9},
    {"temperature": 1.0, "rule": "reject"},
    {"temperature": 1.0, "rule": "follow"},
    {"temperature": 1.3, "rule": "reject", "top_k": 2, "presence_penalty": 0.5},
    {"repetition_penalty": 1.3, "logit_bias": {5: 2.0}},
)
SHAPES = {
    "dynamic": DynamicShape(widths=(3, 3, 2, 2), beam=9),
    "priced": DynamicShape(Prices(0.05, 0.02), (3, 3, 2, 2), 9),
    "masked": DynamicShape(Prices(0.06, 0.01, repeats=False), (3, 3, 2, 2), 9),
    "widths": StaticShape.of_widths((2, 2, 2)),
    "places": StaticShape([(1,), (1, 1), (2,), (1, 1, 1), (2, 1), (1, 2), (2, 2), (1, 1, 2)]),
}


def state_after(tokens, position):
    """float32[3]: what the target's hidden states would be after tokens[: position + 1]."""
    return np.random.default_rng([7, *tokens[: position + 1]]).standard_normal(3).astype(np.float32)


def kin(item, row, path, first, count):
    """(tokens, chances) of the `count` first children, whose places have numbers from `first` on."""
    children = Children(item, NOISE, VOCAB)
    ranked = children.rank(row, path, count)
    return ranked.tokens(children.numbers(first, len(ranked.chances))), ranked.chances


def held_before(item):
    """The head's cells of the committed tokens."""
    tokens = item.tokens.tolist()
    return [cell(tokens[t + 1], state_after(tokens, t), False) for t in range(len(tokens) - 1)]


def everything(item, widths):
    """All nodes of a tree, the root first and parents before children; each row computed from its branch alone."""
    head, found = HashHead(len(MAPPING)), [Node(None)]

    def visit(node, held):
        if node.depth == len(widths) or node.ends:
            return
        logits, own = head.answer(held)
        first = first_number(widths, node)
        tokens, chances = kin(item, logits, node.path(), first, widths[node.depth])
        for rank, (token, chance) in enumerate(zip(tokens, chances, strict=True)):
            child = Node(node, (*node.place, rank + 1), token, node.value * chance, first + rank, ends=token == STOP)
            found.append(child)
            visit(child, [*held, cell(token, own, True)])

    visit(found[0], held_before(item))
    return found


def from_scratch(item, shape):
    """Tokens and parents that the drafter has to give."""
    root, *found = everything(item, shape.widths)
    if isinstance(shape, StaticShape):
        by_place = {node.place: node for node in found}
        chosen = [by_place[place] for place in shape.places if place in by_place][: item.budget]
    else:
        worth, kept = {root.place}, []
        for node in found:
            if node.parent.place in worth and node.value >= shape.prices.of(node.place[-1], node.depth):
                worth.add(node.place)
                kept.append(node)
        chosen = sorted(kept, key=lambda node: (-node.value, node.number))[: item.budget]
    numbers = {id(node): index + 1 for index, node in enumerate(chosen)}
    return [node.token for node in chosen], [numbers.get(id(node.parent), 0) for node in chosen]


class Life:
    """One sequence, as an engine would run it."""

    def __init__(self, seq, rng, params):
        self.seq, self.rng, self.params, self.round = seq, rng, params, 0
        self.tokens = rng.integers(0, V, int(rng.integers(2, 30))).tolist()
        self.prompt_len = len(self.tokens)

    def fed(self, start=0):
        states = np.array([state_after(self.tokens, t) for t in range(start, len(self.tokens) - 1)], np.float32)
        return Commit(self.seq, np.zeros(0, np.int32), range(len(states)), start=start, features=states)

    def item(self, budget):
        ids = np.array(self.tokens, np.int32)
        return StepItem(self.seq, ids, self.prompt_len, 1, 1, budget, self.params, self.round, frozenset({STOP}))

    def commit(self, draft):
        """Any path of the draft, and a token of its own."""
        path, node = [], 0
        while (children := np.flatnonzero(draft.parents == node) + 1).size and self.rng.random() < 0.7:
            node = int(self.rng.choice(children))
            path.append(node)
        start = len(self.tokens) - 1
        emitted = [*(int(draft.tokens[node - 1]) for node in path), int(self.rng.integers(0, V))]
        self.tokens += emitted
        self.round += 1
        states = np.array([state_after(self.tokens, start + i) for i in range(len(path) + 1)], np.float32)
        return Commit(self.seq, np.array(emitted, np.int32), (0, *path), start=start, features=states)


def drafter_of(shape, head=None, **options):
    head = head or HashHead(len(MAPPING))
    ledger = PageLedger(head.num_pages, head.page_size)
    return EagleDrafter(head, ledger, V, mapping=MAPPING, tree=shape, chunk=5, **options), ledger


@pytest.mark.parametrize("name", SHAPES)
def test_trees_are_those_of_a_fresh_start(name):
    branched = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        drafter, ledger = drafter_of(SHAPES[name])
        lives = [Life(seq, rng, SamplingParams(seed=seq, **PARAMS[(seed + seq) % len(PARAMS)])) for seq in range(4)]
        drafter.observe([life.fed() for life in lives])
        for _ in range(5):
            items = [life.item(int(rng.choice([0, 1, 2, 4, 7]))) for life in lives]
            drafts = drafter.propose(items, NOISE)
            for draft, item in zip(drafts, items, strict=True):
                if item.budget:
                    assert (draft.tokens.tolist(), draft.parents.tolist()) == from_scratch(item, SHAPES[name])
                branched += len(draft.parents) != len(set(draft.parents.tolist()))
            drafter.observe([life.commit(draft) for life, draft in zip(lives, drafts, strict=True)])
        ledger.check()
        for life in lives:
            drafter.forget(life.seq)
        assert ledger.free_pages == ledger.num_pages
    assert branched > 10


def rounds_in_a_cascade(shape):
    """(item, the cascade's draft, what the lookup alone says) of many rounds."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        head, ledger = drafter_of(shape)
        drafter, lookup = Cascade([SuffixDrafter(), head]), SuffixDrafter()
        lives = [Life(seq, rng, SamplingParams(seed=seq, **PARAMS[(seed + seq) % len(PARAMS)])) for seq in range(4)]
        drafter.observe([life.fed() for life in lives])
        for _ in range(6):
            items = [life.item(int(rng.choice([0, 1, 4, 7]))) for life in lives]
            drafts = drafter.propose(items, NOISE)
            yield from zip(items, drafts, lookup.propose(items, NOISE), strict=True)
            drafter.observe([life.commit(draft) for life, draft in zip(lives, drafts, strict=True)])
        for life in lives:
            drafter.forget(life.seq)
        assert ledger.free_pages == ledger.num_pages


def as_said(draft):
    return draft.tokens.tolist(), draft.parents.tolist()


@pytest.mark.parametrize("name", SHAPES)
def test_in_a_cascade_they_are_the_same_trees(name):
    """Rounds of the lookup between them: rows and states of tokens that the head has not seen drafted."""
    spoke = {"lookup": 0, "head": 0}
    for item, draft, looked_up in rounds_in_a_cascade(SHAPES[name]):
        spoke["lookup" if len(looked_up) else "head"] += len(draft)
        if item.budget:
            assert as_said(draft) == (as_said(looked_up) if len(looked_up) else from_scratch(item, SHAPES[name]))
    assert min(spoke.values()) > 50


def test_in_a_cascade_a_wrong_parent_is_noticed(monkeypatch):
    draft_of = eagle_tree.Tree.draft

    def spoiled(self):
        draft = draft_of(self)
        draft.parents[1:] = np.maximum(draft.parents[1:] - 1, 0)
        return draft

    monkeypatch.setattr(eagle_tree.Tree, "draft", spoiled)
    rounds = rounds_in_a_cascade(SHAPES["widths"])
    seen = [as_said(draft) == from_scratch(item, SHAPES["widths"]) for item, draft, own in rounds if not len(own)]
    assert not all(seen)


def drafts_of(shape, seeds=range(8), budget=6):
    """Drafts of single rounds, with their items."""
    for seed in seeds:
        life = Life(0, np.random.default_rng(seed), SamplingParams(seed=seed, **PARAMS[seed % len(PARAMS)]))
        drafter, _ = drafter_of(shape)
        drafter.observe([life.fed()])
        yield life.item(budget), drafter.propose([life.item(budget)], NOISE)[0]


@pytest.mark.parametrize("fault", ["no copies", "wrong parent", "shared pages"])
def test_branches_that_meet_are_noticed(fault, monkeypatch):
    """The same comparison with the pages handled wrongly."""
    if fault == "no copies":
        monkeypatch.setattr(Branches, "_copies", lambda self, *_: [])
    elif fault == "shared pages":
        monkeypatch.setattr(Branches, "_table", lambda self, _: np.concatenate([self._shared, self._sets[0]]))
    else:
        go_on = Branches.go_on
        monkeypatch.setattr(Branches, "go_on", lambda self, ends, parents, d: go_on(self, ends[::-1], parents[::-1], d))
    shape = SHAPES["widths"]
    try:
        drafts = drafts_of(shape, budget=14)
        seen = [(d.tokens.tolist(), d.parents.tolist()) == from_scratch(item, shape) for item, d in drafts]
    except ValueError:  # a row that nobody wrote
        seen = [False]
    assert not all(seen)


def test_laws_are_those_of_the_nodes_parents():
    """D1: each node's law is the head's after its parent, whatever was drawn and dropped beside it."""
    seen = 0
    for item, draft in drafts_of(SHAPES["dynamic"], range(2, 60, 6)):
        assert draft.siblings == "distinct"
        found = {tuple(node.path()): node for node in everything(item, SHAPES["dynamic"].widths)}
        paths = [()]
        for index, parent in enumerate(draft.parents.tolist()):
            paths.append((*paths[parent], int(draft.tokens[index])))
            node, held = found[paths[-1]].parent, held_before(item)
            for token in node.path():
                held.append(cell(token, HashHead(len(MAPPING)).answer(held)[1], True))
            law = warp(VOCAB.row(HashHead(len(MAPPING)).answer(held)[0]), item.params).law(V)
            np.testing.assert_allclose(draft.laws[draft.law_row[index]], law, rtol=1e-9)
            seen += 1
    assert seen > 20


def test_coupled_siblings_are_the_first_of_the_race():
    rng = np.random.default_rng(4)
    for seed in range(30):
        params = SamplingParams(seed=seed, temperature=0.9, rule="coupled")
        item = StepItem(0, np.array([1, 2], np.int32), 2, 1, 1, 4, params, 0)
        row = 2 * rng.standard_normal(len(MAPPING))
        scores = row / 0.9 + NOISE.gumbel(seed, 3, MAPPING.astype(np.int64), V)
        tokens, chances = kin(item, row, [5], 0, 3)
        assert tokens == MAPPING[best_ids(scores, 3)].tolist()
        spread = np.exp((scores - scores.max()) / tree_children.SPREAD)
        np.testing.assert_allclose(chances, np.sort(spread)[::-1][:3] / spread.sum())


def test_a_smaller_budget_gives_the_first_nodes_and_a_chain_is_a_tree():
    for name in ("dynamic", "priced", "widths", "places"):
        for seed in range(6):
            life = Life(0, np.random.default_rng(seed), SamplingParams(seed=seed, **PARAMS[seed]))
            drafter, _ = drafter_of(SHAPES[name])
            drafter.observe([life.fed()])
            whole = drafter.propose([life.item(9)], NOISE)[0]
            for budget in range(1, 9):
                cut = drafter.propose([life.item(budget)], NOISE)[0]
                assert cut.tokens.tolist() == whole.tokens[:budget].tolist()
                assert cut.parents.tolist() == whole.parents[:budget].tolist()
    chains = [draft for _, draft in drafts_of(DynamicShape(Prices(0.02, 10.0)))]
    assert all(draft.parents.tolist() == list(range(len(draft))) for draft in chains)
    assert max(map(len, chains)) == 6


def test_the_dearer_a_branch_the_fewer_there_are():
    def branches(prices):
        drafts = [draft for _, draft in drafts_of(DynamicShape(prices), range(24))]
        return sum(len(set(draft.parents.tolist())) < len(draft) for draft in drafts)

    found = [branches(Prices(0.01, branch)) for branch in (0.0, 0.1, 0.2, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[1] > found[-1] == 0
    assert branches(Prices(0.1, repeats=True)) < branches(Prices(0.1, repeats=False))


def test_rule_block_has_chains():
    life = Life(0, np.random.default_rng(0), SamplingParams(seed=1, temperature=1.0, rule="block"))
    drafters = [drafter_of(shape, min_path=0.0)[0] for shape in (SHAPES["dynamic"], None)]
    for drafter in drafters:
        drafter.observe([life.fed()])
    one, other = (drafter.propose([life.item(5)], NOISE)[0] for drafter in drafters)
    assert one.siblings == "iid"
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.parents.tolist() == list(range(5))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 1", "can't have '1' there"),
        ("1 2 1.1 3.1", "can't have '3.1' there"),
        ("1,0", "at least one child a level"),
        ("1000,1000,1000", "1001001000 nodes: at most 256"),
        (" ".join(map(str, range(1, 300))), "299 nodes is too large"),
        ("wide", "a tree is"),
        ("3,x", "a tree is"),
    ],
)
def test_a_shape_that_can_not_be_says_why(text, says):
    with pytest.raises(UnknownDrafter, match=says):
        parse_shape(text, FREE)
