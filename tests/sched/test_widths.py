"""A width that is not ready is taken once steps have lost what it costs, and not for what comes now and then."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.sched.adaptive import AdaptiveGamma
from draftproof.sched.policy import Ask, Offer, StepRows
from draftproof.sched.widths import _MOST, Widths
from draftproof.types import EMPTY_IDS, Commit, SamplingParams, Verdict

TIMES = np.arange(100, dtype=float)  # a row costs 1
PARAMS = SamplingParams(seed=0)


def all_accepted(drafted):
    """What became of a draft of sequence 0."""
    return Commit(0, EMPTY_IDS, range(1), None, Verdict((), 0, "bonus", drafted), drafted, drafted, drafted)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=60), st.floats(0.5, 20.0))
def test_a_width_is_taken_as_soon_as_its_price_was_lost(losses, price):
    widths, lost = Widths(), 0.0
    for loss in losses:
        lost += loss
        taken = widths.wanted(4, loss, price)
        assert taken == (lost >= price)
        if taken:
            lost = 0.0  # it counts from the start again


def test_widths_are_counted_apart():
    widths = Widths()
    assert not widths.wanted(4, 3.0, 5.0)
    assert not widths.wanted(5, 3.0, 5.0)
    assert widths.wanted(4, 3.0, 5.0)
    assert widths.wanted(5, 3.0, 5.0)


def test_what_a_width_would_cost_others_is_taken_off():
    widths = Widths()
    for _ in range(200):
        assert not widths.wanted(4, 1.5, 5.0)
        widths.unwanted(2, 2.0, TIMES)  # at 4 rows this step would take 2 more
    assert not widths.wanted(4, 4.0, 5.0)
    widths.unwanted(4, 2.0, TIMES)  # one that wishes for as many itself takes nothing off
    widths.unwanted(9, 2.0, TIMES)
    widths.unwanted(2, 9.0, TIMES)  # and one that is as slow already gives nothing back
    assert widths.wanted(4, 1.0, 5.0)


@pytest.mark.parametrize(("loss", "price"), [(-1.0, 5.0), (0.0, 0.0), (-3.0, -2.0), (1.0, -2.0)])
def test_what_saves_nothing_is_never_taken(loss, price):
    """A measured curve may say that three rows cost more than four."""
    widths = Widths()
    assert not any(widths.wanted(4, loss, price) for _ in range(50))
    assert all(lost > 0 for lost in widths._lost.values())


def test_few_widths_are_remembered():
    widths = Widths()
    for rows in range(1, 3 * _MOST):
        assert not widths.wanted(rows, rows / 1000, 10.0)
    assert len(widths._lost) == _MOST
    assert not widths.wanted(3 * _MOST - 1, 1.0, 10.0)  # the one with most behind it is still known
    assert widths.wanted(3 * _MOST - 1, 9.0 - (3 * _MOST - 1) / 1000 + 1e-9, 10.0)


class Shapes:
    """One shape that is ready; a step that does not fit it prepares its own."""

    def __init__(self, ready, price):
        self.ready, self.price, self.changes = ready, price, 0

    def like(self, rows):
        return float(self.ready) if 0 <= self.ready - rows <= 2 else rows + self.price

    def run(self, rows):
        if self.like(rows) != self.ready:
            self.ready, self.changes = rows, self.changes + 1


def lengths(offers, price=8.0):
    """How much of each offer of one sequence goes to the target, and how often its steps changed their shape.

    Its drafts are accepted always: with a shape for each width, all of every offer would go.
    """
    policy, shapes, kept = AdaptiveGamma(8, lambda rows: 10.0 + rows), Shapes(2, price), []
    policy.budgets([Ask(0, PARAMS, 8)])
    policy.observe([all_accepted(8)] * 40)
    for length in offers:
        kept += policy.worth([Offer(0, length)], StepRows(1, 1, shapes.like))
        shapes.run(1 + kept[-1])
    return kept, shapes.changes


def test_drafts_that_come_again_and_again_get_their_width():
    kept, changes = lengths([2] * 12, price=30.0)
    assert kept[0] == 1  # the first one alone would not pay for it
    assert kept == sorted(kept)
    assert kept[-1] == 2
    assert changes == 1


def test_drafts_that_come_now_and_then_do_not():
    kept, changes = lengths(([1] * 30 + [2]) * 20, price=30.0)
    assert max(kept) == 1
    assert changes == 0


def test_steps_without_drafts_count_against_a_width():
    def asked(between):
        policy, shapes = AdaptiveGamma(8, lambda rows: 10.0 + rows), Shapes(2, 30.0)
        policy.budgets([Ask(0, PARAMS, 8)])
        policy.observe([all_accepted(8)] * 40)
        kept = []
        for _ in range(40):
            kept += policy.worth([Offer(0, 2)], StepRows(1, 1, shapes.like))
            policy.observe([all_accepted(kept[-1])])
            for _ in range(between):
                policy.observe([all_accepted(0)])
        return max(kept)

    assert asked(0) == 2
    assert asked(30) == 1


def test_what_pays_at_once_is_taken_at_once():
    kept, changes = lengths([8, 1, 1], price=2.0)
    assert (kept[0], changes) == (8, 2)


@pytest.mark.parametrize("rows", [3, 4])
def test_padding_to_what_is_ready_is_no_wait(rows):
    policy, shapes = AdaptiveGamma(8, lambda rows: 10.0 + rows), Shapes(rows, 30.0)
    policy.budgets([Ask(0, PARAMS, 8)])
    policy.observe([all_accepted(8)] * 40)
    for _ in range(40):
        assert policy.worth([Offer(0, rows - 1)], StepRows(1, 1, shapes.like)) == [rows - 1]
    assert not policy._widths._lost
