"""Keys stay where they are, shares are what they say, and a changed policy finds the nearest step."""

from itertools import pairwise

import numpy as np
import pytest

from draftproof.rollout import ladder
from draftproof.rollout.policy import BucketPolicy


def test_the_steps_ascend():
    policy = BucketPolicy(wide_shares=(0.2, 0.4, 0.8), holdout=0.1)
    steps = ladder.steps(policy)
    assert [stage for stage, _ in steps] == ["off", "shadow", "canary", "wide", "wide", "wide", "full"]
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1] == ("full", 0.9)
    for step, following in pairwise(steps):
        assert ladder.following(step, policy) == following
    assert ladder.following(steps[-1], policy) is None
    assert ladder.steps(BucketPolicy(wide_shares=()))[3][0] == "full"


def test_keys_are_spread_evenly_and_apart_between_buckets():
    places = np.array([[ladder.place_of("", bucket, f"k{i}") for i in range(20_000)] for bucket in "ab"])
    assert (places >= 0).all()
    assert (places < 1).all()
    for row in places:
        counts = np.histogram(row, 20, (0, 1))[0]
        assert abs(counts - 1000).max() < 150
    assert abs(np.corrcoef(places)[0, 1]) < 0.03
    salted = [ladder.place_of("other", "a", f"k{i}") for i in range(20_000)]
    assert abs(np.corrcoef(places[0], salted)[0, 1]) < 0.03


def test_the_place_of_a_key_is_for_good():
    """Written down: another value would move every user at the next update."""
    assert ladder.place_of("", "chat", "user-1") == 0.7167005953528772
    assert ladder.place_of("s", "chat", "user-1") != ladder.place_of("", "schat", "user-1")
    assert 0 <= ladder.place_of("", "b", "\ud800 lone surrogate") < 1


@pytest.mark.parametrize(
    ("stage", "share", "nearest"),
    [
        ("off", 0.0, ("off", 0.0)),
        ("shadow", 0.0, ("shadow", 0.0)),
        ("canary", 0.5, ("canary", 0.05)),
        ("canary", 0.01, ("canary", 0.05)),
        ("wide", 0.3, ("wide", 0.25)),
        ("wide", 0.25, ("wide", 0.25)),
        ("wide", 0.9, ("wide", 0.5)),
        ("wide", 0.1, ("canary", 0.05)),
        ("full", 0.5, ("full", 0.95)),
    ],
)
def test_a_changed_policy_finds_the_nearest_step(stage, share, nearest):
    assert ladder.nearest(stage, share, BucketPolicy()) == nearest
