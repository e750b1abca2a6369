"""The cache: whole entries only, whatever was killed, cut short or changed; content decides, not paths."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from draftproof.errors import InputError
from draftproof.models.cache import Cache

KEY = "0123456789abcdef"


def write(text: str = "hello"):
    def make(folder: Path) -> None:
        (folder / "a.bin").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b.bin").write_bytes(b"x" * 5000)

    return make


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_built_once_then_found(cache: Cache) -> None:
    assert cache.get("graph", KEY) is None
    folder = cache.build("graph", KEY, "demo", write())
    assert cache.get("graph", KEY) == folder

    def never(folder: Path) -> None:
        raise AssertionError("built twice")

    assert cache.build("graph", KEY, "demo", never) == folder


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "a.bin").unlink(),
        lambda folder: (shutil.rmtree(folder), folder.write_text("a file where the entry was")),
        lambda folder: (folder / "a.bin").write_text("hellO"),
        lambda folder: (folder / "sub" / "b.bin").write_bytes(b"x" * 4999),
        lambda folder: (folder / "sub" / "b.bin").write_bytes(b"x" * 4999 + b"y"),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text('{"name": "demo"'),
        lambda folder: (folder / "manifest.json").write_text('{"files": 3}'),
    ],
)
def test_a_broken_entry_is_never_used_and_is_built_again(cache: Cache, harm) -> None:
    folder = cache.build("graph", KEY, "demo", write())
    harm(folder)
    assert cache.get("graph", KEY) is None
    assert cache.build("graph", KEY, "demo", write("again")) == folder
    assert (folder / "a.bin").read_text() == "again"
    assert cache.get("graph", KEY) == folder


def test_a_failing_build_leaves_nothing(cache: Cache) -> None:
    def fail(folder: Path) -> None:
        (folder / "a.bin").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build("graph", KEY, "demo", fail)
    assert cache.get("graph", KEY) is None
    assert [path.name for path in cache.dir.iterdir() if not path.name.endswith(".lock")] == []


def _die(directory: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "a.bin").write_text("half")
        os._exit(9)

    Cache(directory).build("graph", KEY, "demo", make)


def test_a_killed_build_is_swept_up_and_made_again(cache: Cache) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die, args=(cache.dir,))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert [path for path in cache.dir.iterdir() if path.name.startswith(".graph")]
    assert cache.get("graph", KEY) is None
    cache.build("graph", KEY, "demo", write())
    assert not [path for path in cache.dir.iterdir() if path.name.startswith(".graph")]


def test_entries_are_listed_and_cleared_by_name(cache: Cache) -> None:
    cache.build("graph", KEY, "demo", write())
    cache.build("graph", KEY[::-1], "other", write())
    assert [entry.name for entry in cache.entries()] == ["demo", "other"]
    assert all(entry.bytes > 5000 for entry in cache.entries())
    assert cache.clear("demo") > 5000
    assert [entry.name for entry in cache.entries()] == ["other"]
    with pytest.raises(InputError, match="other"):
        cache.clear("demo")
    (cache.dir / "somebody's.txt").write_text("not ours")
    (cache.dir / f".graph-{KEY}-half").mkdir()
    assert cache.clear() > 5000
    assert [path.name for path in cache.dir.iterdir()] == ["somebody's.txt"]
    assert cache.entries() == []
    assert cache.clear() == 0


def test_content_decides_the_hash_not_the_place(cache: Cache, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "w.bin").write_bytes(b"weights")
    first = cache.content_hash([one / "w.bin"])
    assert cache.content_hash([two / "w.bin"]) == first
    (two / "w.bin").write_bytes(b"weighty")
    os.utime(two / "w.bin", ns=(1, 1))
    assert cache.content_hash([two / "w.bin"]) != first
    (cache.dir / "hashes.json").write_text("[broken")
    assert cache.content_hash([one / "w.bin"]) == first


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--cache-dir"):
        Cache(tmp_path / "file" / "cache").build("graph", KEY, "demo", write())
