"""kill -9 at any moment of a canary: the same stage, the same log, nothing half written."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from draftproof.errors import InputError
from draftproof.rollout import Rollout, RolloutPolicy, RolloutStore

SERVER = """
import json, sys
from draftproof.rollout import *

path = sys.argv[1]
policy = RolloutPolicy(BucketPolicy(
    min_requests=20, min_seconds=5.0, block_seconds=5.0, block_requests=2, canary_share=0.2, shadow_share=0.5,
    backoff_seconds=20.0, max_backoff_seconds=40.0, false_alarm_rate=1e-3))
store = RolloutStore(path)
rollout = Rollout(policy, store.load())
now = rollout.state.time or 1000.0
number = round(now)
print("ready", flush=True)
while True:
    number += 1
    now += 1.0
    for bucket in ("a", "b", "c"):
        mode = rollout.assign(bucket, f"k{number}").mode
        bad = number // 400 % 2 and bucket == "b"
        tested = 0 if mode == "off" else 20
        accepted = round(tested * (0.1 if bad else 0.7 + 0.2 * (number * 0.618 % 1 - 0.5)))
        itl = 0.02 * (0.6 if mode == "on" else 1.0) * (1 + number % 5 / 10)
        decisions = rollout.record(Sample(bucket, mode, now, itl, 0.1, 30, tested, tested, accepted, False))
        if decisions:
            store.save(rollout.state, decisions)
    decisions = rollout.tick(now)
    store.save(rollout.state, decisions)  # a server saves every few seconds; here there is always a write to interrupt
    for decision in decisions:
        print("told", json.dumps([decision.bucket, decision.action, decision.time]), flush=True)
"""


def check(path):
    """The state and the log of what a kill left, which must fit each other; None where nothing was saved yet."""
    with RolloutStore(path) as store:
        state, log = store.load(), store.decisions()[::-1]
    assert [line["id"] for line in log] == list(range(1, len(log) + 1))
    if state is None:
        assert log == []
        return None, []
    stages = {}
    for line in log:
        assert line["from_stage"] == stages.get(line["bucket"], "off"), line
        stages[line["bucket"]] = line["to_stage"]
    assert {name: bucket.stage for name, bucket in state.buckets.items()} == stages
    times = [line["time"] for line in log]
    assert times == sorted(times)
    assert times[-1] <= state.time
    rollout = Rollout(RolloutPolicy.from_json(state.policy), state)
    assert rollout.tick(state.time + 0.5) is not None
    return state, log


def test_a_server_that_is_killed_again_and_again_goes_on(tmp_path):
    path, draw, before, told = tmp_path / "rollout.db", random.Random(1), [], []
    for _ in range(10):
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "ready\n"
        time.sleep(draw.random() * 0.5)
        with pytest.raises(InputError, match="another process"):
            RolloutStore(path)
        os.kill(server.pid, signal.SIGKILL)
        told += [json.loads(line[5:]) for line in server.stdout.read().splitlines() if line.startswith("told")]
        server.stdout.close()
        assert server.wait() == -signal.SIGKILL
        state, log = check(path)
        assert log[: len(before)] == before, "the log only grows"
        stored = [[line["bucket"], line["action"], line["time"]] for line in log]
        assert all(line in stored for line in told), "what was told was stored"
        before = log
    actions = {line["action"] for line in before}
    assert {"start", "promote", "off", "probe"} <= actions
    assert state.time > 1000


def test_a_kill_at_every_write_of_the_first_saves(tmp_path):
    """Not left to chance: the files as they are after each of SQLite's own steps, copied as a kill would leave them."""
    snapshots = []
    path = tmp_path / "rollout.db"

    def snapshot(*_):
        files = [file for file in tmp_path.iterdir() if file.name.startswith("rollout.db") and file.suffix != ".lock"]
        snapshots.append({file.name: file.read_bytes() for file in files})

    with RolloutStore(path) as store:
        store._connection.set_progress_handler(snapshot, 3)
        rollout = Rollout(RolloutPolicy())
        for now in range(4):
            decisions = rollout.stop(f"bucket {now}", float(now))
            store.save(rollout.state, decisions)
    assert len(snapshots) > 40
    for number, files in enumerate(snapshots):
        folder = tmp_path / f"after-{number}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        with RolloutStore(folder / "rollout.db") as store:
            state, log = store.load(), store.decisions()
        buckets = [] if state is None else list(state.buckets)
        assert buckets == [f"bucket {now}" for now in range(len(buckets))]
        assert len(log) == len(buckets), "state and log are of one moment"


def test_power_is_not_trusted_either(tmp_path):
    """Full syncing, so that what a save returned from is on the disk."""
    with RolloutStore(tmp_path / "rollout.db") as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection = sqlite3.connect(tmp_path / "rollout.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
