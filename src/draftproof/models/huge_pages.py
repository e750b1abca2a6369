"""Memory that a step reads from end to end, moved to pages of 2 MiB once it is filled.

A step goes through all weights. With pages of 4 KiB that is tens of thousands of translations a step, far more than a
processor keeps, and what of it stays in a cache is luck that lasts as long as the process. Linux moves a block to one
huge page on request (`MADV_COLLAPSE`, since 6.1; madvise(2)): the same bytes at the same addresses.

Only blocks that were mapped in between and are filled for the most part are moved, so memory hardly grows. Where the
system can't or its administrator said "never", nothing happens.

Does not know: models, weights.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BLOCK = 2 << 20
_PAGE, _ENTRY = 4096, 8  # of memory, and of what /proc/self/pagemap says of a page
_PRESENT = 1 << 63
_COLLAPSE = 25
_PAGEMAP = Path("/proc/self/pagemap")
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
Range = tuple[int, int]  # addresses, the second one exclusive


def ranges() -> list[Range]:
    """Writable private memory of this process that no file stands behind; empty where the system does not tell."""
    found = []
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and (not name or name[0].startswith(("[heap]", "[anon"))):
            low, high = addresses.split("-")
            found.append((int(low, 16), int(high, 16)))
    return found


def collapse(before: Sequence[Range], setting: Path = _SETTING) -> int:
    """Moves what was mapped since; the number of bytes moved. before: what `ranges` said then. Never raises OSError."""
    if sys.platform != "linux" or not _allowed(setting):
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    moved = 0
    for low, high in _filled(_without(ranges(), before)):
        if madvise(low, high - low, _COLLAPSE) == 0:
            moved += high - low
        elif not moved:  # an older kernel, or no huge page to be had
            break
    return moved


def _allowed(setting: Path) -> bool:
    try:
        return "[never]" not in setting.read_text()
    except OSError:  # a kernel without huge pages
        return False


def _without(now: Sequence[Range], before: Sequence[Range]) -> list[Range]:
    """What is in `now` and not in `before`; both ascending, each without overlaps."""
    left = []
    for low, high in now:
        for start, end in before:
            if start < high and end > low:
                if start > low:
                    left.append((low, start))
                low = max(low, end)
        if low < high:
            left.append((low, high))
    return left


def _filled(found: Sequence[Range]) -> list[Range]:
    """Runs of whole blocks in these ranges of each of which more than half is there."""
    runs = []
    try:
        with _PAGEMAP.open("rb", buffering=0) as pagemap:
            for low, high in found:
                first, last = -(-low // BLOCK), high // BLOCK
                if last <= first:
                    continue
                pagemap.seek(first * BLOCK // _PAGE * _ENTRY)
                entries = np.frombuffer(pagemap.read((last - first) * (BLOCK // _PAGE) * _ENTRY), np.uint64)
                there = (entries.reshape(-1, BLOCK // _PAGE) & np.uint64(_PRESENT)).astype(bool).mean(1) > 0.5
                turns = np.flatnonzero(np.diff(there, prepend=False, append=False)) + first
                runs += [(int(a) * BLOCK, int(b) * BLOCK) for a, b in turns.reshape(-1, 2)]
    except (OSError, ValueError):  # not to be read here, or a range that is gone by now
        return []
    return runs
