"""B15: siblings of a tree. The target law is renormalised after each refusal; the draft law is conditional.

Its second half is one of the two reports that are not bugs: a top-k tree whose siblings count as certain is exact.
"""

import importlib
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, follow, reject
from draftproof.rules.law import outcomes
from draftproof.rules.rehearse import draw_tree
from draftproof.types import Draft

rule = importlib.import_module("draftproof.rules.reject")


def law(*numbers):
    return np.array([Fraction(x) for x in numbers], dtype=object)


def siblings(tokens, laws, kind="iid"):
    nodes = np.zeros(len(tokens), np.int32)
    return Draft(np.array(tokens, np.int32), nodes, kind, np.stack(laws), np.arange(len(tokens), dtype=np.int32))


def points(tokens, vocab):
    """Each ranked sibling is certain: its draft law is a point mass."""
    return [law(*(int(i == token) for i in range(vocab))) for token in tokens]


def judged(draft_of, target):
    def run(coins):
        draft = draft_of(coins)
        verdict = reject(draft, lambda node: target, coins)
        return emitted(draft, verdict)[0], verdict.path

    return outcomes(run)


def emitted_law(masses, vocab):
    return [sum(m for (token, _), m in masses.items() if token == i) for i in range(vocab)]


RANKED = law("1/2", "3/10", "1/5")
TARGET, DRAFTED = law("1/10", "2/5", "1/2"), law("3/5", "3/10", "1/10")


def ranked_tree(coins=None):
    return siblings([0, 1], points([0, 1], 3))


def test_case_a_top_k_siblings():
    masses = judged(ranked_tree, RANKED)
    assert masses[0, (1,)] == Fraction(1, 2)
    assert masses[1, (2,)] == Fraction(1, 2) * Fraction(3, 5)
    assert emitted_law(masses, 3) == list(RANKED)
    assert 1 - masses[2, ()] == Fraction(4, 5)


def test_case_a_by_the_match_rule():
    draft = Draft(np.array([0, 1], np.int32), np.zeros(2, np.int32))

    def run(coins):
        verdict = follow(draft, lambda node: coins.draw(node, RANKED))
        return emitted(draft, verdict)[0], verdict.path

    assert outcomes(run) == judged(ranked_tree, RANKED)


def test_case_a_without_renormalising_is_seen(monkeypatch):
    monkeypatch.setattr(rule, "residual", lambda p, q: np.maximum(p - q, 0))

    def run(coins):
        draft = ranked_tree()
        verdict = reject(draft, lambda node: RANKED, LastTokenTakesTheRest(coins))
        return emitted(draft, verdict)[0], verdict.path

    assert emitted_law(outcomes(run), 3) == [Fraction(1, 2), Fraction(3, 20), Fraction(7, 20)]


class LastTokenTakesTheRest:
    """What the unnormalised walk emits after both refusals: the only token left."""

    def __init__(self, coins):
        self.accept, self._coins = coins.accept, coins

    def draw(self, node, weights):
        return self._coins.draw(node, [0, 0, 1] if sum(weights) < 1 else weights)


def test_case_b_siblings_without_replacement():
    masses = judged(lambda coins: draw_tree(lambda _: DRAFTED, (), (2,), "distinct", coins), TARGET)
    assert emitted_law(masses, 3) == list(TARGET)


def test_case_b_with_the_unconditional_law_is_seen():
    def spoilt(coins):
        draft = draw_tree(lambda _: DRAFTED, (), (2,), "distinct", coins)
        return Draft(draft.tokens, draft.parents, "iid", draft.laws, draft.law_row)

    assert emitted_law(judged(spoilt, TARGET), 3) == [Fraction(1, 10), Fraction(11, 20), Fraction(7, 20)]


def weights(vocab):
    return st.lists(st.integers(0, 4), min_size=vocab, max_size=vocab).filter(any)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 4).flatmap(lambda v: st.tuples(weights(v), weights(v))),
    st.integers(1, 3),
    st.sampled_from(["iid", "distinct"]),
)
def test_kind_any_number_of_siblings(pair, width, kind):
    target, drafted = (law(*(Fraction(w, sum(numbers)) for w in numbers)) for numbers in pair)
    if width == 3 and len(target) == 4 and kind == "iid":
        width = 2  # keeps the enumeration small
    masses = judged(lambda coins: draw_tree(lambda _: drafted, (), (width,), kind, coins), target)
    assert emitted_law(masses, len(target)) == list(target)


@settings(max_examples=60, deadline=None)
@given(weights(4), st.permutations(range(4)), st.integers(1, 4))
def test_kind_ranked_siblings_in_any_order(numbers, order, width):
    target = law(*(Fraction(w, sum(numbers)) for w in numbers))
    masses = judged(lambda coins: siblings(order[:width], points(order[:width], 4)), target)
    assert emitted_law(masses, 4) == list(target)
    assert sum(m for (_, path), m in masses.items() if path) == sum(target[token] for token in order[:width])
