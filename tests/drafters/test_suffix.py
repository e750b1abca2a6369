"""The suffix drafter against its definition spelled out on substrings, its memory, and what it costs."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.memory import Memory
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.errors import UnknownDrafter


def ends_of(text, word):
    return [end - 1 for end in range(len(word), len(text) + 1) if text[end - len(word) : end] == word]


def spelled_out(text, budget, min_match, min_probability, stop_ids):
    """The walk of the module's docstring, with every count taken anew from the text."""
    last = len(text) - 1
    word = next((text[i:] for i in range(1, len(text)) if len(ends_of(text, text[i:])) > 1), [])
    draft, sure = [], 1.0
    while len(draft) < budget:
        while len(word) >= min_match and not [end for end in ends_of(text, word) if end < last]:
            word = word[1:]
        if len(word) < min_match:
            break
        ends = [end for end in ends_of(text, word) if end < last]
        token = text[ends[-1] + 1]
        count = len(ends_of(text, [*word, token]))
        if 2 * count < len(ends):
            following = {text[end + 1] for end in ends}
            token = max(following, key=lambda t: (len(ends_of(text, [*word, t])), ends_of(text, [*word, t])[-1]))
            count = len(ends_of(text, [*word, token]))
        sure *= count / (len(ends) + 1 / len(word))
        if sure < min_probability:
            break
        draft.append(token)
        if token in stop_ids:
            break
        word = [*word, token]
    return draft


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([0.01, 0.1, 0.2, 0.37, 0.6]),
    st.frozensets(st.integers(0, 3), max_size=1),
)
def test_equals_its_definition_at_every_length(drafted, tokens, budget, min_match, min_probability, stop_ids):
    drafter = SuffixDrafter(min_match, min_probability)
    for length in range(1, len(tokens) + 1):
        wanted = spelled_out(tokens[:length], budget, min_match, min_probability, stop_ids)
        assert drafted(drafter, tokens[:length], budget, stop_ids=stop_ids) == wanted


def test_long_matches_get_long_drafts(drafted):
    """L tokens seen once: the k-th draft has estimated probability L / (L + k)."""
    for length in (2, 4, 7):
        text = [*range(100), 200, *range(50, 50 + length)]
        draft = drafted(SuffixDrafter(min_probability=0.3), text, 40)
        assert draft == list(range(50 + length, 50 + length + int(length * (1 / 0.3 - 1))))


def test_the_most_recent_continuation_unless_the_past_says_otherwise(drafted):
    drafter = SuffixDrafter(min_probability=0.05)
    assert drafted(drafter, [1, 2, 9, 1, 2, 7, 1, 2], 1) == [7]
    assert drafted(drafter, [1, 2, 9, 1, 2, 9, 1, 2, 9, 1, 2, 7, 1, 2], 1, seq=1) == [9]


def test_one_token_is_continued_while_the_past_agrees(drafted):
    """Seen once: 1/2, then 1/2 * 2/3, ...; seen with five different continuations: 1/6 is too little."""
    assert drafted(SuffixDrafter(), [5, 6, 7, 8, 9, 5], 9) == [6, 7, 8, 9]
    assert drafted(SuffixDrafter(), [5, 6, 5, 7, 5, 8, 5, 9, 5, 4, 5], 9) == []


def test_loops_are_drafted_around(drafted):
    assert drafted(SuffixDrafter(), [4, *[1, 2, 3] * 6], 7) == [1, 2, 3, 1, 2, 3, 1]
    assert drafted(SuffixDrafter(), [5] * 100, 6) == [5] * 6


def test_memory_is_off_by_default(drafted):
    drafter = SuffixDrafter()
    drafted(drafter, list(range(20)), seq=0)
    drafter.forget(0)
    assert drafted(drafter, [30, 4, 5, 6], seq=1) == []


def test_memory_continues_finished_requests_only(drafted):
    drafter = SuffixDrafter(memory_tokens=1000)
    assert drafted(drafter, list(range(20)), seq=0) == []
    assert drafted(drafter, [30, 4, 5, 6], seq=1) == []
    drafter.forget(0)
    assert drafted(drafter, [30, 4, 5, 6], seq=1) == [7, 8, 9]  # a running request finds what finished meanwhile
    assert drafted(drafter, [31, 10, 11], seq=0) == [12, 13, 14]
    drafter.forget(1)
    assert drafted(drafter, [30, 4, 5], seq=2, budget=9) == [6]  # where that request ended


def test_the_own_text_wins_a_tie_and_the_longer_match_wins_else(drafted):
    drafter = SuffixDrafter(memory_tokens=1000)
    drafted(drafter, [1, 2, 3, 4, 5], seq=0)
    drafter.forget(0)
    assert drafted(drafter, [3, 4, 9, 3, 4], 1, seq=1) == [9]
    assert drafted(drafter, [3, 4, 9, 2, 3, 4], 1, seq=2) == [5]


def test_no_match_crosses_from_one_request_into_the_next(drafted):
    drafter = SuffixDrafter(min_match=2, memory_tokens=1000, min_probability=0.01)
    for text in ([1, 2, 3], [4, 5, 6]):
        drafted(drafter, text, seq=0)
        drafter.forget(0)
    assert drafted(drafter, [9, 1, 2], 8, seq=1) == [3]
    assert drafted(drafter, [9, 2, 3], 8, seq=2) == []
    assert drafted(drafter, [3, 4], 8, seq=3) == []


def test_refused_drafts_never_reach_the_memory(drafted):
    drafter = SuffixDrafter(memory_tokens=1000)
    assert drafted(drafter, [1, 2, 3, 1, 2], 1, seq=0) == [3]
    drafted(drafter, [1, 2, 3, 1, 2, 8], 1, seq=0)  # 3 was refused
    drafter.forget(0)
    assert drafted(drafter, [7, 3, 1, 2], 1, seq=1) == [8]


@given(st.lists(st.lists(st.integers(0, 5), max_size=40), max_size=30), st.integers(1, 60))
def test_the_memory_is_bounded_and_keeps_the_newest(texts, capacity):
    memory = Memory(capacity)
    for text in texts:
        memory.add(text)
        assert len(memory) <= capacity
        half = capacity // 2
        kept = text[-(half - 1) :] if half > 1 else []
        if kept:
            assert memory.generations[-1].text[-len(kept) - 1 : -1] == kept
    separators = [token for generation in memory.generations for token in generation.text if token < 0]
    assert len(set(separators)) == len(separators)


def test_the_memory_evicts_the_oldest(drafted):
    drafter = SuffixDrafter(memory_tokens=100)
    for start in range(0, 1000, 20):
        drafted(drafter, list(range(start, start + 20)), seq=0)
        drafter.forget(0)
    assert drafted(drafter, [5, 985, 986], 2, seq=1) == [987, 988]
    assert drafted(drafter, [5, 105, 106], 2, seq=2) == []


def test_a_call_costs_tens_of_microseconds(item):
    """A text of 6 000 tokens that repeats itself, committed three tokens at a time; with a memory."""
    rng = random.Random(0)
    phrases = [[int(rng.paretovariate(0.6)) % 40_000 for _ in range(12)] for _ in range(200)]
    text = [token for _ in range(500) for token in rng.choice(phrases)]
    drafter, spent = SuffixDrafter(memory_tokens=20_000), []
    drafter.propose([item(text[:3000], 8, 1)], None)
    drafter.forget(1)
    for length in range(3000, 6000, 3):
        items = [item(text[:length], 8)]
        begin = time.perf_counter()
        drafter.propose(items, None)
        spent.append(time.perf_counter() - begin)
    assert np.median(spent[1:]) < 500e-6  # the machine is shared: measured 35e-6; a rebuild costs 10e-3


@pytest.mark.parametrize(
    "options", [{"min_match": 0}, {"min_probability": 0.0}, {"min_probability": 1.0}, {"memory_tokens": 0}]
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(UnknownDrafter, match=next(iter(options))):
        SuffixDrafter(**options)
