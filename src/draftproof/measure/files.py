"""A file appears whole or not at all.

Does not know: what is written.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from draftproof.errors import InputError


def write_whole(path: Path, data: bytes) -> None:
    """Writes beside, brings to the disk, renames: a reader sees the old file or the new one, also after a power cut.

    Raises InputError where that is impossible; then nothing changed.
    """
    check_place(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full: free some space and try again" if full else (error.strerror or str(error))
        raise InputError(f"can't write {path}: {why}") from error


def check_place(path: Path) -> None:
    """Raises InputError where a file can't be written there: said before long work, not after it."""
    if path.is_dir():
        raise InputError(f"can't write {path}: it is a folder")
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise InputError(f"can't write {path}: it is no regular file")
    if not path.parent.is_dir():
        raise InputError(f"can't write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"can't write {path}: the folder {path.parent} is not writable")
