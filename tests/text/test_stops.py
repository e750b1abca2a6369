"""The automaton finds what a search of the whole text finds, however the text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftproof.text.stops import Match, StopSearch

LETTERS = st.text(alphabet="ab", max_size=30)


def test_the_first_start_wins_among_those_that_end_in_one_piece() -> None:
    assert StopSearch(["cd", "bc", "abcde"]).feed("abcde") == Match(0, 5, "abcde")
    assert StopSearch(["ab", "a"]).feed("ab") == Match(0, 1, "a")


def test_a_copy_goes_its_own_way() -> None:
    search = StopSearch(["abc"])
    search.feed("xab")
    assert search.copy().feed("c") == Match(1, 4, "abc")
    assert search.held == 2
    assert search.feed("x") is None
    assert search.held == 0


@given(stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=6), max_size=4), pieces=st.lists(LETTERS, max_size=5))
def test_finds_and_holds_what_a_whole_search_does(stops: list[str], pieces: list[str]) -> None:
    search, text = StopSearch(stops), ""
    for piece in pieces:
        match = search.feed(piece)
        begin, text = len(text), text + piece
        ends = [
            (start, start + len(stop), index)
            for index, stop in enumerate(stops)
            for start in range(len(text))
            if text.startswith(stop, start) and start + len(stop) > begin
        ]
        expected = min(ends, default=None)
        assert match == (expected and Match(expected[0], expected[1], stops[expected[2]]))
        held = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        assert search.held == held
