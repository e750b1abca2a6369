"""Lists of chances from drafts and places, by hand; budgets as the engine gives them."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.measure.encode import Prompt
from draftproof.measure.lists import Steps, shifted, whole
from draftproof.measure.texts import Text
from draftproof.measure.walk import walk
from draftproof.types import SamplingParams


def text_of(completion, *, prompt=(7, 7), cap=None, stop=()):
    tokens = np.array([*prompt, *completion], np.int32)
    one = Prompt(0, 1, "b", np.array(prompt, np.int32))
    end = len(prompt) + (len(completion) if cap is None else cap)
    return Text(one, tokens, SamplingParams(seed=0), frozenset(stop), end)


def drafts_of(rows, gamma):
    drafts = np.full((len(rows), gamma), -1, np.int32)
    for index, row in enumerate(rows):
        drafts[index, : len(row)] = row
    return drafts


def test_whole_drafts_are_listed_up_to_their_first_refusal() -> None:
    text = text_of([1, 2, 3, 4, 5])
    drafts = drafts_of([[], [2, 3, 9, 4], [9, 9], [4], []], 4)
    accept = np.full((5, 4), 0.5)
    lists = whole(text, drafts, accept)
    assert lists.offered.tolist() == [0, 4, 2, 1, 0]
    assert lists.length.tolist() == [0, 3, 1, 1, 0]
    assert lists.keep.tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert lists.accept.tolist() == [[0] * 4, [0.5, 0.5, 0.5, 0], [0.5, 0, 0, 0], [0.5, 0, 0, 0], [0] * 4]


def test_a_draft_is_judged_to_the_end_of_the_text_and_counted_beyond() -> None:
    text = text_of([1, 2, 3], cap=9, stop=(3,))
    lists = whole(text, drafts_of([[], [2, 3], [3, 8, 8, 8]], 4), np.ones((3, 4)))
    assert lists.offered.tolist() == [0, 2, 4]
    assert lists.length.tolist() == [0, 2, 1]


def test_depth_k_of_a_consistent_drafter_is_its_draft_k_places_on() -> None:
    text = text_of([1] * 6)
    keep = np.array([0, 0.5, 0.25, 0, 0.75, 0])
    steps = Steps(np.array([0, 1, 1, 1, 1, 0], bool), np.zeros(6, bool), keep, keep / 2)
    lists = shifted(text, 3, steps)
    assert lists.offered.tolist() == [0, 3, 3, 2, 1, 0]
    assert lists.length.tolist() == [0, 3, 2, 1, 1, 0]
    assert lists.keep.tolist() == [[0] * 3, [0.5, 0.25, 0], [0.25, 0, 0], [0, 0, 0], [0.75, 0, 0], [0] * 3]
    assert np.array_equal(lists.accept, lists.keep / 2)


def test_a_known_end_id_ends_a_consistent_draft_where_it_is_reached() -> None:
    text = text_of([1, 1, 1, 3], cap=20, stop=(3,))
    keep = np.array([0, 1, 0, 1.0])  # drafts: right, a wrong end, right (the end)
    steps = Steps(np.array([0, 1, 1, 1], bool), np.array([0, 0, 1, 1], bool), keep, keep)
    lists = shifted(text, 4, steps)
    assert lists.offered.tolist() == [0, 2, 1, 1]
    assert lists.length.tolist() == [0, 2, 1, 1]


def test_a_consistent_draft_goes_on_past_an_end_that_nobody_foresaw() -> None:
    text = text_of([1, 1, 3], cap=20, stop=(3,))
    steps = Steps(np.array([0, 1, 1], bool), np.zeros(3, bool), np.full(3, 0.5), np.full(3, 0.5))
    lists = shifted(text, 4, steps)
    assert lists.offered.tolist() == [0, 4, 4]
    assert lists.length.tolist() == [0, 2, 1]


def test_a_place_without_a_draft_ends_a_consistent_one() -> None:
    steps = Steps(np.array([0, 1, 0, 1, 1], bool), np.zeros(5, bool), np.full(5, 0.5), np.full(5, 0.5))
    assert shifted(text_of([1] * 5, cap=50), 4, steps).offered.tolist() == [0, 1, 0, 4, 4]


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_budgets_are_the_engine_s(gamma: int) -> None:
    text = text_of([1] * 6, cap=8)
    assert text.budgets(gamma).tolist() == [min(gamma, room) if at else 0 for at, room in enumerate([7, 6, 5, 4, 3, 2])]
    assert text.budgets(gamma).tolist() == [text.budget(start, gamma) for start in range(6)]
    assert text.left().tolist() == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("length", [0, 1])
def test_texts_without_a_start_have_empty_lists(length: int) -> None:
    text = text_of([1] * length)
    lists = whole(text, np.full((length, 4), -1, np.int32), np.zeros((length, 4)))
    assert lists.offered.tolist() == lists.length.tolist() == [0] * length
    none = np.zeros(length)
    assert shifted(text, 4, Steps(none > 0, none > 0, none, none)).length.tolist() == [0] * length


def test_a_walk_tells_how_each_token_came() -> None:
    text = text_of([1, 2, 3, 4, 5, 6])
    lists = whole(text, drafts_of([[], [2, 3, 9], [], [], [5, 6], []], 3), np.ones((6, 3)))
    rounds = walk(text.completion.tolist(), lists, lambda position: 0.5)
    assert rounds.round == [0, 1, 1, 1, 2, 2]
    assert rounds.depth == [0, 0, 1, 2, 0, 1]
    assert rounds.outcome == [0, 1, 1, 2, 1, 1]
    assert rounds.drafted == [0, 3, 3, 3, 2, 2]
    assert rounds.num_rounds == 3


def test_a_walk_keeps_a_draft_iff_its_coin_is_below_its_chance() -> None:
    steps = Steps(np.array([0, 1, 1, 1], bool), np.zeros(4, bool), np.full(4, 0.5), np.full(4, 0.5))
    lists = shifted(text_of([1] * 4, cap=50), 2, steps)
    coins = {1: 0.49, 2: 0.5, 3: 0.0}
    rounds = walk([1] * 4, lists, coins.__getitem__)
    assert rounds.outcome == [0, 1, 2, 1]  # kept at 1, refused at 2, kept at 3
