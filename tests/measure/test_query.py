"""SQL over a run: its own rows, nothing else, and nothing written."""

import json

import pytest

from draftproof.cli.main import main
from draftproof.errors import InputError
from draftproof.measure.query import query

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("duckdb")


@pytest.fixture
def run_folder(tmp_path):
    """A folder with what a query needs of a run."""
    info = {"format": 1, "gamma_max": 4, "complete": True, "model": {"name": "m"}, "drafters": [], "sampling": {}}
    (tmp_path / "run.json").write_text(json.dumps(info))
    for part, table in (
        ("parts", {"bucket": ["a", "a", "b"], "outcome": ["accepted", "plain", "bonus"], "keep": [[1.0], [], [0.5]]}),
        ("prompts", {"bucket": ["a", "b"], "rounds": [1, 2]}),
    ):
        (tmp_path / part).mkdir()
        pq.write_table(pa.table(table), tmp_path / part / "part-000000.parquet")
    return tmp_path


def test_rows_are_counted(run_folder):
    columns, rows = query(run_folder, "select bucket, count(*) as n from tokens group by bucket order by bucket")
    assert (columns, rows) == (["bucket", "n"], [["a", 2], ["b", 1]])
    assert query(run_folder, "select sum(rounds) from prompts")[1] == [[3]]


def test_the_command_prints_a_table_or_json(run_folder, capsys):
    assert main(["query", str(run_folder), "select bucket, 0.123456789 as x from prompts order by 1"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "0.123457"]
    assert main(["query", str(run_folder), "select keep from tokens where bucket = 'b'", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["keep"], "rows": [[[0.5]]]}


@pytest.mark.parametrize(
    "sql",
    [
        "selec 1",
        "select * from nothing",
        "select * from read_csv('/etc/hostname')",
        "copy tokens to 'out.csv'",
        "set enable_external_access = true",
        "install httpfs",
        "",
        ";",
        "-- nothing",
        "select 1; select 2",
        "drop table tokens",
        "create table x as select 1",
    ],
)
def test_what_cannot_be_asked_is_one_error_and_changes_nothing(run_folder, sql, capsys):
    before = sorted((path, path.stat().st_mtime_ns) for path in run_folder.rglob("*"))
    assert main(["query", str(run_folder), sql]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert before == sorted((path, path.stat().st_mtime_ns) for path in run_folder.rglob("*"))


def test_what_is_no_number_is_null(run_folder, capsys):
    assert main(["query", str(run_folder), "select 'nan'::double as x, 'inf'::double as y, 1.5 as z", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [[None, None, 1.5]]


def test_no_run_and_no_rows_are_refused(tmp_path, run_folder):
    (run_folder / "prompts" / "part-000000.parquet").unlink()
    with pytest.raises(InputError, match="no rows yet"):
        query(run_folder, "select 1")
    with pytest.raises(InputError, match=r"run"):
        query(tmp_path / "nowhere", "select 1")
