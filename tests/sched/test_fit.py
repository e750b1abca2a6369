"""Drafts cut once they are there: to what pays in the step as it is, and never where a length could change a text."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.adaptive import AdaptiveGamma, ExtraCosts
from draftproof.sched.fit import fitted, may_be_cut
from draftproof.sched.policy import Ask, FixedGamma, Offer, StepRows
from draftproof.types import EMPTY_DRAFT, EMPTY_IDS, Commit, Draft, SamplingParams, StepItem, Verdict, chain

PARAMS = SamplingParams(seed=0)
SAMPLED = {
    rule: SamplingParams(seed=0, temperature=0.8, rule=rule) for rule in ("reject", "block", "coupled", "follow")
}


def item(seq, params=PARAMS, *, prompt_len=4, length=6, feed=1):
    tokens = np.arange(length, dtype=np.int32)
    return StepItem(
        seq, tokens, prompt_len, pending=1 if feed == 1 else length, feed=feed, budget=8, params=params, round=1
    )


def outcome(seq, drafted, accepted):
    tested = min(drafted, accepted + 1)
    return Commit(seq, EMPTY_IDS, range(1), None, Verdict((), 0, "bonus", tested), drafted, tested, accepted)


def taught(alphas, rounds=60, cost=lambda rows: 10.0 + rows, **more):
    """A policy that has seen each sequence's drafts of 4 accepted with its chance (known seed)."""
    policy, rng = AdaptiveGamma(8, cost, **more), np.random.default_rng(0)
    policy.budgets([Ask(seq, PARAMS, 8) for seq in range(len(alphas))])
    for _ in range(rounds):
        runs = [next((k for k in range(4) if rng.random() >= alpha), 4) for alpha in alphas]
        policy.observe([outcome(seq, 4, run) for seq, run in enumerate(runs)])
    return policy


@given(st.lists(st.integers(1, 8), min_size=1, max_size=3), st.integers(0, 12), st.integers(0, 30), st.integers(0, 5))
def test_the_lengths_are_those_with_most_tokens_per_time(lengths, others, shape, seed):
    """Against every choice there is."""
    rng = np.random.default_rng(seed)
    policy = taught(rng.random(len(lengths)).tolist(), 20, costs=ExtraCosts(sequence=0.4, drafting=50.0))
    num = len(lengths) + 1

    def like(rows):
        return float(shape) if rows <= shape else rows + 4.0

    step = StepRows(num, num + others, like)
    got = policy.worth([Offer(seq, length) for seq, length in enumerate(lengths)], step)

    def rate(kept):
        gains = sum(policy._records[seq].reach[:length].sum() for seq, length in enumerate(kept))
        return (num + gains) / (10.0 + like(num + others + sum(kept)) + 0.4 * (num - 1))

    best = max(rate(kept) for kept in itertools.product(*(range(length + 1) for length in lengths)))
    assert all(0 <= kept <= length for kept, length in zip(got, lengths, strict=True))
    assert rate(got) == pytest.approx(best, rel=1e-12)


def test_one_draft_does_not_pay_for_another_width_where_many_would():
    policy = taught([0.6] * 8, cost=lambda rows: 10.0 + 0.3 * rows)

    def like(rows):
        return float(rows) if rows == 8 else rows + 8.0

    assert policy.worth([Offer(0, 4)], StepRows(8, 8, like)) == [0]
    assert policy.worth([Offer(0, 4)], StepRows(8, 8)) != [0]
    assert sum(policy.worth([Offer(seq, 4) for seq in range(8)], StepRows(8, 8, like))) > 8


def test_what_was_cut_is_tried_again_where_that_is_cheap_and_else_after_four_times_as_long():
    def waits(like, rounds=700):
        policy, tried = taught([0.0], 40), []
        for _ in range(rounds):
            (budget,) = policy.budgets([Ask(0, PARAMS, 8)])
            (kept,) = policy.worth([Offer(0, budget)], StepRows(1, 1, like)) if budget else (0,)
            policy.observe([outcome(0, kept, 0)])
            tried.append(kept)
        assert max(tried) == 1
        return (np.diff(np.flatnonzero(tried)) - 1).tolist()

    assert waits(float)[:5] == [16, 32, 64, 128, 256]
    assert waits(lambda rows: rows if rows == 1 else rows + 9.0)[:3] == [64, 128, 256]


def test_a_fixed_length_and_a_stranger_are_left_alone():
    offers = [Offer(0, 3), Offer(1, 5)]
    assert FixedGamma(9).worth(offers, StepRows(2, 2, lambda rows: rows * 100.0)) == [3, 5]
    assert AdaptiveGamma(8, lambda rows: rows**3).worth(offers, StepRows(2, 2)) == [3, 5]


class Scissors(FixedGamma):
    """Cuts everything it is offered."""

    def __init__(self):
        super().__init__(8)
        self.steps = []

    def worth(self, offers, step):
        self.steps.append((list(offers), step.num_sequences, step.rows, step.like(7)))
        return [0] * len(offers)


LAWS = np.full((2, 4), 0.25, np.float32)
TREE = Draft(np.array([1, 2], np.int32), np.array([0, 0], np.int32))


@pytest.mark.parametrize(
    ("draft", "params", "cut"),
    [
        (chain([1, 2]), PARAMS, True),
        (chain([1, 2]), SAMPLED["coupled"], True),
        (chain([1, 2]), SAMPLED["follow"], True),
        (chain([1, 2]), SAMPLED["reject"], False),  # its numbers are keyed by round: another length, another text
        (chain([1, 2]), SAMPLED["block"], False),
        (chain([1, 2], "iid", LAWS), PARAMS, False),  # drawn: dropping a token is not for those who have seen it (D2)
        (chain([1, 2], "distinct", LAWS), SAMPLED["coupled"], False),
        (chain([1, 2], "fixed", LAWS), PARAMS, False),
        (TREE, PARAMS, False),
        (EMPTY_DRAFT, PARAMS, False),
    ],
)
def test_only_chains_whose_length_changes_no_text_are_cut(draft, params, cut):
    assert may_be_cut(item(0, params), draft) == cut
    policy = Scissors()
    (found,) = fitted(policy, [item(0, params)], [draft], float)
    assert len(found) == (0 if cut else len(draft))
    assert bool(policy.steps) == cut
    if not cut:
        assert found is draft


def test_the_step_that_is_judged_holds_everybodys_rows():
    policy, like = Scissors(), lambda rows: 99.0
    items = [item(0), item(1, SAMPLED["reject"]), item(2)]
    found = fitted(policy, items, [chain([1, 2, 3]), chain([1, 2]), chain([7])], like)
    assert [len(draft) for draft in found] == [0, 2, 0]
    assert policy.steps == [([Offer(0, 3), Offer(2, 1)], 3, 3 + 2, 99.0)]
    prompt = item(3, prompt_len=40, length=40, feed=20)
    fitted(policy, [item(0), prompt], [chain([1]), EMPTY_DRAFT], like)
    assert policy.steps[1] == ([Offer(0, 1)], 1, 21, 7.0)  # a prompt's width is new whatever is drafted
