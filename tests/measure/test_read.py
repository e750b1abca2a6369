"""Reading a run: what a folder holds comes back as it is; what is no run, or not whole, is one clear error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftproof.errors import InputError
from draftproof.measure.read import read_info, read_run
from draftproof.planner.acceptance import counted, estimate

GAMMA = 3
MODEL = {"name": "big", "parameters": 10}
Row = tuple[str, int, str, int, int, str, int, int, list[float], list[float]]

# drafter, prompt, bucket, pos, round, outcome, drafted, offered, keep, accept
ROWS: list[Row] = [
    ("a", 0, "chat", 0, 0, "plain", 0, 0, [], []),
    ("a", 0, "chat", 1, 1, "accepted", 3, 3, [1, 0.5, 0], [0.9, 0.8, 0.7]),
    ("a", 0, "chat", 2, 1, "accepted", 3, 2, [0.25], [0.6]),
    ("a", 0, "chat", 3, 1, "correction", 3, 1, [0], [0.5]),
    ("a", 0, "chat", 4, 2, "plain", 0, 0, [], []),
    ("b", 0, "chat", 0, 0, "plain", 0, 0, [], []),
    ("a", 1, "edit", 0, 0, "plain", 0, 0, [], []),
    ("a", 1, "edit", 1, 1, "accepted", 1, 2, [1, 1], [1, 1]),
    ("a", 1, "edit", 2, 1, "bonus", 1, 0, [], []),
    ("b", 1, "edit", 0, 0, "plain", 0, 0, [], []),
    ("b", 1, "edit", 1, 1, "plain", 0, 1, [0.5], [0.5]),
]
REQUESTS = [(0, "chat", "a", 7, 5), (0, "chat", "b", 7, 1), (1, "edit", "a", 9, 3), (1, "edit", "b", 9, 2)]


def token_table(rows: Sequence[Row], start: int = 0, stop: int | None = None) -> pa.Table:
    columns = list(zip(*rows[start:stop], strict=True))
    text, lists = pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.float32())
    types = [text, pa.int32(), text, pa.int32(), pa.int32(), text, pa.int16(), pa.int16(), lists, lists]
    names = ["drafter", "prompt", "bucket", "pos", "round", "outcome", "drafted", "offered", "keep", "accept"]
    return pa.table({name: pa.array(c, kind) for name, c, kind in zip(names, columns, types, strict=True)})


def prompt_table(prompts: Sequence[int], finish: str = "stop") -> pa.Table:
    rows = [row for row in REQUESTS if row[0] in prompts]
    names = ["prompt", "bucket", "drafter", "prompt_tokens", "completion_tokens"]
    table = {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    return pa.table({**table, "finish": [finish] * len(rows)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two parts, one prompt each."""
    drafters = [{"name": "a", "kind": "model", "model": MODEL}, {"name": "b", "kind": "suffix", "model": None}]
    info = {"format": 1, "gamma_max": GAMMA, "model": MODEL, "sampling": {"temperature": 0.5}, "drafters": drafters}
    (tmp_path / "run.json").write_text(json.dumps({**info, "complete": True, "data": {"prompts": 2}}))
    for name in ("parts", "prompts"):
        (tmp_path / name).mkdir()
    for number, (start, stop) in enumerate(((0, 6), (6, None))):
        pq.write_table(token_table(ROWS, start, stop), tmp_path / "parts" / f"part-{number:06}.parquet")
        pq.write_table(prompt_table([number]), tmp_path / "prompts" / f"part-{number:06}.parquet")
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_what_is_stored_comes_back(folder: Path) -> None:
    found = read_run(folder)
    assert [(d.name, d.kind, d.model) for d in found.drafters] == [("a", "model", MODEL), ("b", "suffix", None)]
    assert (found.buckets, found.target, found.sampling, found.notes) == (
        ("chat", "edit"),
        MODEL,
        {"temperature": 0.5},
        (),
    )
    decided = [row for row in ROWS if row[3] > 0]
    starts = found.starts
    np.testing.assert_array_equal(starts.prompt, [0, 0, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(starts.offered, [row[7] for row in decided])
    for column, name in ((8, "keep"), (9, "accept")):
        padded = [row[column] + [0] * (GAMMA - len(row[column])) for row in decided]
        np.testing.assert_array_equal(getattr(starts, name), np.array(padded, np.float32))
    np.testing.assert_array_equal(found.drafter_of, [0, 0, 1])
    np.testing.assert_array_equal(found.bucket_of, [0, 1, 1])
    np.testing.assert_array_equal(found.requests.bucket, [0, 0, 1, 1])
    np.testing.assert_array_equal(found.requests.prompt_tokens, [7, 7, 9, 9])
    np.testing.assert_array_equal(found.requests.completion_tokens, [5, 1, 3, 2])


def test_rounds_are_those_that_were_run(folder: Path) -> None:
    rounds = read_run(folder).rounds
    np.testing.assert_array_equal(rounds.prompt, [0, 0, 1, 2])
    np.testing.assert_array_equal(rounds.drafted, [3, 0, 1, 0])
    np.testing.assert_array_equal(rounds.accepted, [2, 0, 1, 0])
    np.testing.assert_array_equal(rounds.tested, [3, 0, 1, 0])
    np.testing.assert_array_equal(rounds.emitted, [3, 1, 2, 1])
    assert counted(rounds, GAMMA)[GAMMA].tokens_per_round.mean == pytest.approx(7 / 4)


def test_texts_and_starts_by_name(folder: Path) -> None:
    found = read_run(folder)
    np.testing.assert_array_equal(found.texts(0, None), [0, 1])
    np.testing.assert_array_equal(found.texts(1, 0), [])
    assert len(found.starts_of("a").prompt) == 6
    assert len(found.starts_of("a", "edit").prompt) == 2
    assert estimate(found.starts_of("a", "edit"), [2])[0].acceptance.mean == 1
    with pytest.raises(ValueError, match="nobody"):
        found.starts_of("nobody")


def test_parts_are_read_in_the_order_of_their_numbers_and_batch_by_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_run(folder)
    monkeypatch.setattr("draftproof.measure.columns._BATCH", 2)
    found = read_run(folder)
    for name in ("prompt", "offered", "keep", "accept"):
        np.testing.assert_array_equal(getattr(found.starts, name), getattr(whole.starts, name))
    np.testing.assert_array_equal(found.rounds.tested, whole.rounds.tested)


def test_the_writers_own_tables_are_read(folder: Path) -> None:
    """Through `store`, with its compression and its columns beside ours."""
    from draftproof.measure.store import RunFolder

    info = json.loads((folder / "run.json").read_text())
    with RunFolder(folder / "inner") as run:
        run.begin({}, lambda: info, [{"line": 3, "reason": "no prompt"}])
        run.write_part(0, token_table(ROWS), prompt_table([0, 1]))
        unfinished = read_run(folder / "inner")
        run.finish()
    found = read_run(folder / "inner")
    np.testing.assert_array_equal(found.starts.keep, read_run(folder).starts.keep)
    assert found.notes == ("1 lines of the data file were skipped (skipped.jsonl)",)
    assert unfinished.notes[0].startswith("the run is not complete")


def test_an_unfinished_run_is_read_as_far_as_it_goes(folder: Path) -> None:
    change(folder, complete=False)
    (folder / "prompts" / "part-000001.parquet").unlink()  # token rows come first
    found = read_run(folder)
    assert found.notes == ("the run is not complete: figures are of what it has stored so far",)
    np.testing.assert_array_equal(found.starts.prompt, [0, 0, 0, 0])


def test_texts_that_broke_off_are_counted_and_said(folder: Path) -> None:
    pq.write_table(prompt_table([0], finish="error"), folder / "prompts" / "part-000000.parquet")
    assert read_run(folder).notes == ("2 texts broke off with an error: what they had until then is counted",)


def test_a_run_that_decided_nothing(folder: Path) -> None:
    only_first = [row for row in ROWS if row[3] == 0]
    for number, prompt in enumerate((0, 1)):
        rows = [row for row in only_first if row[1] == prompt]
        pq.write_table(token_table(rows), folder / "parts" / f"part-{number:06}.parquet")
    found = read_run(folder)
    assert len(found.starts.prompt) == len(found.drafter_of) == len(found.rounds.prompt) == 0


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _broken(name: str) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return break_it


def _rewrite(rows: Sequence[Row]) -> Callable[[Path], None]:
    return lambda folder: pq.write_table(token_table(rows), folder / "parts" / "part-000001.parquet")


def _edited(index: int, column: int, value: object) -> Callable[[Path], None]:
    rows = [list(row) for row in ROWS[6:]]
    rows[index][column] = value
    return _rewrite(rows)


def _without(column: str) -> Callable[[Path], None]:
    def drop(folder: Path) -> None:
        pq.write_table(token_table(ROWS[6:]).drop_columns([column]), folder / "parts" / "part-000001.parquet")

    return drop


def _as_text(folder: Path) -> None:
    table = token_table(ROWS[6:])
    place = table.column_names.index("offered")
    pq.write_table(table.set_column(place, "offered", pa.array(["1"] * 5)), folder / "parts" / "part-000001.parquet")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_drop("run.json"), "is no run folder: it has no run.json"),
        (lambda folder: (folder / "run.json").write_text("{"), "run.json can't be read"),
        (lambda folder: (folder / "run.json").write_text("[]"), "format None"),
        (lambda folder: change(folder, format=2), "has format 2; this version of draftproof reads format 1"),
        (lambda folder: change(folder, gamma_max="3"), "gamma_max must be of type int"),
        (lambda folder: change(folder, model=None), "model must be of type dict"),
        (lambda folder: change(folder, drafters=["a"]), "drafters must be objects with a name"),
        (lambda folder: change(folder, drafters=[{"name": "a"}]), "name a drafter that run.json does not: 'b'"),
        (lambda folder: change(folder, data={"prompts": 3}), "it holds 2 of 3 prompts"),
        (lambda folder: change(folder, gamma_max=2), "a list longer than the run's gamma"),
        (_drop("parts/part-000000.parquet"), "part 0 of its rows is missing"),
        (_drop("prompts/part-000001.parquet"), "part 1 of its rows is missing"),
        (_broken("parts/part-000001.parquet"), "part-000001.parquet can't be read"),
        (lambda folder: (folder / "parts" / "part-x.parquet").touch(), "part-x.parquet is no part of a run"),
        (_without("keep"), "no column 'keep'"),
        (_as_text, "no column 'offered' as this version writes it"),
        (_edited(1, 8, [1, float("nan")]), "keep holds a value that is no probability"),
        (_edited(1, 9, [1, 1.5]), "accept holds a value that is no probability"),
        (_edited(1, 8, None), "without a value in the column 'keep'"),
        (_edited(1, 7, 4), "offer more drafts than the run's gamma"),
        (_edited(1, 3, 2), "not whole"),
        (_rewrite(ROWS[:6]), "not whole"),
        (_rewrite(ROWS[7:]), "not whole"),
    ],
)
def test_what_is_no_run_or_not_whole_is_one_clear_error(
    folder: Path, harm: Callable[[Path], object], says: str
) -> None:
    harm(folder)
    with pytest.raises(InputError, match=says):
        read_run(folder)


def test_a_run_that_stored_nothing_yet(folder: Path) -> None:
    change(folder, complete=False)
    for part in folder.glob("*/part-*.parquet"):
        part.unlink()
    with pytest.raises(InputError, match="has stored nothing yet"):
        read_run(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder: give the folder that `draftproof measure --out` wrote"):
        read_info(tmp_path / "nowhere")


def test_without_pyarrow_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install 'draftproof\[measure\]'"):
        read_run(folder)
