"""A rollout's state and its audit log in one SQLite file: both change in one transaction, or neither does.

    meta(name, value)        the state but for its buckets, as JSON       decisions(id, time, bucket, action, ...)
    buckets(name, state)     one row a bucket, in the order they came     ids count up and are never used again

A write-ahead log with full syncing: what `save` has returned from survives a killed process and a lost power; a kill in
the middle leaves the state before. A lock file beside it keeps a second writer out; readers come and go.

Invariant: a file that is not ours, is damaged, or was written by a newer version is refused and not touched.
Does not know: what state and decisions mean. Not safe for several threads at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from draftproof.errors import InputError
from draftproof.rollout.state import RolloutState
from draftproof.rollout.traffic import Decision

_APPLICATION = 0x64706672  # "dpfr", in the file's header
_VERSION = 1
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE buckets(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL);
CREATE TABLE decisions(
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, bucket TEXT NOT NULL, action TEXT NOT NULL,
    from_stage TEXT NOT NULL, to_stage TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE INDEX decisions_of_bucket ON decisions(bucket, id);
"""
_COLUMNS = ("time", "bucket", "action", "from_stage", "to_stage", "reason", "evidence")


class RolloutStore:
    """An open file. Use as a context manager, or close it."""

    def __init__(self, path: Path | str, *, readonly: bool = False) -> None:
        """Makes the file where there is none, unless readonly. Raises InputError, which says why it can't be used."""
        self.path = Path(path)
        self._saved: dict[str, str] = {}  # bucket -> the JSON that the file has
        self._unsaved: list[list[Any]] = []  # lines of the log that a failed `save` owes
        self._lock: FileLock | None = None
        if readonly and not self.path.is_file():
            raise InputError(f"there is no rollout store at {self.path}")
        if not readonly:
            self._lock = self._locked()
        try:
            self._connection = self._open(readonly)
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> RolloutStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._connection.close()
        self._unlock()

    def load(self) -> RolloutState | None:
        """The state of the last `save`; None where there was none. Raises InputError for one that can't be read."""
        with self._reading():
            self._connection.execute("BEGIN")  # one picture of both tables
            try:
                meta = self._connection.execute("SELECT value FROM meta WHERE name = 'state'").fetchone()
                rows = self._connection.execute("SELECT name, state FROM buckets ORDER BY id").fetchall()
            finally:
                self._connection.execute("ROLLBACK")
            if meta is None:
                return None
            buckets = {name: json.loads(text) for name, text in rows}
            value = json.loads(meta[0])
            if not isinstance(value, dict):
                raise InputError(f"this is no state of a rollout: {value!r}")
            state = RolloutState.from_json({**value, "buckets": buckets})
        self._saved = dict(rows)
        return state

    def save(self, state: RolloutState, decisions: Sequence[Decision] = ()) -> None:
        """State and decisions in one transaction: at once with decisions, every few seconds without.

        Raises InputError where the disk is full, say: the file then holds what it held before, and the next `save`
        writes these decisions, too.
        """
        value = state.to_json()
        buckets = {name: _text(bucket) for name, bucket in value.pop("buckets").items()}
        new = [(name, text) for name, text in buckets.items() if self._saved.get(name) != text]
        self._unsaved += [_line(decision) for decision in decisions]
        places = ", ".join("?" * len(_COLUMNS))
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('state', ?)", (_text(value),))
                self._connection.executemany(
                    "INSERT INTO buckets(name, state) VALUES (?, ?)"
                    " ON CONFLICT(name) DO UPDATE SET state = excluded.state",
                    new,
                )
                self._connection.executemany(
                    f"INSERT INTO decisions({', '.join(_COLUMNS)}) VALUES ({places})",
                    self._unsaved,
                )
        except sqlite3.Error as error:
            raise InputError(f"can't write the rollout store {self.path}: {error}") from error
        self._saved.update(new)
        self._unsaved = []

    def decisions(self, limit: int | None = None, bucket: str | None = None) -> list[dict[str, Any]]:
        """The audit log, newest first: id and the fields of Decision. Raises InputError where it can't be read."""
        if limit is not None and limit < 1:
            raise InputError(f"the limit of the log must be at least 1, got {limit}")
        where = "" if bucket is None else "WHERE bucket = ?"
        values = [] if bucket is None else [bucket]
        with self._reading():
            rows = self._connection.execute(
                f"SELECT id, {', '.join(_COLUMNS)} FROM decisions {where} ORDER BY id DESC LIMIT ?",
                [*values, -1 if limit is None else limit],
            ).fetchall()
            found = [dict(zip(("id", *_COLUMNS), row, strict=True)) for row in rows]
            return [{**line, "evidence": json.loads(line["evidence"])} for line in found]

    # ------------------------------------------------------------------ opening

    def _locked(self) -> FileLock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            name = f"{self.path}.lock"
            lock = FileLock(name, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                with open(name, "ab"):  # a lock file that can't even be made is held by nobody
                    raise InputError(f"another process uses the rollout store {self.path}") from None
        except OSError as error:
            raise InputError(f"can't write the rollout store {self.path}: {error.strerror or error}") from error
        return lock

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open(self, readonly: bool) -> sqlite3.Connection:
        mode = "ro" if readonly else "rwc"
        connection = None
        try:
            self._check_header()
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
            self._check(connection, readonly)
            if not readonly:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise InputError(f"can't read {self.path} as a rollout store: {error}") from error
            raise
        return connection

    def _check_header(self) -> None:
        """Raises InputError for a file that is not ours, before SQLite opens it: that could already change it.

        A file that was being made when its process was killed may have any header; its journal tells.
        """
        try:
            with self.path.open("rb") as file:
                header = file.read(100)
        except FileNotFoundError:
            return
        if not header or Path(f"{self.path}-journal").exists():
            return
        if header[:16] != b"SQLite format 3\0" or len(header) < 100:
            raise InputError(f"can't read {self.path} as a rollout store: it is no database")
        if int.from_bytes(header[68:72], "big") != _APPLICATION:
            raise InputError(f"{self.path} is a database of another program: give another file")
        version = int.from_bytes(header[60:64], "big")
        if version != _VERSION:
            known = f"format {version}, this one knows {_VERSION}"
            raise InputError(f"{self.path} was written by a newer draftproof ({known})")

    def _check(self, connection: sqlite3.Connection, readonly: bool) -> None:
        """Raises InputError for a file that is damaged; makes the tables in an empty one."""
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            if readonly:
                raise InputError(f"{self.path} is empty: no rollout was ever stored in it")
            script = f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
            connection.executescript(f"{script} {_TABLES} COMMIT;")
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise InputError(f"the rollout store {self.path} is damaged: {' '.join(found.split())}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise InputError(f"{self.path}: {error}") from None
            raise InputError(f"can't read {self.path} as a rollout store: {error}") from error


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _line(decision: Decision) -> list[Any]:
    return [_text(decision.evidence) if name == "evidence" else getattr(decision, name) for name in _COLUMNS]
