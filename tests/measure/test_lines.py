"""Data files as numbered records: one bad line takes nothing else with it."""

from __future__ import annotations

import builtins
import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftproof.errors import InputError
from draftproof.measure.lines import fingerprint, read_lines


def lines_of(path: Path, data: bytes):
    path.write_bytes(data)
    return list(read_lines(path))


def test_each_line_has_its_number_and_its_own_fault(tmp_path: Path) -> None:
    data = b'{"prompt": "a"}\n{"prompt": \n\n  \t\n{"prompt": "\xff"}\r\n"text"\n{"prompt": "\xc3\xa4"}'
    lines = lines_of(tmp_path / "x", data)
    assert [line.number for line in lines] == [1, 2, 5, 6, 7]
    assert lines[0].record == {"prompt": "a"}
    assert "not JSON" in (lines[1].fault or "")
    assert "not UTF-8: byte 0xff at place 13" in (lines[2].fault or "")
    assert lines[3].record == "text"
    assert lines[4].record == {"prompt": "ä"}


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (fingerprint, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="is no regular file, and is read more than once: save it to a file first"):
            read(tmp_path / "pipe")


def test_a_byte_order_mark_and_crlf_are_no_faults(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "x", b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}\r\n')
    assert [line.record for line in lines] == [{"prompt": "a"}, {"prompt": "b"}]


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", '{"prompt": "a"}'.encode("utf-16")])
def test_a_monstrous_line_is_a_fault_like_any_other(tmp_path: Path, line: bytes) -> None:
    lines = lines_of(tmp_path / "x", line.replace(b"\n", b"") + b'\n{"prompt": "b"}\n')
    assert lines[0].fault
    assert lines[-1].record == {"prompt": "b"}


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "x", b"") == []


def test_parquet_rows_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    rows = [{"messages": [{"role": "user", "content": str(i)}], "task": None if i % 2 else "t"} for i in range(600)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    lines = list(read_lines(path))
    assert [line.number for line in lines] == list(range(1, 601))
    assert [line.record for line in lines] == rows


def test_a_parquet_string_that_is_no_utf8_is_a_fault_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "x"
    binary = pa.array([b"a", b"\xff", b"c"], pa.binary())
    text = pa.StringArray.from_buffers(3, *binary.buffers()[1:3])
    pq.write_table(pa.table({"prompt": text}), path)
    lines = list(read_lines(path))
    assert [line.fault is None for line in lines] == [True, False, True]
    assert lines[2].record == {"prompt": "c"}


def test_a_broken_parquet_file_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="can't be read as a Parquet file"):
        list(read_lines(path))


@pytest.mark.parametrize("data", [b"", b'{"prompt": "a"}\n', b"PAR", b"<html>"])
@pytest.mark.parametrize("name", ["x.parquet", "x.Parquet"])
def test_a_file_that_says_parquet_and_is_none_is_one_error(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=r"is no Parquet file, whatever its name: .* a name like data\.jsonl"):
        list(read_lines(tmp_path / name))


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_file_that_can_t_be_read_is_one_error(tmp_path: Path, name: str) -> None:
    for read in (fingerprint, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="can't read the data file"):
            read(tmp_path / name)


def test_the_fingerprint_is_the_content_s(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert fingerprint(tmp_path / "x") == hashlib.sha256(b"abc").hexdigest()


def test_without_pyarrow_the_way_to_get_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"PAR1....")
    real = builtins.__import__

    def refuse(name: str, *args: object, **named: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **named)

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(InputError) as error:
        list(read_lines(path))
    assert "pip install 'draftproof[measure]'" in str(error.value)
