"""The pipe between runner and worker."""

import sys
import time

import pytest
from bench.serve import Result, digest, timed
from bench.worker import Worker, WorkerError

CHILD = """
import os, subprocess, sys, time
from bench.serve import serve

def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return {"pid": os.getpid()}

def leave():
    print("gone fishing", file=sys.stderr, flush=True)
    os._exit(3)

def spawn():
    return {"pid": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid}

sys.exit(serve(lambda: ({"who": "child", "path": os.environ.get("OMP_NUM_THREADS")},
                        {"spin": spin, "leave": leave, "spawn": spawn})))
"""


@pytest.fixture
def command(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return [sys.executable, str(script)]


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_hello_answers_and_errors(command, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with Worker("child", command, tmp_path / "log") as worker:
        assert worker.hello["who"] == "child"
        assert worker.hello["path"] is None, "a stray thread cap would slow one side of a comparison"
        assert "pid" in worker.ask("spin", seconds=0)
        with pytest.raises(WorkerError, match="TypeError"):
            worker.ask("spin", hours=1)
        assert "pid" in worker.ask("spin", seconds=0), "an error does not end a worker"


def test_a_worker_that_ends_is_an_error_with_its_last_line(command, tmp_path):
    with Worker("child", command, tmp_path / "log") as worker, pytest.raises(WorkerError, match="gone fishing"):
        worker.ask("leave")


def test_processor_time_is_counted(command, tmp_path):
    with Worker("child", command, tmp_path / "log") as worker:
        before = worker.cpu_seconds()
        worker.ask("spin", seconds=0.3)
        assert worker.cpu_seconds() - before >= 0.25
        assert worker.memory_mib() >= 5


def test_leaving_ends_the_worker_and_what_it_started(command, tmp_path):
    with Worker("child", command, tmp_path / "log") as worker:
        pids = [worker.ask("spin", seconds=0)["pid"], worker.ask("spawn")["pid"]]
        assert all(_alive(pid) for pid in pids)
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def test_a_command_that_says_nothing_is_an_error(tmp_path):
    with pytest.raises(WorkerError, match="it said nothing"):
        Worker("mute", [sys.executable, "-c", ""], tmp_path / "log")


def test_digests_tell_texts_apart_and_the_clock_stops_before_hashing():
    assert digest([1, 23]) != digest([12, 3])
    assert digest("abc") == digest("abc") != digest("abd")

    class Slow(list):
        def __iter__(self):
            time.sleep(0.2)
            return super().__iter__()

    answer = timed(lambda: Result([2], [Slow([1, 2])], {"more": 1}))()
    assert answer["seconds"] < 0.1
    assert answer["more"] == 1
    assert answer["digests"] == [digest([1, 2])]
