"""Trees of a draft head, enumerated: production drafting and judging in Fractions, every draw and every test.

A dynamic tree draws tokens that it then drops. That is exact only while nothing that is kept, or dropped, depends on
them (D2); the mutants are the ways to get this wrong, and the enumeration sees each of them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from draftproof.drafters import eagle_tree, tree_children
from draftproof.drafters.eagle import EagleDrafter
from draftproof.drafters.tree_shape import DynamicShape, Prices, StaticShape
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_head import HashHead
from draftproof.noise import PhiloxNoise
from draftproof.rules import emitted
from draftproof.rules.block import block
from draftproof.rules.follow import follow
from draftproof.rules.law import outcomes, plain_law
from draftproof.rules.rehearse import judge, path_tokens, play
from draftproof.types import Commit, Draft, SamplingParams, StepItem

V, PREFIX, LENGTH = 3, (0, 2), 2
SHAPES = {
    "two of four": (DynamicShape(widths=(2, 2)), 2),
    "three of six": (DynamicShape(widths=(2, 2)), 3),
    "three, narrow beam": (DynamicShape(widths=(2, 2), beam=1), 3),
    "deep": (DynamicShape(widths=(2, 1, 1)), 3),
    "priced": (DynamicShape(Prices(0.15, 0.02), (2, 2)), 3),
    "widths": (StaticShape.of_widths((2, 1)), 4),
    "places": (StaticShape([(1,), (2,), (2, 1), (1, 1)]), 4),
}


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


LAWS = [law(1, 2, 6), law(3, 1, 1), law(0, 1, 3), law(2, 2, 1), law(1, 5, 1)]


def target(tokens):
    """The target's law after all tokens so far."""
    return LAWS[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(LAWS)]


def drafted(shape, budget, rule, head_seed, seed=3):
    """One propose of a fresh drafter."""
    head, ids = HashHead(V, num_pages=60), np.array(PREFIX, np.int32)
    drafter = EagleDrafter(head, PageLedger(60, 4), V, tree=shape)
    states = np.full((len(ids) - 1, 2), head_seed, np.float32)
    drafter.observe([Commit(0, ids[:0], range(len(states)), features=states)])
    params = SamplingParams(seed=seed, temperature=2.0, rule=rule)
    return drafter.propose([StepItem(0, ids, len(ids), 1, 1, budget, params, 0)], PhiloxNoise())[0]


def law_of_drafts(monkeypatch, shape, budget, head_seed):
    """[(draft with laws in Fractions, probability)] over everything that can be drawn, dropped tokens included."""
    found: dict[object, Draft] = {}

    def run(coins):
        monkeypatch.setattr(
            tree_children, "draw", lambda weights, _: coins.draw(0, [Fraction(w) for w in weights.tolist()])
        )
        draft = drafted(shape, budget, "reject", head_seed)
        key = (tuple(draft.tokens.tolist()), tuple(draft.parents.tolist()), draft.laws.tobytes())
        exact = [law(*map(Fraction, row.tolist())) for row in draft.laws]
        found[key] = Draft(draft.tokens, draft.parents, draft.siblings, np.stack(exact), draft.law_row)
        return key

    return [(found[key], mass) for key, mass in outcomes(run).items()]


def joint(drafts, verdict_of):
    """Law of the first LENGTH tokens: one round over the drafts, then plain decoding."""
    total: dict[tuple[int, ...], Fraction] = {}

    def run(coins, draft):
        tokens = emitted(draft, verdict_of(draft, coins))
        while len(tokens) < LENGTH:
            tokens += (coins.draw(0, target((*PREFIX, *tokens))),)
        return tokens[:LENGTH]

    for draft, mass in drafts:
        for tokens, chance in outcomes(lambda coins, draft=draft: run(coins, draft)).items():
            total[tokens] = total.get(tokens, Fraction(0)) + mass * chance
    return total


def rejected(draft, coins):
    return judge(target, PREFIX, draft, coins)


def plain():
    return plain_law(lambda tokens: target((*PREFIX, *tokens)), LENGTH)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head_seed", [1, 2])
def test_drawn_siblings_have_the_targets_joint_law(name, head_seed, monkeypatch):
    drafts = law_of_drafts(monkeypatch, *SHAPES[name], head_seed)
    assert len({draft.tokens.tobytes() for draft, _ in drafts}) > 5
    assert joint(drafts, rejected) == plain()


@pytest.mark.parametrize("rule", ["follow", "coupled"])
@pytest.mark.parametrize("name", SHAPES)
def test_fixed_siblings_have_the_targets_joint_law(name, rule):
    draft = drafted(*SHAPES[name], rule, 1)
    assert draft.siblings == "fixed"
    assert len(draft) > 1

    def walk(draft, coins):
        return follow(draft, lambda node: coins.draw(node, target((*PREFIX, *path_tokens(draft, node)))))

    assert joint([(draft, Fraction(1))], walk) == plain()


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.9, "rule": "coupled"}, {"temperature": 1.0, "rule": "follow"}]
)
def test_texts_are_plain_decodings(params):
    """Path-exact rules: the same tokens for the same seed as without a draft."""

    def logits_of(tokens):
        return 2 * np.random.default_rng(tokens).standard_normal(7)

    for name, (shape, _) in SHAPES.items():
        accepted = 0
        for seed in range(4):
            drafter = EagleDrafter(HashHead(7), PageLedger(400, 4), 7, tree=shape)

            def propose(item, drafter=drafter):
                states = np.stack([item.tokens[:-1], np.cumsum(item.tokens[:-1])], 1).astype(np.float32)
                drafter.observe([Commit(0, item.tokens[:0], range(len(states)), features=states)])
                return drafter.propose([item], PhiloxNoise())[0]

            settings = SamplingParams(seed=seed, max_new_tokens=20, **params)
            text, verdicts = play(logits_of, propose, [1, 2, 3], settings, PhiloxNoise())
            nothing = Draft(np.zeros(0, np.int32), np.zeros(0, np.int32))
            assert text == play(logits_of, lambda _: nothing, [1, 2, 3], settings, PhiloxNoise())[0]  # noqa: B023
            accepted += sum(len(verdict.path) for verdict in verdicts)
        assert accepted > 0, name


# -- known ways to get it wrong ----------------------------------------------------------------------------------------


def by_token(self, node, row):
    """EAGLE-2 as it is often written: a drawn node is kept or dropped by the probability of its own token."""
    nodes = ORIGINAL(self, node, row)
    for child in nodes:
        child.value = node.value * float(self.laws[node.law][child.token])
    return nodes


ORIGINAL = eagle_tree.Tree._children


def seen(monkeypatch, name, verdict_of=rejected, spoil=lambda draft: draft):
    """True where the enumeration finds a law that is not the target's, over a few heads."""
    for head_seed in range(1, 7):
        drafts = [(spoil(draft), mass) for draft, mass in law_of_drafts(monkeypatch, *SHAPES[name], head_seed)]
        if joint(drafts, verdict_of) != plain():
            return True
    return False


def test_a_choice_by_a_token_that_is_dropped(monkeypatch):
    monkeypatch.setattr(eagle_tree.Tree, "_children", by_token)
    assert seen(monkeypatch, "two of four")


def test_siblings_drawn_without_replacement_and_reported_as_independent(monkeypatch):
    assert seen(
        monkeypatch, "widths", spoil=lambda draft: Draft(draft.tokens, draft.parents, "iid", draft.laws, draft.law_row)
    )


def test_a_law_of_another_node(monkeypatch):
    assert seen(
        monkeypatch,
        "widths",
        spoil=lambda draft: Draft(
            draft.tokens, draft.parents, draft.siblings, draft.laws, np.zeros_like(draft.law_row)
        ),
    )


def test_rule_block_for_the_trees_that_came_out_as_chains(monkeypatch):
    """Why `block` has chains only: which rule judges may not depend on what was drawn."""

    def verdict(draft, coins):
        if draft.parents.tolist() != list(range(len(draft))):
            return rejected(draft, coins)
        whole = Draft(draft.tokens, draft.parents, "iid", draft.laws, draft.law_row)
        return block(whole, lambda node: target((*PREFIX, *path_tokens(whole, node))), coins)

    assert seen(monkeypatch, "deep", verdict)
