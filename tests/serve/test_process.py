"""`draftproof serve` as a process of its own: signals, and a kill in the middle of a canary."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

BODY = {"prompt": "abcabcabc", "max_tokens": 100, "temperature": 0, "ignore_eos": True, "bucket": "live"}


class Process:
    """The command in a process."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "draftproof.cli.main", "serve", "--port", "0", *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.seen: list[str] = []
        self.http = httpx.Client()

    def begin(self) -> None:
        """Waits until it serves."""
        self.http = httpx.Client(base_url=self.wait_for("serving at ").split()[-1], timeout=60)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.put(line)
        self.lines.put("")

    def wait_for(self, what: str) -> str:
        """The next line on stderr that has this in it."""
        while True:
            line = self.lines.get(timeout=120)
            self.seen.append(line)
            assert line, "".join(self.seen)
            if what in line:
                return line

    def end(self, sig: int) -> int:
        self._process.send_signal(sig)
        code = self._process.wait(60)
        self.http.close()
        return code


@pytest.fixture
def process(folder: Path, cache_dir: Path) -> Iterator[Callable[..., Process]]:
    made: list[Any] = []

    def start(*arguments: str) -> Process:
        engine = ["--model", str(folder), "--cache-dir", str(cache_dir), "--weights", "int8", "--threads", "1"]
        made.append(Process(*engine, "--kv-memory", "8MiB", "--drafter", "suffix", *arguments))
        made[-1].begin()
        return made[-1]

    yield start
    for each in made:
        if each._process.poll() is None:
            each.end(signal.SIGKILL)
        each.http.close()
        each._process.stderr.close()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_runs(sig, process, built):
    server = process("--name", "tiny")
    assert server.http.get("/v1/models").json()["data"][0]["id"] == "tiny"
    with server.http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        server._process.send_signal(sig)
        rest = list(lines)
    assert rest[-2] == "data: [DONE]"
    assert '"finish_reason":"length"' in "".join(rest)
    assert server._process.wait(60) == 0
    server.wait_for('"event": "shutting down"')


def test_the_second_signal_does_not_wait(process, built):
    server = process("--grace", "1000")
    long = {**BODY, "prompt": ["a"] * 40, "max_tokens": 250}

    def send() -> None:
        with suppress(httpx.HTTPError):
            server.http.post("/v1/completions", json=long)

    sender = threading.Thread(target=send)
    sender.start()
    with httpx.Client(base_url=server.http.base_url) as http:
        while "draftproof_texts_running 0.0" in http.get("/metrics").text:
            pass
    server._process.send_signal(signal.SIGTERM)
    server.wait_for('"event": "shutting down"')
    server._process.send_signal(signal.SIGTERM)
    assert server._process.wait(60) == 0
    sender.join(60)


def test_a_kill_in_a_canary_loses_nothing(process, built, tmp_path):
    policy, state = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text("canary_share: 0.2\n")
    options = ("--policy", str(policy), "--state", str(state))
    server = process(*options)
    assert server.http.post("/v1/completions", json=BODY).status_code == 200
    answer = server.http.post("/admin/rollout/promote", json={"bucket": "live"})
    assert answer.json()["decisions"][0]["to_stage"] == "canary"
    log = server.http.get("/admin/rollout/log").json()
    assert [line["action"] for line in log["decisions"]] == ["manual", "start"]
    with server.http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as response:
        next(response.iter_lines())
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    again = process(*options)
    assert again.http.get("/admin/rollout").json()["status"]["buckets"]["live"]["stage"] == "canary"
    assert again.http.get("/admin/rollout/log").json() == log
    told = again.http.post("/v1/completions", json=BODY).json()["usage"]["speculative_decoding"]
    assert told["stage"] == "canary"
