"""Memory moves to huge pages with its bytes, and only what was mapped since, is filled, and may be moved."""

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from draftproof.models import huge_pages
from draftproof.models.huge_pages import BLOCK, _without, collapse, ranges


@pytest.fixture
def setting(tmp_path):
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n")
    return path


def fresh(blocks):
    """(memory, its address) of whole blocks, nothing of it touched."""
    memory = mmap.mmap(-1, (blocks + 1) * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    begin = -address % BLOCK
    return np.frombuffer(memory, np.uint8)[begin : begin + blocks * BLOCK], address + begin


def huge_at(address, size):
    """Bytes of huge pages in the mappings that touch [address, address + size)."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if found:
            low, high = (int(part, 16) for part in found.groups())
            inside = low < address + size and high > address
        elif inside and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total


def can_collapse():
    before = ranges()
    memory, _ = fresh(1)
    memory[:] = 1
    return collapse(before) > 0


needs_collapse = pytest.mark.skipif(not can_collapse(), reason="this system moves nothing to huge pages")


@needs_collapse
def test_filled_memory_moves_with_its_bytes(setting):
    before = ranges()
    memory, address = fresh(4)
    expected = np.random.default_rng(0).integers(0, 256, len(memory), np.uint8)
    memory[:] = expected
    moved = collapse(before, setting)
    assert moved >= 4 * BLOCK
    assert huge_at(address, 4 * BLOCK) >= 4 * BLOCK
    assert (memory == expected).all()


@needs_collapse
def test_what_is_not_there_for_the_most_part_stays_as_it_is(setting):
    before = ranges()
    memory, address = fresh(4)
    memory[: BLOCK + BLOCK // 4 : 4096] = 1  # all of the first block, a quarter of the second
    memory[2 * BLOCK : 3 * BLOCK - BLOCK // 4 : 4096] = 1  # three quarters of the third
    collapse(before, setting)
    assert huge_at(address, BLOCK) == 2 * BLOCK
    assert (memory[BLOCK + BLOCK // 4 : 2 * BLOCK] == 0).all()


@needs_collapse
def test_what_was_there_before_stays_as_it_is(setting):
    memory, address = fresh(3)
    memory[:] = 7
    collapse(ranges(), setting)
    assert huge_at(address, 3 * BLOCK) == 0


@pytest.mark.parametrize("said", ["always madvise [never]\n", None])
def test_nothing_moves_where_the_administrator_or_the_kernel_says_so(tmp_path, said):
    path = tmp_path / "enabled"
    if said is not None:
        path.write_text(said)
    before = ranges()
    memory, address = fresh(2)
    memory[:] = 7
    assert collapse(before, path) == 0
    assert huge_at(address, 2 * BLOCK) == 0


def test_a_kernel_that_refuses_and_a_page_map_that_is_closed_change_nothing(monkeypatch, setting):
    before = ranges()
    memory, _ = fresh(2)
    memory[:] = 7
    monkeypatch.setattr(huge_pages, "_COLLAPSE", 9999)  # no advice that any kernel knows
    assert collapse(before, setting) == 0
    monkeypatch.undo()
    monkeypatch.setattr(huge_pages, "_PAGEMAP", Path("/nowhere"))
    assert collapse(before, setting) == 0


def test_ranges_are_ours_writable_and_without_a_file():
    memory, address = fresh(2)
    assert any(low <= address and address + 2 * BLOCK <= high for low, high in ranges())
    code = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
    assert not any(low <= code < high for low, high in ranges())
    assert len(memory)


@pytest.mark.parametrize(
    ("now", "before", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 4), (6, 7)], [(0, 2), (4, 6), (7, 10)]),
        ([(5, 10), (12, 20)], [(0, 6), (9, 13)], [(6, 9), (13, 20)]),  # mappings that grew together, or apart
        ([(5, 10)], [(10, 12)], [(5, 10)]),
    ],
)
def test_known_ranges_are_cut_away(now, before, left):
    assert _without(now, before) == left
