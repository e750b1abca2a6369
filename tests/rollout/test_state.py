"""Samples that can't be, and states that go through JSON bit by bit or are refused."""

import copy
import json
import math

import pytest

from draftproof.errors import InputError
from draftproof.rollout import RolloutState, Sample
from draftproof.rollout.codec import copied, plain, read
from draftproof.rollout.sums import Sums


@pytest.mark.parametrize(
    "changes",
    [
        {"itl": -0.1},
        {"itl": math.nan},
        {"itl": math.inf},
        {"time": math.nan},
        {"time": math.inf},
        {"tokens": -1},
        {"mode": "maybe"},
        {"share": 1.5},
        {"share": -0.5},
    ],
)
def test_samples_that_can_not_be(sample, changes):
    sample()
    with pytest.raises(ValueError, match=r"no sample|no counts"):
        sample(**changes)


def test_a_plain_request_drafts_nothing():
    with pytest.raises(ValueError, match="no counts of drafts"):
        Sample("b", "off", 0.0, None, None, 1, 3, 3, 1, False)


@pytest.fixture
def state(drive):
    one = drive(buckets={}).to_full("b", "c").send(700).send(60, "c", share=0.1).send(30, "d")
    one.rollout.stop("d", one.now)
    return one.rollout.state


def test_json_keeps_every_bit(state):
    text = json.dumps(state.to_json(), allow_nan=False)
    back = RolloutState.from_json(json.loads(text))
    assert back == state
    assert json.dumps(back.to_json()) == text
    assert list(back.buckets) == ["b", "c", "d"]


def test_a_copy_shares_nothing(state):
    before = plain(state)
    other = copied(state)
    assert other == state
    other.buckets["b"].watch.floor.bets.wealth[0] = 7.0
    other.buckets["b"].totals.requests["on"] = -1
    other.buckets["b"].evidence.drafts.a = 0.5
    del other.buckets["c"]
    assert plain(state) == before


def damaged(value):
    """(what was done, the value) for many single damages."""
    for path, change in [
        (["time"], "now"),
        (["time"], float("nan")),
        (["stopped"], 1),
        (["buckets"], []),
        (["buckets", "b", "stage"], "huge"),
        (["buckets", "b", "setbacks"], 1.5),
        (["buckets", "b", "watch", "floor", "bets", "wealth"], ["1"]),
        (["buckets", "b", "evidence", "drafts", "requests"], None),
        (["buckets", "b", "totals", "requests", "on"], "7"),
    ]:
        other = copy.deepcopy(value)
        place = other
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = change
        yield f"{path} = {change}", other
    for path in (["stopped"], ["buckets", "b", "watch", "price"]):
        other = copy.deepcopy(value)
        place = other
        for name in path[:-1]:
            place = place[name]
        del place[path[-1]]
        yield f"without {path}", other
        place[path[-1]], place["more"] = 1, 2
        yield f"more than {path}", other


def test_what_is_no_state_is_refused(state):
    for what, value in damaged(state.to_json()):
        with pytest.raises(InputError) as caught:
            RolloutState.from_json(value)
        assert str(caught.value).startswith("this is no state of a rollout: state"), what
    for value in (None, [], "state", 7):
        with pytest.raises(InputError):
            RolloutState.from_json(value)


def test_numbers_may_be_written_without_a_point():
    assert read(Sums, {**plain(Sums()), "a": 3}).a == 3.0
    with pytest.raises(ValueError, match=r"state\.requests"):
        read(Sums, {**plain(Sums()), "requests": True})
