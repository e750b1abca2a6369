"""The store: one transaction for state and log, and files that are not ours stay as they are."""

import json
import sqlite3
from pathlib import Path

import pytest

from draftproof.errors import InputError
from draftproof.rollout import Decision, RolloutState, RolloutStore
from draftproof.rollout.store import _APPLICATION


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "rollout.db"


def decision(number, bucket="b"):
    return Decision(
        1.7e9 + number / 3, bucket, "promote", "shadow", "canary", f"reason {number} äß漢", {"n": number, "x": None}
    )


def test_a_new_file_is_empty_and_a_saved_state_comes_back(path, drive):
    one = drive().to_full("b", "a").send(500).send(40, "c")
    with RolloutStore(path) as store:
        assert store.load() is None
        assert store.decisions() == []
        store.save(one.rollout.state, one.log)
        assert store.load() == one.rollout.state
    with RolloutStore(path) as store:
        assert store.load() == one.rollout.state
        assert list(store.load().buckets) == ["b", "a", "c"]
        lines = store.decisions()
    assert [line.pop("id") for line in lines] == list(range(len(one.log), 0, -1))
    assert lines == [json.loads(json.dumps(d.to_json())) for d in reversed(one.log)]


def test_the_log_is_newest_first_by_bucket_and_limited(path):
    with RolloutStore(path) as store:
        for number in range(10):
            store.save(RolloutState(), [decision(number, "ab"[number % 2])])
        assert [line["evidence"]["n"] for line in store.decisions(3)] == [9, 8, 7]
        assert [line["evidence"]["n"] for line in store.decisions(2, "a")] == [8, 6]
        assert store.decisions(bucket="c") == []
        assert store.decisions(1)[0]["time"] == decision(9).time
        assert store.decisions(1)[0]["reason"] == "reason 9 äß漢"
        with pytest.raises(InputError, match="at least 1"):
            store.decisions(0)


def test_only_what_changed_is_written_and_later_states_replace_earlier(path, drive):
    one = drive().to_full("b", "c")
    with RolloutStore(path) as store:
        store.save(one.rollout.state)
        before = store._connection.total_changes
        store.save(one.rollout.state)
        assert store._connection.total_changes == before + 1, "the line of the whole, and no bucket"
        store.save(one.send(30).rollout.state)
        assert store._connection.total_changes == before + 3
        assert store.load() == one.rollout.state


def test_a_save_that_fails_changes_nothing_and_owes_its_decisions(path, drive, monkeypatch):
    one = drive().to_full("b")
    with RolloutStore(path) as store:
        store.save(one.rollout.state, [decision(1)])
        saved = store.load()
        store._connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON decisions BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        with pytest.raises(InputError, match=r"can't write the rollout store .*full"):
            store.save(one.send(30).rollout.state, [decision(2)])
        assert store.load() == saved
        assert len(store.decisions()) == 1
        store._connection.execute("DROP TRIGGER full")
        store.save(one.rollout.state, [decision(3)])
        assert store.load() == one.rollout.state
        assert [line["evidence"]["n"] for line in store.decisions()] == [3, 2, 1]


def test_one_writer_and_any_number_of_readers(path):
    with RolloutStore(path) as store:
        store.save(RolloutState(time=1.0), [decision(1)])
        with pytest.raises(InputError, match="another process uses the rollout store"):
            RolloutStore(path)
        with RolloutStore(path, readonly=True) as reader:
            assert reader.load().time == 1.0
            store.save(RolloutState(time=2.0), [decision(2)])
            assert reader.load().time == 2.0
            assert len(reader.decisions()) == 2
            with pytest.raises(InputError, match="can't write"):
                reader.save(RolloutState())
    with RolloutStore(path) as store:
        assert store.load().time == 2.0
    store.close()


def test_reading_makes_no_file(path):
    with pytest.raises(InputError, match="there is no rollout store at"):
        RolloutStore(path, readonly=True)
    assert not path.parent.exists()


def foreign_files(folder):
    """name -> (path, what must be said)."""
    files = {}

    def add(name, data, said):
        files[name] = (folder / name, said)
        (folder / name).write_bytes(data)

    with sqlite3.connect(folder / "other.db") as other:
        other.execute("CREATE TABLE notes(text)")
        other.execute("INSERT INTO notes VALUES ('years of work')")
    other.close()
    files["other.db"] = (folder / "other.db", "a database of another program")
    with RolloutStore(folder / "ours.db") as store:
        store.save(RolloutState(time=1.0), [decision(n) for n in range(200)])
    ours = (folder / "ours.db").read_bytes()
    with sqlite3.connect(folder / "newer.db") as newer:
        newer.execute(f"PRAGMA application_id = {_APPLICATION}")
        newer.execute("PRAGMA user_version = 2")
        newer.execute("CREATE TABLE future(x)")
    newer.close()
    files["newer.db"] = (folder / "newer.db", "written by a newer draftproof (format 2")
    add("notes.txt", b"years of work\n" * 1000, "can't read")
    add("cut.db", ours[: len(ours) // 2], "")
    add("holes.db", ours[:4096] + b"\xaa" * (len(ours) - 4096), "")
    add("tail.db", ours[:-4096] + bytes(range(256)) * 16, "")
    return files


@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_not_ours_is_refused_and_not_touched(tmp_path, readonly):
    for name, (path, said) in foreign_files(tmp_path).items():
        before = path.read_bytes()
        with pytest.raises(InputError) as caught:
            RolloutStore(path, readonly=readonly)
        assert said in str(caught.value), name
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before, name
        if name in ("other.db", "newer.db", "notes.txt"):
            assert not list(path.parent.glob(f"{name}-*")), name


@pytest.mark.parametrize("text", ["{", "[]", '{"time": 1}', '{"time": "x", "stopped": false, "policy": null}'])
def test_a_state_that_is_no_state_is_named_with_its_file(path, text):
    with RolloutStore(path) as store:
        store.save(RolloutState())
        store._connection.execute("UPDATE meta SET value = ?", (text,))
        with pytest.raises(InputError, match=r"rollout\.db"):
            store.load()


def test_places_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "rollout.db", tmp_path, "/dev/null/rollout.db"):
        with pytest.raises(InputError):
            RolloutStore(path)


def test_an_empty_file_is_a_new_store(tmp_path):
    """As a kill right after the file was made leaves it."""
    path = tmp_path / "rollout.db"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        RolloutStore(path, readonly=True)
    with RolloutStore(path) as store:
        store.save(RolloutState(time=3.0))
        assert store.load().time == 3.0


def test_odd_names_are_names(tmp_path):
    path = tmp_path / "a b?mode=memory#x%41.db"
    with RolloutStore(path) as store:
        store.save(RolloutState(time=3.0))
    assert path.is_file()
    with RolloutStore(path, readonly=True) as store:
        assert store.load().time == 3.0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where nobody can make files")
def test_a_folder_that_takes_no_files_is_not_called_another_process():
    with pytest.raises(InputError, match="can't write the rollout store"):
        RolloutStore("/proc/rollout.db")
