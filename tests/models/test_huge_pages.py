"""Memory moves to huge pages with its bytes, and only what was mapped since, is written, and may be moved."""

import ctypes
import errno
import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from draftproof.models import huge_pages
from draftproof.models.huge_pages import BLOCK, _without, collapse, ranges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="huge pages are Linux's")


def on_request():
    """True where memory is moved on request, and only then."""
    setting = huge_pages._SYSTEM / "enabled"
    return setting.exists() and "[madvise]" in setting.read_text() and huge_pages._can(huge_pages._SYSTEM)


needs_collapse = pytest.mark.skipif(not on_request(), reason="this system moves nothing on request, or all by itself")


class Memory:
    """Whole blocks that nothing has touched, in a mapping that no neighbour joins."""

    def __init__(self, blocks):
        self._map = mmap.mmap(-1, (blocks + 1) * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_DONTDUMP)  # a right of its own keeps it apart
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.low = begin + -begin % BLOCK
        self.bytes = np.frombuffer(self._map, np.uint8)[self.low - begin :][: blocks * BLOCK]

    def huge(self):
        """Bytes of it on huge pages."""
        total, inside = 0, False
        for line in Path("/proc/self/smaps").read_bytes().split(b"\n"):
            found = re.match(rb"([0-9a-f]+)-([0-9a-f]+) ", line)
            if found:
                low, high = (int(part, 16) for part in found.groups())
                inside = low < self.low + len(self.bytes) and high > self.low
            elif inside and line.startswith(b"AnonHugePages:"):
                total += int(line.split()[1]) * 1024
        return total


@needs_collapse
def test_written_memory_moves_with_its_bytes():
    before = ranges()
    memory = Memory(4)
    expected = np.random.default_rng(0).integers(0, 256, len(memory.bytes), np.uint8)
    memory.bytes[:] = expected
    moved = collapse(before)
    assert (memory.bytes == expected).all()
    assert moved >= memory.huge() > 0  # where memory is in pieces, some blocks may stay
    assert collapse(before) == 0  # nothing is left to do


@needs_collapse
def test_what_is_not_written_for_the_most_part_stays_as_it_is():
    before = ranges()
    memory = Memory(4)
    blocks = memory.bytes.reshape(4, BLOCK)
    blocks[0, : BLOCK // 4 : 4096] = 1
    assert int(blocks[1, ::4096].sum()) == 0  # pages that were only read are nobody's
    blocks[3, : BLOCK // 4 * 3 : 4096] = 1
    collapse(before)
    assert memory.huge() <= BLOCK
    assert int(blocks.sum()) == 512 // 4 + 512 // 4 * 3


@needs_collapse
def test_what_was_there_before_stays_as_it_is():
    memory = Memory(3)
    memory.bytes[:] = 7
    collapse(ranges())
    assert memory.huge() == 0


@needs_collapse
def test_it_ends_when_its_time_is_over_or_memory_is(monkeypatch):
    before = ranges()
    memory = Memory(3)
    memory.bytes[:] = 7
    with monkeypatch.context() as patch:
        patch.setattr(huge_pages, "_SECONDS", -1.0)
        collapse(before)
    assert memory.huge() == 0
    tried = []
    monkeypatch.setattr(huge_pages, "_PIECE", BLOCK)
    monkeypatch.setattr(huge_pages, "_can", lambda system: True)
    monkeypatch.setattr(huge_pages, "_move", lambda address, size: tried.append(address) or errno.EAGAIN)
    assert collapse(before) == 0
    assert len(tried) >= 3  # a block that can't be moved now is no reason to stop
    tried.clear()
    monkeypatch.setattr(huge_pages, "_move", lambda address, size: tried.append(address) or errno.ENOMEM)
    assert collapse(before) == 0
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("enabled", "size"),
    [
        ("always madvise [never]\n", f"{BLOCK}\n"),
        (None, f"{BLOCK}\n"),
        ("always [madvise] never\n", f"{32 * BLOCK}\n"),  # of a processor with larger pages
        ("always [madvise] never\n", None),
        ("always [madvise] never\n", "two\n"),
    ],
)
def test_nothing_moves_where_the_administrator_or_the_kernel_says_so(tmp_path, monkeypatch, enabled, size):
    for name, text in (("enabled", enabled), ("hpage_pmd_size", size)):
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(huge_pages, "_move", lambda address, size: pytest.fail("moved"))
    assert collapse([], tmp_path) == 0


def test_a_kernel_that_refuses_and_a_process_that_is_closed_change_nothing(tmp_path, monkeypatch):
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{BLOCK}\n")
    before = ranges()
    memory = Memory(2)
    memory.bytes[:] = 7
    with monkeypatch.context() as patch:
        patch.setattr(huge_pages, "_COLLAPSE", 9999)  # no advice that any kernel knows
        assert collapse(before, tmp_path) == 0
    monkeypatch.setattr(huge_pages, "_PROCESS", Path("/nowhere"))
    assert ranges() == []
    assert collapse(before, tmp_path) == 0


def test_ranges_are_writable_private_and_without_a_file(tmp_path, monkeypatch):
    (tmp_path / "maps").write_bytes(
        b"00400000-00500000 r-xp 00000000 fe:00 12 /usr/bin/python\n"
        b"00600000-00700000 rw-p 00000000 fe:00 12 /usr/bin/python\n"
        b"00800000-00900000 rw-p 00000000 00:00 0 [heap]\n"
        b"00a00000-00b00000 rw-s 00000000 00:00 0\n"
        b"00c00000-00d00000 rw-p 00000000 00:00 0 \n"
        b"00e00000-00f00000 ---p 00000000 00:00 0 \n"
        b"01000000-01100000 rw-p 00000000 fe:00 13 /home/j\xf6rg/a\x0bb\x1c\n"  # no encoding, no line end
        b"01200000-01300000 rw-p 00000000 00:00 0 [anon:glibc]\n"
        b"01400000-01500000 rw-p 00000000 00:00 0 [stack]\n"
        b"nonsense\n"
    )
    monkeypatch.setattr(huge_pages, "_PROCESS", tmp_path)
    assert ranges() == [(0x800000, 0x900000), (0xC00000, 0xD00000), (0x1200000, 0x1300000)]


@pytest.mark.parametrize(
    ("now", "before", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 4), (6, 7)], [(0, 2), (4, 6), (7, 10)]),
        ([(5, 10), (12, 20)], [(0, 6), (9, 13)], [(6, 9), (13, 20)]),  # mappings that grew together, or apart
        ([(5, 10)], [(10, 12)], [(5, 10)]),
        ([(0, 1), (4, 9)], [(0, 20)], []),
    ],
)
def test_known_ranges_are_cut_away(now, before, left):
    assert _without(now, before) == left


def test_many_ranges_are_cut_in_one_pass():
    now = [(4 * index, 4 * index + 3) for index in range(100_000)]
    assert _without(now, [(low, low + 1) for low, _ in now]) == [(low + 1, high) for low, high in now]
