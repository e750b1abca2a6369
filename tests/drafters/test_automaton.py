"""The suffix automaton against all substrings, one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.automaton import SuffixAutomaton

texts = st.lists(st.integers(0, 2), max_size=25)


def ends_of(text, word):
    """Indices of the last token of each occurrence."""
    return [end - 1 for end in range(len(word), len(text) + 1) if text[end - len(word) : end] == word]


def state_of(automaton, word):
    state = 0
    for token in word:
        state = automaton.next[state].get(token)
        if state is None:
            return None
    return state


@given(texts, st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_counts_and_ends_of_every_substring(text, other):
    automaton = SuffixAutomaton()
    automaton.extend(text)
    for start in range(len(text)):
        for stop in range(start + 1, len(text) + 1):
            word = text[start:stop]
            state, ends = state_of(automaton, word), ends_of(text, word)
            assert automaton.counts[state] == len(ends)
            assert automaton.ends[state] == ends[-1]
            assert automaton.earlier[state] == (ends[-2] if len(ends) > 1 else -1)
            assert automaton.lengths[automaton.links[state]] < len(word) <= automaton.lengths[state]
    assert (state_of(automaton, other) is not None) == bool(ends_of(text, other))


@given(texts, st.lists(st.integers(0, 3), max_size=25))
def test_a_foreign_text_is_followed_by_its_longest_suffix(text, foreign):
    automaton = SuffixAutomaton()
    automaton.extend(text)
    state = length = 0
    for index, token in enumerate(foreign):
        state, length = automaton.step(state, length, token)
        seen = foreign[: index + 1]
        assert length == max(n for n in range(index + 2) if n == 0 or ends_of(text, seen[len(seen) - n :]))
        assert state == state_of(automaton, seen[len(seen) - length :])


def test_the_size_stays_linear_and_a_constant_text_is_no_trap():
    automaton = SuffixAutomaton()
    automaton.extend([1] * 20_000)  # without the cap on the marked path: 2 * 10**8 steps
    assert len(automaton.links) == 20_001
    automaton.extend(list(range(2, 500)) * 2)
    assert len(automaton.links) <= 2 * len(automaton.text)
