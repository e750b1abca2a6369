"""Shadow drafts: scored as real rounds would be, and never sent."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.drafters.shadow import Shadow, ShadowCounts
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, Draft

NOISE = PhiloxNoise()


def feed(shadow, item, tokens, text, budget=3, **params):
    """Decodes `text` plainly after `tokens`; checks that every draft is empty."""
    tokens = list(tokens)
    for token in text:
        assert len(shadow.propose([item(tokens, budget, **params)], NOISE)[0]) == 0
        shadow.observe([Commit(0, np.array([token], np.int32), range(1))])
        tokens.append(token)


def test_rounds_go_as_they_would_have_gone(item):
    """Drafts 5 6 7 each time: full acceptance and a bonus; a refusal at once; a refusal at the second."""
    shadow = Shadow(ScriptedDrafter(lambda _: [5, 6, 7]))
    feed(shadow, item, [0], [5, 6, 7, 1, 2, 5, 3])
    counts = shadow.take(0)
    assert counts == ShadowCounts(rounds=3, drafted=9, tested=3 + 1 + 2, accepted=3 + 0 + 1)
    assert shadow.take(0) == ShadowCounts()


def test_a_round_is_open_from_its_draft_to_its_correction_or_bonus(item):
    shadow = Shadow(ScriptedDrafter(lambda _: [5, 6]))
    assert not shadow.in_round(0)
    feed(shadow, item, [0], [5])
    assert shadow.in_round(0)
    feed(shadow, item, [0, 5], [6, 9])
    assert not shadow.in_round(0)


def test_trees_are_walked(item):
    tree = Draft(np.array([1, 2, 3], np.int32), np.array([0, 0, 2], np.int32))  # 1 | 2 -> 3
    shadow = Shadow(ScriptedDrafter(lambda _: tree))
    feed(shadow, item, [0], [2, 3, 9, 1, 9, 8])
    assert shadow.take(0) == ShadowCounts(rounds=3, drafted=9, tested=2 + 1 + 1, accepted=2 + 1 + 0)


def test_no_draft_is_no_round(item):
    shadow = Shadow(ScriptedDrafter(lambda _: []))
    feed(shadow, item, [0], [1, 2, 3])
    assert shadow.take(0) == ShadowCounts()


def test_a_prompt_chunk_commits_nothing(item):
    shadow = Shadow(ScriptedDrafter(lambda _: [5]))
    shadow.propose([item([0], 2)], NOISE)
    shadow.observe([Commit(0, np.zeros(0, np.int32), range(4))])
    assert shadow.in_round(0)


def test_counts_outlive_the_sequence_until_they_are_taken(item):
    shadow = Shadow(ScriptedDrafter(lambda _: [5]))
    feed(shadow, item, [0], [5])
    shadow.forget(0)
    assert not shadow.in_round(0)
    assert shadow.take(0).accepted == 1


def test_an_open_round_of_another_text_is_dropped(item):
    shadow = Shadow(ScriptedDrafter(lambda _: [5, 6, 7]))
    feed(shadow, item, [0], [5])
    shadow.propose([item([1, 2, 3, 4], 3)], NOISE)
    assert shadow.take(0).rounds == 2


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"temperature": 1.0, "rule": "reject"}, "coupled"),
        ({"temperature": 0.0, "rule": "reject"}, "reject"),
        ({"temperature": 1.0, "rule": "follow"}, "follow"),
    ],
)
def test_under_reject_the_race_is_drafted_for(params, rule, item):
    seen = []
    shadow = Shadow(ScriptedDrafter(lambda it: seen.append(it.params.rule) or [1]))
    shadow.propose([item([0], 2, **params)], NOISE)
    assert seen == [rule]


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_real_rounds_with_the_same_drafts(seed, item):
    """A real run is played on the same text: each round drafts, accepts what agrees, adds one token."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 3, 80).tolist()
    shadow = Shadow(NgramDrafter())
    feed(shadow, item, text[:10], text[10:], budget=4)
    drafter, at, real = NgramDrafter(), 10, ShadowCounts()
    while at < len(text):
        draft = drafter.propose([item(text[:at], 4)], NOISE)[0].tokens.tolist()
        agreed = 0
        while agreed < len(draft) and at + agreed < len(text) and draft[agreed] == text[at + agreed]:
            agreed += 1
        refused = agreed < len(draft) and at + agreed < len(text)
        real.rounds += bool(draft)
        real.drafted += len(draft)
        real.tested += agreed + refused
        real.accepted += agreed
        at += agreed + 1
    assert real.accepted > 0
    assert shadow.take(0) == real
