"""Memory that a step reads from end to end, moved to pages of 2 MiB once it is filled.

A step goes through all weights. With pages of 4 KiB that is tens of thousands of translations a step, far more than a
processor keeps, and what of it stays in a cache is luck that lasts as long as the process. Linux moves a block to one
huge page on request (`MADV_COLLAPSE`, since 6.1; madvise(2)): the same bytes at the same addresses.

Only blocks that were mapped in between and written for the most part are moved, so memory hardly grows. Where the
system can't or its administrator said "never", nothing happens. It ends after some seconds, wherever it is then.

Does not know: models, weights.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK = 2 << 20
_PAGE = 4096
_OURS = np.uint64(1 << 63 | 1 << 56)  # of what the page map says of a page: it is there, and nobody shares it
_WINDOW = 1 << 30  # addresses whose page map is read at once: 2 MiB of it
_PIECE = 32 * BLOCK  # moved at once, about a sixth of a second
_COLLAPSE = 25
_SECONDS = 10.0
_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")
_PROCESS = Path("/proc/self")
Range = tuple[int, int]  # addresses, the second one exclusive


def ranges() -> list[Range]:
    """Writable private memory of this process that no file stands behind, ascending; empty where none is told."""
    found = []
    try:
        lines = (_PROCESS / "maps").read_bytes().split(b"\n")
    except OSError:
        return []
    for line in lines:  # addresses, rights, offset, device, inode and perhaps a name
        parts = line.split(maxsplit=5)
        if len(parts) < 5 or parts[1] != b"rw-p" or parts[4] != b"0":
            continue
        if len(parts) == 5 or parts[5].startswith((b"[heap]", b"[anon")):
            low, _, high = parts[0].partition(b"-")
            found.append((int(low, 16), int(high, 16)))
    return found


def collapse(before: Sequence[Range], system: Path = _SYSTEM) -> int:
    """Moves what was mapped since; the bytes that are on huge pages now and were not. Never raises OSError.

    before: what `ranges` said then. system: what Linux says of its huge pages.
    """
    if not _can(system):
        return 0
    begin, already = time.monotonic(), _huge_bytes()
    for low, high in _without(ranges(), before):
        for address, size in _filled(low, high):
            if time.monotonic() - begin > _SECONDS or _move(address, size) == errno.ENOMEM:
                return max(0, _huge_bytes() - already)
    return max(0, _huge_bytes() - already)


def _can(system: Path) -> bool:
    """Asked of the system, and tried with a block of our own."""
    if sys.platform != "linux" or mmap.PAGESIZE != _PAGE:
        return False
    try:
        allowed = "[never]" not in (system / "enabled").read_text()
        size = int((system / "hpage_pmd_size").read_text())
    except (OSError, ValueError):  # a kernel without huge pages
        return False
    if not allowed or size != BLOCK:
        return False
    with mmap.mmap(-1, 2 * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own:
        own.write(b"\1" * 2 * BLOCK)
        view = ctypes.c_char.from_buffer(own)
        address = ctypes.addressof(view)
        del view
        return _move(address + -address % BLOCK, BLOCK) == 0


def _move(address: int, size: int) -> int:
    """0 where all blocks moved, else the error; those that could are moved in any case."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return 0 if madvise(address, size, _COLLAPSE) == 0 else ctypes.get_errno()


def _huge_bytes() -> int:
    try:
        found = re.search(rb"AnonHugePages:\s+(\d+) kB", (_PROCESS / "smaps_rollup").read_bytes())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _without(now: Sequence[Range], before: Sequence[Range]) -> list[Range]:
    """What is in `now` and not in `before`; both ascending, each without overlaps."""
    left, place = [], 0
    for low, high in now:
        while place < len(before) and before[place][1] <= low:
            place += 1
        for start, end in before[place:]:
            if start >= high:
                break
            if start > low:
                left.append((low, start))
            low = max(low, end)
        if low < high:
            left.append((low, high))
    return left


def _filled(low: int, high: int) -> Iterator[tuple[int, int]]:
    """(address, size) of pieces of whole blocks in a range, of each of which more than half is there and our own."""
    first, last = -(-low // BLOCK), high // BLOCK
    step = _WINDOW // BLOCK
    for begin in range(first, last, step):
        there = _there(begin, min(begin + step, last))
        turns = np.flatnonzero(np.diff(there, prepend=False, append=False)) + begin
        for start, end in turns.reshape(-1, 2).tolist():
            for address in range(start * BLOCK, end * BLOCK, _PIECE):
                yield address, min(_PIECE, end * BLOCK - address)


def _there(first: int, last: int) -> NDArray[np.bool_]:
    """bool[last - first]: which blocks are; none where the page map can't be read."""
    entry, pages = 8, BLOCK // _PAGE
    try:
        with (_PROCESS / "pagemap").open("rb", buffering=0) as pagemap:
            pagemap.seek(first * pages * entry)
            said = np.frombuffer(pagemap.read((last - first) * pages * entry), np.uint64)
        ours = (said.reshape(last - first, pages) & _OURS) == _OURS
        return np.asarray(ours.mean(1) > 0.5)
    except (OSError, ValueError):  # not to be read here, or a range that is gone by now
        return np.zeros(last - first, np.bool_)
