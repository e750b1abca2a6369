"""What was converted once, kept in the user's cache folder: one folder an entry, named by kind and key.

Invariant: an entry is used only if its manifest is there and every file has the size and CRC-32 the manifest says. It
is written in a folder beside it and renamed into place when whole, under a lock, so that a killed or parallel run
never leaves a half-written entry behind; what is broken is removed and built again.

The key is a hash of the model's content and of the versions that shaped the result, never of a path or a date.
Environment: DRAFTPROOF_CACHE_DIR moves the folder.

Does not know: what is in an entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from draftproof.errors import InputError

_MANIFEST = "manifest.json"
_BLOCK = 1 << 24
_OURS = re.compile(
    r"\.?(folder|graph|head)-[0-9a-f]{16,}(-\w+|\.lock)?|hashes\.json|\.hashes-\w+|selfchecks\.(\d+\.tmp|json)"
)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One converted model. `bytes` is its size on disk, `created` a POSIX time."""

    name: str
    key: str
    bytes: int
    created: float
    path: Path


def _crc(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def default_dir() -> Path:
    """DRAFTPROOF_CACHE_DIR, or the platform's cache folder."""
    named = os.environ.get("DRAFTPROOF_CACHE_DIR")
    return Path(named) if named else Path(platformdirs.user_cache_dir("draftproof"))


class Cache:
    """The cache folder; made when first written to."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self.dir = Path(directory) if directory is not None else default_dir()

    def entries(self) -> list[CacheEntry]:
        """All whole entries, oldest first (files are not checked here)."""
        if self.dir.exists() and not self.dir.is_dir():
            raise InputError(f"the cache folder {self.dir} is a file: name another with --cache-dir")
        found = []
        for manifest in sorted(self.dir.glob(f"*/{_MANIFEST}")):
            try:
                meta = json.loads(manifest.read_text())
                name, created = str(meta["name"]), float(meta["created"])
                entry = CacheEntry(name, manifest.parent.name, _size(manifest.parent), created, manifest.parent)
            except (OSError, ValueError, KeyError, TypeError):
                continue
            found.append(entry)
        return sorted(found, key=lambda entry: entry.created)

    def clear(self, name: str | None = None) -> int:
        """Removes all entries, or those whose model name or key is `name`; returns the bytes freed."""
        if name is None:
            try:
                return self._clear_all()
            except OSError as error:
                raise InputError(self._unwritable(error)) from error
        chosen = [entry for entry in self.entries() if name in (entry.name, entry.key)]
        if not chosen:
            known = ", ".join(sorted({entry.name for entry in self.entries()})) or "nothing"
            raise InputError(f"the cache holds no entry {name!r}; it holds {known}")
        for entry in chosen:
            shutil.rmtree(entry.path)
        return sum(entry.bytes for entry in chosen)

    def _clear_all(self) -> int:
        """Removes what this class wrote, half-built entries and memos too, and nothing else that lies there."""
        freed = 0
        for child in sorted(self.dir.iterdir()) if self.dir.exists() else ():
            if not _OURS.fullmatch(child.name):
                continue
            freed += _size(child) if child.is_dir() else child.stat().st_size
            _remove(child)
        return freed

    def get(self, kind: str, key: str, files: Iterable[str] | None = None) -> Path | None:
        """The folder of a whole entry, or None. `files` limits the check of contents to those that will be used."""
        folder = self.dir / f"{kind}-{key}"
        try:
            meta = json.loads((folder / _MANIFEST).read_text())
            wanted = set(files) if files is not None else set(meta["files"])
            whole = all(
                (folder / name).stat().st_size == size and (name not in wanted or _crc(folder / name) == crc)
                for name, (size, crc) in meta["files"].items()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return folder if whole and wanted <= set(meta["files"]) else None

    def build(self, kind: str, key: str, name: str, make: Callable[[Path], None]) -> Path:
        """The entry, made by `make(folder)` where it is missing or broken. Safe against kill and parallel runs."""
        self._writable()
        folder = self.dir / f"{kind}-{key}"
        with FileLock(str(self.dir / f"{kind}-{key}.lock")):
            if (found := self.get(kind, key)) is not None:
                return found
            self._sweep(f"{kind}-{key}")
            work = Path(tempfile.mkdtemp(prefix=f".{kind}-{key}-", dir=self.dir))
            try:
                make(work)
                self._seal(work, name)
                _remove(folder)
                work.rename(folder)
            except OSError as error:
                raise InputError(self._unwritable(error)) from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return folder

    def _sweep(self, entry: str) -> None:
        """Removes what killed runs left of this entry (the lock is held, so nobody is writing one)."""
        for stale in self.dir.glob(f".{entry}-*"):
            shutil.rmtree(stale, ignore_errors=True)

    def _writable(self) -> None:
        try:
            self.dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.dir):
                pass
        except OSError as error:
            raise InputError(self._unwritable(error)) from error

    def _unwritable(self, error: OSError) -> str:
        return (
            f"the cache folder {self.dir} can't be written ({error.strerror}): free some space there, or name another "
            "with --cache-dir or DRAFTPROOF_CACHE_DIR"
        )

    def _seal(self, work: Path, name: str) -> None:
        files = {
            str(file.relative_to(work)): [file.stat().st_size, _crc(file)]
            for file in sorted(work.rglob("*"))
            if file.is_file()
        }
        meta = {"name": name, "created": time.time(), "files": files}
        (work / _MANIFEST).write_text(json.dumps(meta, indent=1))

    # -- content hashes, remembered by (path, size, change time) so that large files are read once ---------------------

    def content_hash(self, files: Iterable[Path]) -> str:
        """SHA-256 over names and contents of files; remembered for files that did not change since."""
        memo_path = self.dir / "hashes.json"
        try:
            memo = json.loads(memo_path.read_text())
            assert isinstance(memo, dict)
        except (OSError, ValueError, AssertionError):
            memo = {}
        total, fresh = hashlib.sha256(), False
        for file in sorted(files):
            stat = file.stat()
            mark = f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
            if mark not in memo:
                memo[mark], fresh = _sha256(file), True
            total.update(f"{file.name}:{memo[mark]};".encode())
        if fresh:
            self._remember(memo_path, memo)
        return total.hexdigest()

    def _remember(self, memo_path: Path, memo: dict[str, str]) -> None:
        """A memo that can't be written is only a file read again."""
        with contextlib.suppress(OSError):
            self.dir.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.dir, prefix=".hashes-")
            with os.fdopen(handle, "w") as file:
                json.dump(memo, file)
            os.replace(temporary, memo_path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
