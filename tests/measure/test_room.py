"""What fits at once: whole texts with their drafts, in the target's memory and in each draft model's."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.errors import PromptTooLong
from draftproof.measure.encode import Prompt
from draftproof.measure.room import Pages, Room


def prompts(*lengths: int, completion: int | None = None) -> list[Prompt]:
    logged = None if completion is None else np.zeros(completion, np.int32)
    return [Prompt(i, i + 1, "b", np.zeros(length, np.int32), logged) for i, length in enumerate(lengths)]


def test_groups_fit_into_every_model_s_pages_in_their_order() -> None:
    target, draft = Pages(20, 4, 100, 2), Pages(9, 4, 100, 2)
    room = Room(100, 4, (target, draft))
    lengths = [[len(p.tokens) for p in group] for group in room.groups(prompts(4, 4, 4, 20, 4, 1))]
    assert lengths == [[4, 4, 4], [20], [4, 1]]  # 3 + 3 + 3 pages of 9; 7; 3 + 2
    assert [len(group) for group in Room(100, 4, (target,)).groups(prompts(4, 4, 4, 20, 4, 1))] == [5, 1]


def test_a_logged_completion_needs_its_own_length() -> None:
    room = Room(100, None, (Pages(10, 4, 100, 2),))
    assert [len(group) for group in room.groups(prompts(4, 4, 4, completion=10))] == [2, 1]


def test_beyond_a_draft_model_s_context_no_pages_are_needed() -> None:
    assert Pages(10, 4, 16, 2).needed(1000) == 5


@pytest.mark.parametrize(
    ("prompt", "completion", "message"),
    [
        (100, None, "the prompt of 100 tokens: the model's context limit is 100"),
        (50, 51, "prompt and completion of 101 tokens: the model's context limit is 100"),
        (70, None, "80 tokens with the completion: the memory holds 78; raise --kv-memory"),
        (70, 9, "79 tokens with the completion"),
    ],
)
def test_what_does_not_fit_says_so(prompt: int, completion: int | None, message: str) -> None:
    with pytest.raises(PromptTooLong, match=message):
        Room(100, 10, (Pages(20, 4, 100, 2),)).check(prompt, completion)


def test_what_fits_just_fits() -> None:
    room = Room(100, 10, (Pages(20, 4, 100, 2),))
    room.check(68, None)
    room.check(70, 8)
    Room(100, None, (Pages(26, 4, 100, 2),)).check(99, None)
