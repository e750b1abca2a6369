"""Known ways to get speculative sampling wrong, planted on purpose: the law test must see each of them.

Each mutant is the production code with one thing done wrong, beside the right way on the same laws as a control.
"""

import importlib
from fractions import Fraction

import numpy as np
import pytest

from draftproof.rules import emitted, reject
from draftproof.rules.law import ScriptedCoins, outcomes, plain_law, sequence_law
from draftproof.rules.rehearse import draw_tree, judge, reject_round
from draftproof.types import Draft, chain

module = importlib.import_module("draftproof.rules.reject")  # the package has a function of that name


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def varying(laws):
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


TARGET = varying([law(1, 4, 5), law(1, 1, 8), law(2, 5, 3), law(4, 4, 2)])
DRAFTED = varying([law(6, 3, 1), law(3, 4, 3), law(1, 7, 2)])


def first(coins_to_tokens):
    """Exact law of the first emitted token."""
    return outcomes(lambda coins: coins_to_tokens(coins)[:1])


def single(drawn_from, reported, coins):
    """One candidate, drawn from one law and judged as if from another."""
    draft = chain([coins.draw(0, drawn_from)], "iid", np.stack([reported]))
    return emitted(draft, judge(TARGET, (), draft, coins))


def siblings_round(coins, branching=(2,), siblings="iid"):
    return reject_round(TARGET, DRAFTED, (), branching, siblings, coins)


def test_the_control_passes():
    assert first(lambda coins: single(DRAFTED(()), DRAFTED(()), coins)) == plain_law(TARGET, 1)
    for siblings in ("iid", "distinct"):
        assert first(lambda coins, s=siblings: siblings_round(coins, siblings=s)) == plain_law(TARGET, 1)
    assert sequence_law(lambda t, c: reject_round(TARGET, DRAFTED, t, (1, 1), "iid", c), 2) == plain_law(TARGET, 2)


def test_raw_law_in_the_ratio():
    truncated = law(6, 3, 0)  # top-k of the draft's raw law
    assert first(lambda coins: single(truncated, truncated, coins)) == plain_law(TARGET, 1)
    assert first(lambda coins: single(truncated, DRAFTED(()), coins)) != plain_law(TARGET, 1)


def test_law_from_before_top_p_in_the_ratio():
    before, after = law(4, 3, 2), law(4, 3, 0)
    assert first(lambda coins: single(after, before, coins)) != plain_law(TARGET, 1)


def test_soft_law_for_an_argmax_draft():
    point = law(1, 0, 0)
    assert first(lambda coins: single(point, point, coins)) == plain_law(TARGET, 1)
    assert first(lambda coins: single(point, DRAFTED(()), coins)) != plain_law(TARGET, 1)


def undivided(target_law, draft_law):
    """The positive part of the difference, not divided by its sum."""
    left = np.maximum(target_law - draft_law, 0)
    return left if left.sum() > 0 else None


@pytest.mark.parametrize("siblings", ["iid", "distinct"])
def test_sibling_without_renormalising_the_target(monkeypatch, siblings):
    monkeypatch.setattr(module, "residual", undivided)
    assert first(lambda coins: siblings_round(coins, siblings=siblings)) != plain_law(TARGET, 1)


def test_residual_drawn_without_being_divided_by_its_sum(monkeypatch):
    class Undivided(ScriptedCoins):
        def draw(self, node, weights):
            rest = 1 - sum(weights)  # the missing mass falls to the last token
            return super().draw(node, [*weights[:-1], weights[-1] + rest])

    def run(coins):
        draft = chain([coins.draw(0, DRAFTED(()))], "iid", np.stack([DRAFTED(())]))
        return emitted(draft, judge(TARGET, (), draft, coins))

    assert first(lambda coins: run(as_kind(coins, Undivided))) == plain_law(TARGET, 1)
    monkeypatch.setattr(module, "residual", undivided)
    assert first(lambda coins: run(as_kind(coins, Undivided))) != plain_law(TARGET, 1)


def as_kind(coins, kind):
    """The enumerator's coins, with some of their answers spoilt."""
    coins.__class__ = kind
    return coins


def test_residual_through_a_softmax(monkeypatch):
    def softmax(p, q):
        left = np.exp(np.maximum(p - q, 0).astype(float))
        exact = np.array([Fraction(x) for x in left], dtype=object)
        return exact / exact.sum()

    monkeypatch.setattr(module, "residual", softmax)
    assert first(lambda coins: siblings_round(coins, (1,))) != plain_law(TARGET, 1)


def test_redraw_from_the_target_instead_of_the_residual(monkeypatch):
    monkeypatch.setattr(module, "residual", lambda p, q: p)
    assert first(lambda coins: siblings_round(coins, (1,))) != plain_law(TARGET, 1)
    # and with the very numbers of the worked example
    target, drafted = law(3, 2), law(4, 1)
    wrong = outcomes(lambda coins: reject_round(lambda _: target, lambda _: drafted, (), (1,), "iid", coins)[0])
    assert wrong == {0: Fraction(18, 25), 1: Fraction(7, 25)}


def test_bonus_from_the_row_of_the_last_draft_token():
    def one_round(tokens, coins):
        draft = draw_tree(DRAFTED, tokens, (1,), "iid", coins)
        verdict = reject(draft, lambda node: TARGET(tokens), coins)  # node 1 reads the row of the root
        return emitted(draft, verdict)

    assert sequence_law(one_round, 2) != plain_law(TARGET, 2)


def test_distinct_siblings_judged_by_the_unconditional_law():
    def run(coins):
        draft = draw_tree(DRAFTED, (), (2,), "distinct", coins)
        spoilt = Draft(draft.tokens, draft.parents, "iid", draft.laws, draft.law_row)
        return emitted(spoilt, judge(TARGET, (), spoilt, coins))

    assert first(run) != plain_law(TARGET, 1)


def test_iid_siblings_judged_as_distinct():
    def run(coins):
        draft = draw_tree(DRAFTED, (), (2,), "iid", coins)
        spoilt = Draft(draft.tokens, draft.parents, "distinct", draft.laws, draft.law_row)
        return emitted(spoilt, judge(TARGET, (), spoilt, coins))

    assert first(run) != plain_law(TARGET, 1)


class OneNumber(ScriptedCoins):
    """All tests of a round share one uniform number; what is known of it is the interval it lies in."""

    low, high = Fraction(0), Fraction(1)

    def accept(self, node, target_mass, draft_mass):
        cut = min(max(Fraction(target_mass) / draft_mass, self.low), self.high)
        share = (cut - self.low) / (self.high - self.low)
        passed = self._branch([(True, share), (False, 1 - share)])
        self.low, self.high = (self.low, cut) if passed else (cut, self.high)
        return passed


@pytest.mark.parametrize(("branching", "siblings", "num_tokens"), [((1, 1), "iid", 2), ((2,), "iid", 1)])
def test_one_uniform_for_two_tests(branching, siblings, num_tokens):
    def one_round(tokens, coins):
        if tokens:
            return (coins.draw(0, TARGET(tokens)),)
        return reject_round(TARGET, DRAFTED, tokens, branching, siblings, as_kind(coins, OneNumber))

    assert sequence_law(one_round, num_tokens) != plain_law(TARGET, num_tokens)


def test_one_uniform_is_right_where_there_is_one_test():
    assert first(lambda coins: siblings_round(as_kind(coins, OneNumber), (1,))) == plain_law(TARGET, 1)


def test_penalties_frozen_for_the_round():
    def penalised(tokens):  # a token that was emitted weighs a third
        return law(*(6 if token not in tokens else 2 for token in range(3)))

    def one_round(tokens, coins, frozen):
        draft = draw_tree(DRAFTED, tokens, (1, 1), "iid", coins)
        target = (lambda _: penalised(tokens)) if frozen else penalised
        return emitted(draft, judge(target, tokens, draft, coins))

    assert sequence_law(lambda t, c: one_round(t, c, False), 2) == plain_law(penalised, 2)
    assert sequence_law(lambda t, c: one_round(t, c, True), 2) != plain_law(penalised, 2)


def test_first_draft_token_unverified():
    def run(coins):
        token = coins.draw(0, DRAFTED(()))
        draft = draw_tree(DRAFTED, (token,), (1,), "iid", coins)
        return (token, *emitted(draft, judge(TARGET, (token,), draft, coins)))

    assert first(run) != plain_law(TARGET, 1)


def test_a_number_of_siblings_that_depends_on_dropped_tokens():
    """D2: drawing until the candidates differ, and keeping the last two, is a choice made after seeing them."""

    def run(coins):
        tokens = [coins.draw(0, DRAFTED(())) for _ in range(2)]
        if tokens[0] == tokens[1]:
            tokens[1] = coins.draw(0, DRAFTED(()))
        zeros = np.zeros(2, np.int32)
        draft = Draft(np.array(tokens, np.int32), zeros, "iid", np.stack([DRAFTED(())]), zeros)
        return emitted(draft, judge(TARGET, (), draft, coins))

    assert first(run) != plain_law(TARGET, 1)
