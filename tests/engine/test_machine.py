"""What the machine says of itself, and how many copies of a target follow from it."""

from __future__ import annotations

import pytest

from draftproof.engine.build import num_lanes
from draftproof.engine.machine import last_level_cache

MIB = 1 << 20


def test_the_largest_cache_is_the_last(tmp_path):
    for index, text in enumerate(["48K\n", "2048K\n", "266240K\n", "nonsense\n", ""]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text)
    assert last_level_cache(tmp_path) == 260 * MIB
    (tmp_path / "index2" / "size").write_text("32M")
    assert last_level_cache(tmp_path) == 32 * MIB
    assert last_level_cache(tmp_path / "none") == 0
    assert last_level_cache() >= 0


@pytest.mark.parametrize(
    ("weights", "cache", "copies"),
    [
        (129, 260, 1),  # one copy stays in the cache, two don't
        (80, 260, 2),
        (6, 260, 3),
        (129, 32, 3),  # none does: they come from memory anyway
        (129, 0, 3),
        (400, 260, 2),
        (600, 260, 1),
    ],
)
def test_copies_are_as_many_as_the_cache_holds_or_the_memory_allows(weights, cache, copies):
    assert num_lanes(weights * MIB, cache * MIB) == copies
