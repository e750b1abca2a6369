"""Trees in the cascade, enumerated over several rounds: lookups where the text repeats, the head's trees elsewhere.

Production drafting and judging in Fractions. Which drafter speaks changes from round to round with the text, and trees
draw tokens that they drop; the joint law of the text must be the target's all the same. The mutants are the ways to get
this wrong: the enumeration sees each of them.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from draftproof.drafters import choice, make, tree_children
from draftproof.drafters.tree_shape import DynamicShape, Prices, StaticShape
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy_head import HashHead
from draftproof.noise import PhiloxNoise
from draftproof.rules import emitted, reject
from draftproof.rules.block import block
from draftproof.rules.follow import follow
from draftproof.rules.law import outcomes, plain_law
from draftproof.rules.rehearse import path_tokens
from draftproof.types import Commit, Draft, SamplingParams, StepItem

V, PREFIX, LENGTH = 3, (0, 2), 3
SHAPES = {
    "two of four": (DynamicShape(widths=(2, 2)), 2),
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


def cascade_of(shape):
    return make("cascade", target=HashHead(V, num_pages=60), ledger=PageLedger(60, 4), vocab_size=V, tree=shape)


def proposed(drafter, tokens, budget, rule, head_seed):
    """A draft of a fresh drafter that has seen the target's states of these tokens."""
    ids = np.array(tokens, np.int32)
    states = np.stack([ids[:-1] + head_seed, np.cumsum(ids[:-1])], 1).astype(np.float32)
    drafter.observe([Commit(0, ids[:0], range(len(states)), features=states)])
    params = SamplingParams(seed=3, temperature=2.0, rule=rule)
    item = StepItem(0, ids, len(PREFIX), 1, 1, budget, params, len(ids))
    return drafter.propose([item], PhiloxNoise())[0]


def exact(draft):
    """The same with its laws in Fractions."""
    if draft.laws is None:
        return draft
    laws = np.stack([law(*map(Fraction, row.tolist())) for row in draft.laws])
    return Draft(draft.tokens, draft.parents, draft.siblings, laws, draft.law_row)


def drafts_after(monkeypatch, tokens, shape, budget, rule, head_seed, make_drafter=cascade_of):
    """[(draft, probability)] over everything that can be drawn, dropped tokens included."""
    found: dict[object, Draft] = {}

    def run(coins):
        for module in (tree_children, choice):
            monkeypatch.setattr(
                module, "draw", lambda weights, _: coins.draw(0, [Fraction(w) for w in weights.tolist()])
            )
        draft = proposed(make_drafter(shape), tokens, budget, rule, head_seed)
        key = (draft.tokens.tobytes(), draft.parents.tobytes(), None if draft.laws is None else draft.laws.tobytes())
        found[key] = exact(draft)
        return key

    return [(found[key], mass) for key, mass in outcomes(run).items()]


def same(draft):
    return draft


def is_tree(draft):
    return draft.parents.tolist() != list(range(len(draft)))


def text_law(monkeypatch, name, rule="reject", head_seed=1, spoil=same, seen_as=same, make_drafter=cascade_of):
    """(law of the first tokens after PREFIX, written in rounds; how many drafts there were of each kind).

    spoil: what becomes of drawn drafts. seen_as: the draft as the target is shown it.
    """
    shape, budget = SHAPES[name]
    kinds: Counter[str] = Counter()

    def verdict(draft, coins, prefix):
        def law_after(node):
            return target((*prefix, *path_tokens(seen_as(draft), node)))

        if draft.siblings == "fixed":
            return follow(draft, lambda node: coins.draw(node, law_after(node)))
        return (block if rule == "block" else reject)(draft, law_after, coins)

    @cache
    def after(tokens):
        left, total = LENGTH + len(PREFIX) - len(tokens), {}
        if left <= 0:
            return {(): Fraction(1)}
        for whole, mass in drafts_after(monkeypatch, tokens, shape, budget, rule, head_seed, make_drafter):
            draft = spoil(whole) if whole.laws is not None else whole
            kinds["tree" if is_tree(draft) else "drawn chain" if draft.laws is not None else "fixed chain"] += 1

            def run(coins, draft=draft):
                return tuple(emitted(draft, verdict(draft, coins, tokens)))

            for said, chance in outcomes(run).items():
                for rest, more in after((*tokens, *said)).items():
                    text = (*said, *rest)[:left]
                    total[text] = total.get(text, Fraction(0)) + mass * chance * more
        return total

    return after(PREFIX), kinds


def plain():
    return plain_law(lambda tokens: target((*PREFIX, *tokens)), LENGTH)


@pytest.mark.parametrize("rule", ["reject", "block", "follow", "coupled"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_text_has_the_targets_joint_law(name, rule, monkeypatch):
    for head_seed in (1, 2):
        found, kinds = text_law(monkeypatch, name, rule, head_seed)
        assert found == plain()
        assert kinds["fixed chain"] > 0  # a lookup's, among others
        assert kinds["drawn chain" if rule == "block" else "tree"] > 0


# -- known ways to get it wrong ----------------------------------------------------------------------------------------


def is_seen(monkeypatch, name, **how):
    return any(text_law(monkeypatch, name, head_seed=seed, **how)[0] != plain() for seed in range(1, 7))


def on_another(draft):
    """The last node on another branch than the one it was drafted on."""
    parents = draft.parents.copy()
    if len(parents) > 2:
        parents[-1] = 1 if parents[-1] != 1 else 2
    return Draft(draft.tokens, parents, draft.siblings, draft.laws, draft.law_row)


@pytest.mark.parametrize("how", [{"seen_as": on_another, "rule": rule} for rule in ("reject", "coupled")])
def test_a_target_that_is_shown_a_wrong_parent(how, monkeypatch):
    assert is_seen(monkeypatch, "widths", **how)


def test_a_node_that_is_judged_on_a_wrong_parent(monkeypatch):
    """Among siblings that were drawn from another law than it was."""
    assert is_seen(monkeypatch, "widths", spoil=on_another)


def test_a_law_of_another_node(monkeypatch):
    def spoil(draft):
        return Draft(draft.tokens, draft.parents, draft.siblings, draft.laws, np.zeros_like(draft.law_row))

    assert is_seen(monkeypatch, "widths", spoil=spoil)


def test_a_cascade_that_chooses_by_what_was_drawn(monkeypatch):
    """The head is asked first, and gives way to nothing where it drew a certain token: D2 is what forbids it."""

    class Picky:
        def __init__(self, shape):
            self._inner = cascade_of(shape)
            self.observe = self._inner.observe

        def propose(self, items, noise):
            drafts = self._inner.propose(items, noise)
            return [
                Draft(d.tokens[:0], d.parents[:0]) if d.laws is not None and d.tokens[0] == 2 else d for d in drafts
            ]

    assert is_seen(monkeypatch, "widths", make_drafter=Picky)
