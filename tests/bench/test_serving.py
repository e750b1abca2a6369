"""The loads of a server: what is asked, in which order, and how the file is judged."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
from bench.groups import AUTO, GAMMAS, LOADS, OFF, SERVED_BATCHING
from bench.serving import Amount
from bench.workloads import BUCKETS, WORKLOADS

from bench import demands, run, serving

PEER = SERVED_BATCHING.name


def test_every_bucket_is_asked_at_every_number_of_streams():
    alone = {(load.streams, load.bucket) for load in LOADS if load.bucket}
    assert alone == {(streams, bucket) for streams in (1, 4, 8, 16) for bucket in BUCKETS}
    mixed = {load.streams: load for load in LOADS if load.bucket is None}
    assert set(mixed) == {8, 32}
    assert all(set(load.policies) == {AUTO, OFF, "gamma 1", "gamma 2", "gamma 4", "gamma 8"} for load in mixed.values())
    assert mixed[8].peer
    assert SERVED_BATCHING.options["streams"] == 8, "the peer runs as many at once as we do"
    assert all(load.num_requests >= 2 * load.streams for load in LOADS if load.streams > 1), "streams are kept busy"


@pytest.mark.parametrize("load", LOADS, ids=lambda load: f"{load.name} {load.bucket}")
def test_requests_are_the_workloads_prompts_evenly(load):
    asked = serving.works(load, load.num_requests)
    counts = Counter(request for requests in asked for request in requests)
    wanted = {(b, text) for b, texts in WORKLOADS.items() for text in texts if load.bucket in (None, b)}
    assert set(counts) == wanted
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(asked) == (4 if load.streams == 1 else 1)


def test_a_smoke_run_is_small():
    assert all(Amount(3, 16).of(load) == (1, min(load.num_requests, load.streams), 16) for load in LOADS)
    assert Amount(3).of(LOADS[0]) == (3, 24, 128)
    assert Amount(3).of(LOADS[-1]) == (3, 64, 64)


@pytest.fixture
def said(monkeypatch, tmp_path):
    """measure() over workers that only note what they are asked."""
    asked = []

    class Fake:
        def __init__(self, name, command, log):
            self.name, self.hello = name, {"versions": {}}
            if "absent" in command:
                raise serving.WorkerError("not installed")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def ask(self, op, **request):
            asked.append((self.name, op, request))
            return {"seconds": 1.0, "counts": [1], "digests": ["d"]} if op == "run" else {}

        def cpu_seconds(self):
            return 0.0

        def memory_mib(self):
            return 1

    monkeypatch.setattr(serving, "Worker", Fake)
    monkeypatch.setattr(serving, "command", lambda config, models: ["peer"])
    monkeypatch.setattr(serving, "resolve", lambda name: SimpleNamespace(path="p"))
    monkeypatch.setattr("bench.turns._SETTLE_S", 0.0)
    return asked


def test_policies_take_turns_over_the_same_requests_and_begin_with_nothing_learned(said):
    measured = serving.measure([LOADS[0]], Amount(2), lambda line: None)
    rounds = [[run["config"] for run in measured.runs if run["repeat"] == repeat] for repeat in (0, 1)]
    assert rounds[0] == [*GAMMAS, PEER]
    assert rounds[1] == [*rounds[0][1:], rounds[0][0]]
    fresh = [index for index, (_, op, _) in enumerate(said) if op == "fresh"]
    assert len(fresh) == 2, "our engine and the peer"
    warm, real = said[: fresh[0]], said[fresh[1] + 1 :]
    assert len(warm) == len(GAMMAS) + 1
    ours = [request for name, _, request in real if name == "ours"]
    assert len({str(request["requests"]) for request in ours}) == 1
    assert [request["gamma"] for request in ours[:6]] == list(GAMMAS.values())
    assert {request["streams"] for request in ours} == {8}
    peers = [request for name, _, request in real if name == PEER]
    assert peers[0]["prompts"] == [text for _, text in ours[0]["requests"]]


def test_a_peer_that_is_not_there_is_said_and_the_rest_goes_on(said, monkeypatch):
    monkeypatch.setattr(serving, "command", lambda config, models: ["absent"])
    measured = serving.measure([LOADS[0]], Amount(1), lambda line: None)
    assert measured.skipped == {PEER: "not installed"}
    assert {run["config"] for run in measured.runs} == set(GAMMAS)


def _runs(seconds):
    return [
        {"load": load.name, "bucket": load.bucket or "all", "prompt": 0, "repeat": 0, "config": config}
        | {"seconds": seconds.get(config, 1.0), "counts": [100], "digests": ["same"]}
        for load in LOADS
        for config in [*load.policies, *([PEER] if load.peer else [])]
    ]


def test_the_rows_hold_at_their_bounds():
    rows = demands.serving(_runs({AUTO: 1.0, OFF: 0.9801, PEER: 1.2001}))
    assert len(rows) == 5 + 1 + 5 + 12 + 1
    assert all(row.holds for row in rows)
    slower = demands.serving(_runs({AUTO: 1.0, OFF: 0.979, PEER: 1.19, "gamma 4": 0.96}))
    missed = {(row.what, row.bucket) for row in slower if not row.holds}
    buckets = {(f"{streams}: auto / off", b) for streams in ("1 stream", "4 streams", "8 streams") for b in BUCKETS}
    assert missed == buckets | {("16 streams: auto / off", b) for b in BUCKETS} | {
        ("8 streams, mixed: auto / genai batching", "all"),
        ("8 streams, mixed: auto / gamma 4", "all"),
        ("32 streams, mixed: auto / gamma 4", "all"),
    }


def test_one_text_that_differs_is_seen():
    runs = _runs({})
    changed = next(run for run in runs if run["config"] == "gamma 2")
    changed["digests"] = ["another"]
    row = demands.serving(runs)[-1]
    assert (row.value, row.out_of, row.holds) == (21.0, 22, False)


def test_the_report_shows_each_load():
    measured = serving.Measured(runs=_runs({}), configs={name: {} for name in (*GAMMAS, PEER)})
    text = serving.rates(measured.runs, list(measured.configs))
    assert [line for line in text.splitlines() if line.startswith("-- ")] == [
        "-- 8 streams, mixed",
        "-- 32 streams, mixed",
        "-- 1 stream",
        "-- 4 streams",
        "-- 8 streams",
        "-- 16 streams",
    ]


def test_it_is_a_group_of_make_bench(said, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "_plan", lambda options: None)
    assert run.main(["--groups", "serving", "--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "32 streams, mixed: auto / gamma 8" in text
    assert serving.TITLE in text
    found = json.loads((tmp_path / "serving.json").read_text())
    assert found["smoke_run"] is True
    assert {each["load"] for each in found["runs"]} == {load.name for load in LOADS}
    assert found["provenance"]["command"].startswith("python -m bench.run --groups serving")
    assert "serving" in run.ALL_GROUPS
