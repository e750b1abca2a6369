"""Whole runs over toy models: the folder they leave, what stops them, and that they carry on to the same rows."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from draftproof.errors import InputError, InvalidParams
from draftproof.measure import files, run
from draftproof.measure.query import query
from draftproof.measure.read import read_run
from draftproof.measure.run import measure
from draftproof.measure.settings import Settings
from draftproof.measure.specs import parse_drafters
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import SamplingParams

pytestmark = pytest.mark.usefixtures("toy_models")
WORDS = ("river", "mill", "lens", "fox", "paper", "the old wheel house", "a b a b a b", "no no no no")


class Silent:
    """Hears everything, says nothing."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.begun: tuple[int, int, int | None] | None = None
        self.num_pairs = 0

    def stage(self, line: str) -> None:
        pass

    def begin(self, total: int, done: int, most_tokens: int | None) -> None:
        self.begun = (total, done, most_tokens)

    def tokens(self, count: int) -> None:
        self.num_tokens += count

    def pairs(self, count: int) -> None:
        self.num_pairs += count


@pytest.fixture
def data(tmp_path: Path, write_lines: Callable[..., Path]) -> Path:
    records = [{"prompt": f"{WORDS[i % 8]} {i}", "task": ("a", "b", "c")[i % 3]} for i in range(11)]
    return write_lines(tmp_path / "data.jsonl", records)


@pytest.fixture
def settings(model_folder: Path, data: Path, tmp_path: Path) -> Settings:
    return Settings(
        model=str(model_folder),
        drafters=parse_drafters(["suffix", "ngram", "early_exit:2"]),
        data=data,
        out=tmp_path / "run",
        sampling=SamplingParams(seed=0, temperature=0.9),
        max_new_tokens=12,
        gamma=3,
        bucket_field="task",
        batch=3,
        engine={"cache_dir": str(tmp_path / "cache")},
    )


def go(settings: Settings) -> tuple[Any, Silent]:
    watch = Silent()
    return measure(settings, ["draftproof", "measure"], watch), watch


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything that is stored of a run, by kind, in its order; dictionaries and part boundaries do not matter."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("parts", "prompts"):
        parts = sorted((folder / kind).iterdir())
        assert [part.name for part in parts] == [f"part-{n:06d}.parquet" for n in range(len(parts))]
        found[kind] = [row for part in parts for row in pq.read_table(part).to_pylist()]
    found["skipped"] = [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]
    return found


# -- what a run leaves -------------------------------------------------------------------------------------------------


def test_the_folder_of_a_run(settings: Settings) -> None:
    outcome, watch = go(settings)
    info = json.loads((settings.out / "run.json").read_text())
    assert info["format"] == 1
    assert info["complete"] is True
    assert info["log"] is False
    assert info["gamma_max"] == 3
    assert info["max_new_tokens"] == 12
    assert info["command"] == ["draftproof", "measure"]
    assert info["data"] == {"path": str(settings.data), "sha256": info["data"]["sha256"], "lines": 11, "prompts": 11}
    assert info["sampling"]["temperature"] == 0.9
    assert info["sampling"]["rule"] == "coupled"
    assert [drafter["name"] for drafter in info["drafters"]] == ["suffix", "ngram", "early_exit:2"]
    assert [drafter["kind"] for drafter in info["drafters"]] == ["suffix", "ngram", "early_exit"]
    assert info["drafters"][0]["model"] is None
    assert info["model"]["parameters"] == 259 * 32 + 16 + 8
    assert info["model"]["num_layers"] == 4
    assert info["drafters"][2]["model"]["parameters"] == 259 * 32 + 16  # layer 3 does not run
    assert info["drafters"][2]["model"]["num_layers"] == 2
    assert info["model"]["head_dim"] == 8
    assert info["model"]["num_kv_heads"] == 2
    assert outcome.counts.prompts == 11
    assert not outcome.untouched
    assert outcome.counts.excluded == outcome.counts.failed == 0
    assert watch.begun == (33, 0, 12)
    assert watch.num_pairs == 33
    stored = rows(settings.out)
    assert watch.num_tokens == len(stored["parts"]) == outcome.counts.tokens


def test_rows_are_sorted_whole_and_of_the_agreed_types(settings: Settings) -> None:
    go(settings)
    schema = pq.read_schema(settings.out / "parts" / "part-000000.parquet")
    assert [(field.name, str(field.type)) for field in schema] == [
        ("drafter", "dictionary<values=string, indices=int32, ordered=0>"),
        ("prompt", "int32"),
        ("bucket", "dictionary<values=string, indices=int32, ordered=0>"),
        ("pos", "int32"),
        ("token", "int32"),
        ("round", "int32"),
        ("depth", "int16"),
        ("outcome", "dictionary<values=string, indices=int32, ordered=0>"),
        ("drafted", "int16"),
        ("offered", "int16"),
        ("keep", "list<element: float>"),
        ("accept", "list<element: float>"),
    ]
    assert [
        (field.name, str(field.type)) for field in pq.read_schema(settings.out / "prompts" / "part-000000.parquet")
    ] == [
        ("prompt", "int32"),
        ("line", "int32"),
        ("bucket", "string"),
        ("drafter", "string"),
        ("prompt_tokens", "int32"),
        ("completion_tokens", "int32"),
        ("finish", "string"),
        ("rounds", "int32"),
    ]
    stored = rows(settings.out)
    order = {"suffix": 0, "ngram": 1, "early_exit:2": 2}
    keys = [(row["prompt"], order[row["drafter"]], row["pos"]) for row in stored["parts"]]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    texts = {(row["prompt"], row["drafter"]): row for row in stored["prompts"]}
    assert len(texts) == 33
    for row in stored["parts"]:
        text = texts[row["prompt"], row["drafter"]]
        assert row["bucket"] == text["bucket"] == "abc"[row["prompt"] % 3]
        assert text["line"] == row["prompt"] + 1
        assert row["pos"] < text["completion_tokens"] <= 12
        assert row["round"] < text["rounds"]
        assert len(row["keep"]) == len(row["accept"]) <= row["offered"] <= 3
        assert all(0 <= chance <= 1 for chance in row["keep"] + row["accept"])
        assert row["pos"] or (row["offered"], row["outcome"], row["drafted"], row["round"]) == (0, "plain", 0, 0)


def test_the_same_command_gives_the_same_bytes(settings: Settings, tmp_path: Path) -> None:
    again = replace(settings, out=tmp_path / "again")
    go(settings)
    go(again)
    for part in sorted(settings.out.glob("p*/*.parquet")):
        assert part.read_bytes() == (again.out / part.relative_to(settings.out)).read_bytes()


@pytest.mark.parametrize("rule", ["coupled", "reject"])
def test_how_many_run_at_once_changes_nothing(settings: Settings, tmp_path: Path, rule: str) -> None:
    one = replace(settings, sampling=replace(settings.sampling, rule=rule))
    go(one)
    for name, changed in (
        ("alone", {"batch": 1}),
        ("all", {"batch": 11}),
        ("memory", {"batch": 11, "engine": {**settings.engine, "kv_memory": 256 * 17}}),
    ):
        other = replace(one, out=tmp_path / name, **changed)
        go(other)
        assert rows(other.out) == rows(one.out)


def test_a_stop_string_ends_a_text_as_the_engine_would(settings: Settings, tmp_path: Path) -> None:
    go(settings)
    decode = Tokenizer.from_folder(settings.model).decode
    free = rows(settings.out)["parts"]
    later = [row for row in free if row["pos"] > 2 and decode([row["token"]]).isprintable() and row["token"] < 256]
    found = next(row for row in later if "\ufffd" not in decode([row["token"]]))
    stop = decode([found["token"]])
    cut = replace(settings, out=tmp_path / "cut", sampling=replace(settings.sampling, stop=(stop,)))
    go(cut)
    stored = rows(cut.out)
    text = next(row for row in stored["prompts"] if row["prompt"] == found["prompt"])
    assert text["finish"] == "stop"
    assert text["completion_tokens"] <= found["pos"] + 1
    for drafter in ("suffix", "ngram", "early_exit:2"):
        whole, short = (
            [row["token"] for row in kind if (row["prompt"], row["drafter"]) == (found["prompt"], drafter)]
            for kind in (free, stored["parts"])
        )
        assert short == whole[: len(short)]
        assert short[-1] == found["token"]


# -- logs --------------------------------------------------------------------------------------------------------------


def test_completions_are_scored_as_they_are(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    records = [{"prompt": f"p{i}", "completion": "abcabcabc" * (i + 1), "task": "x"} for i in range(4)]
    log = replace(settings, data=write_lines(tmp_path / "log.jsonl", records), max_new_tokens=None)
    outcome, watch = go(log)
    assert outcome.log
    stored = rows(log.out)
    for prompt in range(4):
        for drafter in ("suffix", "ngram", "early_exit:2"):
            tokens = [r["token"] for r in stored["parts"] if (r["prompt"], r["drafter"]) == (prompt, drafter)]
            assert tokens == [*(b"abcabcabc" * (prompt + 1)), 256] or len(tokens) == 9 * (prompt + 1) + 1
            assert tokens[-1] == 256  # the template's end
    assert watch.begun == (12, 0, None)
    assert watch.num_tokens == len(stored["parts"]) == outcome.counts.tokens
    assert {row["finish"] for row in stored["prompts"]} == {"stop"}
    assert json.loads((log.out / "run.json").read_text())["max_new_tokens"] is None


def test_a_cap_on_a_log_scores_its_first_tokens(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    records = [{"prompt": "p", "completion": "abcabcabc", "task": "x"}]
    log = replace(settings, data=write_lines(tmp_path / "log.jsonl", records), max_new_tokens=5)
    go(log)
    stored = rows(log.out)
    assert {row["completion_tokens"] for row in stored["prompts"]} == {5}
    assert {row["finish"] for row in stored["prompts"]} == {"length"}
    assert max(row["offered"] for row in stored["parts"] if row["pos"] == 4) == 0  # a cap is foreseen


def test_a_foreign_log_shows_in_its_excluded_tokens(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    records = [{"prompt": "p", "completion": "zyxwvut" * 5, "task": "x"}]
    greedy = replace(settings.sampling, temperature=0.0)
    log = replace(settings, data=write_lines(tmp_path / "log.jsonl", records), max_new_tokens=None, sampling=greedy)
    outcome, _ = go(log)
    assert outcome.counts.excluded > 0.5 * outcome.counts.tokens


# -- bad data ----------------------------------------------------------------------------------------------------------

BAD = [
    (b'{"prompt": "bro', "not JSON"),
    (b'{"prompt": "\xff"}', "not UTF-8"),
    ({"text": "x"}, "no prompt"),
    ({"prompt": 3}, "must be a string"),
    ({"prompt": "x" * 300}, "the model's context limit is 256"),
    ({"prompt": "x", "task": {}}, "bucket field"),
    ({"prompt": "\ud800"}, "valid Unicode"),
]


def test_bad_lines_are_skipped_and_nothing_else_is(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    good = [{"prompt": f"good {i}", "task": "a"} for i in range(8)]
    mixed = [record for pair in zip(good, BAD, strict=False) for record in (pair[0], pair[1][0])] + good[7:]
    with_bad = replace(settings, data=write_lines(tmp_path / "mixed.jsonl", mixed))
    outcome, _ = go(with_bad)
    assert outcome.counts.prompts == 8
    assert [entry["line"] for entry in outcome.skipped] == [2, 4, 6, 8, 10, 12, 14]
    for entry, (_, reason) in zip(outcome.skipped, BAD, strict=True):
        assert reason in entry["reason"]
    stored = rows(with_bad.out)
    assert stored["skipped"] == list(outcome.skipped)
    assert {row["line"] for row in stored["prompts"]} == {1, 3, 5, 7, 9, 11, 13, 15}
    assert json.loads((with_bad.out / "run.json").read_text())["data"]["lines"] == 15


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_strict_ends_at_the_first_bad_line_before_anything_is_measured(
    settings: Settings, tmp_path: Path, write_lines: Any, bad: Any, reason: str
) -> None:
    path = write_lines(tmp_path / "bad.jsonl", [{"prompt": "a", "task": "a"}, bad, {"prompt": "b"}])
    with pytest.raises(InputError) as error:
        go(replace(settings, data=path, strict=True))
    assert f"line 2 of {path}: " in str(error.value)
    assert reason in str(error.value)
    assert not settings.out.exists()


@pytest.mark.parametrize(
    ("records", "changed", "message"),
    [
        ([], {}, "has no line that can be measured (the file is empty)"),
        ([b"nonsense", {"x": 1}], {}, "no line that can be measured (line 1: not JSON"),
        ([{"prompt": "x" * 300, "task": "a"}], {}, "no line that can be measured (line 1: the prompt of"),
        ([{"prompt": "x"}], {}, "has the bucket field 'task'"),
        (
            [{"prompt": "x", "task": "a"}, {"prompt": "x", "completion": "y"}],
            {},
            "1 lines of DATA have a completion (line 2) and 1 have none (line 1): --log scores",
        ),
        ([{"prompt": "x", "task": "a"}], {"log": True}, "no line of DATA has a completion to score: drop --log"),
    ],
)
def test_data_that_can_t_be_measured_leaves_nothing(
    settings: Settings, tmp_path: Path, write_lines: Any, records: list[Any], changed: dict[str, Any], message: str
) -> None:
    path = write_lines(tmp_path / "x.jsonl", records)
    with pytest.raises(InputError) as error:
        go(replace(settings, data=path, **changed))
    assert message.replace("DATA", str(path)) in str(error.value)
    assert not settings.out.exists()


def test_log_or_no_log_says_what_a_file_of_both_kinds_is_for(
    settings: Settings, tmp_path: Path, write_lines: Any
) -> None:
    records = [{"prompt": "x", "task": "a"}, {"prompt": "x", "completion": "yyyy", "task": "a"}]
    both = replace(settings, data=write_lines(tmp_path / "x.jsonl", records))
    scored, _ = go(replace(both, log=True, out=tmp_path / "scored"))
    assert scored.log
    assert [entry["line"] for entry in scored.skipped] == [1]
    assert "no completion to score" in scored.skipped[0]["reason"]
    written, _ = go(replace(both, log=False, out=tmp_path / "written"))
    assert not written.log
    assert written.skipped == ()
    assert written.counts.prompts == 2


def test_a_limit_takes_the_first_usable_lines(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    records = [b"{", {"prompt": "x" * 300}, *({"prompt": f"p{i}", "task": "a"} for i in range(5)), b"{"]
    limited = replace(settings, data=write_lines(tmp_path / "x.jsonl", records), limit=4)
    outcome, _ = go(limited)
    assert outcome.counts.prompts == 4
    assert [entry["line"] for entry in outcome.skipped] == [1, 2]
    assert {row["line"] for row in rows(limited.out)["prompts"]} == {3, 4, 5, 6}


def test_a_completion_beyond_what_the_limit_looked_at_is_not_dropped_silently(
    settings: Settings, tmp_path: Path, write_lines: Any
) -> None:
    records = [{"prompt": "x" * 300, "task": "a"}, {"prompt": "x", "task": "a", "completion": "y"}]
    with pytest.raises(InputError, match="has a completion, unlike the lines before"):
        go(replace(settings, data=write_lines(tmp_path / "x.jsonl", records), limit=1))


def test_lines_without_the_bucket_field_are_counted(settings: Settings, tmp_path: Path, write_lines: Any) -> None:
    records = [{"prompt": "a", "task": "x"}, {"prompt": "b"}]
    outcome, _ = go(replace(settings, data=write_lines(tmp_path / "x.jsonl", records)))
    assert outcome.unnamed == 1
    assert {row["bucket"] for row in rows(settings.out)["prompts"]} == {"x", "default"}


# -- carried on --------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As if the process were gone: nothing that catches errors catches it."""


def test_whatever_write_a_run_dies_at_it_carries_on_to_the_same_rows(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(settings)
    truth = rows(settings.out)
    real = {"fsync": os.fsync, "replace": os.replace}
    calls = 0
    deadly: int | None = None

    def counted(name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == deadly:
                raise Killed
            return real[name](*args)

        return call

    for name in real:
        monkeypatch.setattr(files.os, name, counted(name))
    broken = replace(settings, out=tmp_path / "broken")
    deaths = 0
    for deadly in range(1, 100):
        calls = 0
        try:
            go(replace(broken, out=tmp_path / f"broken-{deadly}"))
            break
        except Killed:
            deaths += 1
        deadly_now, deadly = deadly, None
        outcome, _ = go(replace(broken, out=tmp_path / f"broken-{deadly_now}"))
        assert not outcome.untouched
        assert rows(outcome.path) == truth
        assert not list(outcome.path.rglob("*.tmp"))
        assert json.loads((outcome.path / "run.json").read_text())["complete"] is True
    assert deaths == 2 * (3 + 2 * 4 + 1)  # asked, skipped, run; four parts of two files; run again


def test_a_run_that_is_cut_off_again_and_again_moves_on(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(settings)
    one_part = replace(settings, out=tmp_path / "cut")
    real = run.measure_group
    measured: list[int] = []

    def dying(bench: Any, prompts: Any, tick: Any, done: Any) -> Any:
        if measured:
            raise KeyboardInterrupt
        measured.extend(prompt.number for prompt in prompts)
        return real(bench, prompts, tick, done)

    monkeypatch.setattr(run, "measure_group", dying)
    order: list[int] = []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            go(one_part)
        order += measured
        measured.clear()
    outcome, watch = go(one_part)
    assert order + measured == list(range(11))  # no prompt twice
    assert watch.begun == (33, 27, 12)
    assert rows(outcome.path) == rows(settings.out)


def test_a_complete_run_is_left_as_it_is(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    go(settings)
    before = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in settings.out.rglob("*.*") if path.is_file()
    }
    monkeypatch.setattr(run, "build_each", None)  # no model is loaded
    outcome, watch = go(settings)
    assert outcome.untouched
    assert outcome.counts.prompts == 11
    assert watch.begun is None
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before if path.name != ".lock"}
    assert after == {path: kept for path, kept in before.items() if path.name != ".lock"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": 5}, "--gamma was 3, now it is 5"),
        ({"sampling": SamplingParams(seed=0, temperature=0.8)}, "--temperature was 0.9, now it is 0.8"),
        (
            {"sampling": SamplingParams(seed=0, temperature=0.9, rule="reject")},
            '--rule was "coupled", now it is "reject"',
        ),
        ({"max_new_tokens": None}, "--max-new-tokens was 12, now it is not given"),
        ({"bucket_field": None}, '--bucket-field was "task", now it is not given'),
        ({"drafters": parse_drafters(["suffix"])}, "--drafter was ["),
        ({"limit": 3}, "--limit was not given, now it is 3"),
        ({"batch": 4}, "--batch was 3, now it is 4"),
        ({"chat": False}, "--chat was not given, now it is false"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_run_with_other_settings_is_not_touched(
    settings: Settings, changed: dict[str, Any], message: str, complete: bool
) -> None:
    go(settings)
    if not complete:
        (settings.out / "prompts" / "part-000003.parquet").unlink()
        info = json.loads((settings.out / "run.json").read_text())
        (settings.out / "run.json").write_text(json.dumps({**info, "complete": False}))
    before = {path: path.read_bytes() for path in settings.out.rglob("*") if path.is_file()}
    with pytest.raises(InputError) as error:
        go(replace(settings, **changed))
    assert message in str(error.value)
    assert {path: path.read_bytes() for path in settings.out.rglob("*") if path.is_file()} == before


def test_other_data_or_another_model_under_the_same_name_is_another_run(settings: Settings, toy: Any) -> None:
    go(settings)
    settings.data.write_bytes(settings.data.read_bytes() + b'{"prompt": "new"}\n')
    with pytest.raises(InputError, match="the data was"):
        go(settings)


def test_another_model_under_the_same_name_is_another_run(settings: Settings) -> None:
    go(settings)
    weights = Path(settings.model) / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    with pytest.raises(InputError, match="the model was"):
        go(settings)


def test_another_version_is_another_run(settings: Settings) -> None:
    go(settings)
    asked = json.loads((settings.out / "asked.json").read_text())
    (settings.out / "asked.json").write_text(json.dumps({**asked, "the version of numpy": "1.0"}))
    with pytest.raises(InputError, match=r'the version of numpy was "1\.0", now it is'):
        go(settings)


def test_a_folder_that_holds_something_else_is_not_touched(settings: Settings) -> None:
    settings.out.mkdir()
    (settings.out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no run"):
        go(settings)
    assert (settings.out / "notes.txt").read_text() == "mine"
    (settings.out / "notes.txt").unlink()
    go(settings)  # an empty one will do


def test_a_file_in_the_way_is_one_error(settings: Settings) -> None:
    settings.out.write_text("")
    with pytest.raises(InputError, match="is a file"):
        go(settings)


def test_two_processes_never_write_one_run(settings: Settings) -> None:
    settings.out.mkdir()
    with FileLock(settings.out / ".lock"), pytest.raises(InputError, match="another process is measuring into"):
        go(settings)
    go(settings)


def test_a_full_disk_is_one_error_and_keeps_what_is_there(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        go(settings)
    assert len(list(settings.out.glob("prompts/*.parquet"))) == 2
    assert not list(settings.out.rglob("*.tmp"))
    monkeypatch.setattr(files.os, "fsync", real)
    _, watch = go(settings)
    assert watch.begun == (33, 18, 12)


BAD_STOP = SamplingParams(seed=0, stop_ids=(999_999,))


def everything(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_refusal_leaves_what_was_there_and_nothing_else(settings: Settings, tmp_path: Path) -> None:
    before = everything(tmp_path)
    for out in ("run", "a/b/run", "."):
        with pytest.raises(InputError):
            go(replace(settings, out=settings.out.parent / "out" / out, sampling=BAD_STOP))
    places = {"cache", *(path.name for path in before if path.parent == tmp_path)}
    assert {path.name for path in tmp_path.iterdir()} == places
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="outside the vocabulary"):
        go(replace(settings, out=empty, sampling=BAD_STOP))
    assert everything(empty) == {}


def test_a_refusal_takes_nothing_that_was_not_the_run_s(settings: Settings) -> None:
    mine = settings.out / "parts"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    (settings.out / "run.json").write_text("mine too")
    before = everything(settings.out)
    with pytest.raises(InputError, match="holds no run"):
        go(settings)
    assert everything(settings.out) == before


@pytest.mark.parametrize("calls_before", range(5))
def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, calls_before: int
) -> None:
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > calls_before:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        go(settings)
    assert calls == calls_before + 1
    assert not settings.out.exists()


def test_a_run_that_was_begun_before_survives_a_refusal_before_its_first_part(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(settings)
    for part in settings.out.glob("p*/*.parquet"):
        part.unlink()
    before = everything(settings.out)

    def refuse(*_: Any) -> Any:
        raise InputError("no more")

    monkeypatch.setattr(run, "measure_group", refuse)
    with pytest.raises(InputError, match="no more"):
        go(settings)
    assert everything(settings.out) == before


@pytest.mark.parametrize("kind", ["parts", "prompts"])
@pytest.mark.parametrize("number", [1, 3])
def test_a_broken_part_is_named_with_the_way_to_mend_it_which_mends_it(
    settings: Settings, kind: str, number: int
) -> None:
    go(settings)
    whole = everything(settings.out)
    part = settings.out / kind / f"part-{number:06d}.parquet"
    data = bytearray(part.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)  # the footer is whole: only reading the rows tells
    for broken in (b"PAR1 and no more", b"", bytes(data)):
        part.write_bytes(broken)
        for ask in (lambda: read_run(settings.out), lambda: query(settings.out, "select * from tokens, prompts")):
            with pytest.raises(InputError) as error:
                ask()
            assert str(error.value).startswith(f"{part} can't be read (")
            assert "delete this file and give the same `draftproof measure` command again" in str(error.value)
    if kind == "prompts":
        with pytest.raises(InputError, match="delete this file and give the same"):
            go(settings)
    part.unlink()
    with pytest.raises(InputError, match=r"is not whole.*; give the same `draftproof measure` command again"):
        read_run(settings.out)
    outcome, watch = go(settings)
    assert not outcome.untouched
    assert watch.num_tokens < outcome.counts.tokens  # that part alone
    assert watch.num_pairs + 9 * number == 33
    assert everything(settings.out) == whole
    assert go(settings)[0].untouched


# -- as a process ------------------------------------------------------------------------------------------------------


def test_killed_at_random_moments_a_run_gives_the_rows_of_an_uninterrupted_one(
    settings: Settings, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("toy_cli.py")

    def command(out: Path) -> list[str]:
        drafters = ["--drafter", "suffix", "--drafter", "ngram", "--drafter", "early_exit:2"]
        sampling = ["--temperature", "0.9", "--max-new-tokens", "12", "--gamma", "3", "--batch", "1"]
        places = ["--model", settings.model, "--data", str(settings.data), "--out", str(out)]
        cache = ["--cache-dir", str(tmp_path / "cache"), "--quiet", "--json"]
        return [sys.executable, str(script), "measure", *drafters, *sampling, *places, *cache]

    whole = subprocess.run(command(tmp_path / "whole"), capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stderr
    rng = random.Random(3)
    killed = 0
    for attempt in range(40):
        process = subprocess.Popen(command(tmp_path / "cut"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if attempt < 6:
            parts = len(list((tmp_path / "cut").glob("prompts/*.parquet")))
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline:  # until it has begun to measure
                if len(list((tmp_path / "cut").glob("parts/*"))) > parts:
                    break
                time.sleep(0.002)
            time.sleep(rng.random() * 0.08)
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), err
        if process.returncode == 0:
            break
    assert killed >= 3
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    ours, theirs = json.loads(out), json.loads(whole.stdout)
    assert ours["results"] == theirs["results"]


def test_a_rule_that_judges_chains_as_a_whole_is_refused(tmp_path):
    sampling = SamplingParams(seed=1, temperature=1.0, rule="block")
    with pytest.raises(InvalidParams, match="measure with --rule reject"):
        Settings("demo", (), tmp_path / "d.jsonl", tmp_path / "run", sampling)
