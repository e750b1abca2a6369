"""What the machine says of itself, and how many copies of a target follow from it."""

from __future__ import annotations

import pytest

from draftproof.engine import placement
from draftproof.engine.machine import last_level_cache
from draftproof.engine.placement import num_lanes

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


class Weights:
    """A model of so many bytes that counts how often it was warmed up."""

    def __init__(self, weight_bytes):
        self.weight_bytes, self.warmed = weight_bytes, 0

    def warm_up(self):
        self.warmed += 1


def test_large_models_lay_out_their_weights_before_they_are_moved(monkeypatch):
    seen, said = [], []
    monkeypatch.setattr(placement.huge_pages, "collapse", lambda before: seen.append(before) or 3 << 21)
    small, large = Weights(MIB), Weights(100 * MIB)
    assert placement.settle([small, None, large], [(0, 1)], said.append) == 3 << 21
    assert (small.warmed, large.warmed, seen) == (0, 1, [[(0, 1)]])
    assert placement.settle([small, object()], [], said.append) == 0
    assert (small.warmed, len(seen), said) == (0, 1, ["moving the weights to huge pages"])
