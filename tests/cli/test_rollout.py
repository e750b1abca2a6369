"""`rollout`: against the file of a server, against a server's admin API, and each way it refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from draftproof.errors import InputError
from draftproof.rollout import BucketPolicy, Decision, Rollout, RolloutPolicy, RolloutStore, Sample

Command = Callable[..., Any]
KEY = "a-secret-key"


def played() -> tuple[Rollout, list[Decision]]:
    """A bucket in stage full, one that was taken back, one that is stopped, one that is disabled."""
    rollout = Rollout(RolloutPolicy(BucketPolicy(), {"legal": BucketPolicy(enabled=False)}))
    decisions, now = [], 1.7e9
    for bucket in ("chat", "code"):
        decisions += rollout.start(bucket, now)
        for _ in range(4):
            decisions += rollout.promote(bucket, now)
    for number in range(300):
        now += 1
        for bucket, accepted in (("chat", 15), ("code", 2), ("legal", 0)):
            mode = rollout.assign(bucket, f"k{number}").mode
            tested = 0 if mode == "off" else 20
            one = Sample(bucket, mode, now, 0.02, 0.1, 30, tested, tested, min(tested, accepted), False)
            decisions += rollout.record(one)
    decisions += rollout.stop("sums", now, "by hand")
    return rollout, decisions


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "rollout.db"
    rollout, decisions = played()
    with RolloutStore(path) as opened:
        opened.save(rollout.state, decisions)
    return path


class Admin(BaseHTTPRequestHandler):
    """The admin API as `draftproof serve` has it, over one rollout."""

    rollout: Rollout
    log: list[dict[str, Any]]
    asked: list[tuple[str, str, dict[str, Any], str | None]]
    answer: tuple[int, dict[str, str], bytes] | None = None

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._handle("GET", dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self) -> None:
        self._handle("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _handle(self, method: str, given: dict[str, Any]) -> None:
        kind, path = type(self), urlsplit(self.path).path
        kind.asked.append((method, path, given, self.headers.get("Authorization")))
        if kind.answer is not None:
            self._send(*kind.answer)
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self._json(401, {"error": {"message": "a valid API key is needed"}})
        else:
            self._json(200, self._value(path.removeprefix("/admin/rollout"), given))

    def _value(self, what: str, given: dict[str, Any]) -> dict[str, Any]:
        if what == "":
            return {"status": self.rollout.status(), "policy": self.rollout.policy.to_json()}
        if what == "/log":
            lines = [line for line in self.log if given.get("bucket") in (None, line["bucket"])]
            return {"decisions": lines[: int(given["limit"])]}
        try:
            done = getattr(self.rollout, what[1:])(given["bucket"], 1.7e9 + 1000, given["reason"])
        except InputError as error:
            return {"error": str(error)}
        return {"decisions": [decision.to_json() for decision in done]}

    def _json(self, code: int, value: object) -> None:
        self._send(code, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Admin]]]:
    """(address, handler class)."""
    rollout, decisions = played()
    log = [decision.to_json() for decision in reversed(decisions)]
    handler = type("Handler", (Admin,), {"rollout": rollout, "log": log, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("DRAFTPROOF_API_KEY", KEY)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")  # a server on this machine needs no proxy
        yield f"http://127.0.0.1:{http.server_port}", handler
        http.shutdown()
        thread.join()


def test_the_status_of_a_store(command: Command, store: Path) -> None:
    ran = command("rollout", "status", "--store", str(store))
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split()[:3] == ["bucket", "stage", "share"]
    chat, code, legal, sums = lines[1:]
    assert chat.startswith("chat")
    assert "full" in chat
    assert "95 %" in chat
    assert "0.75 (0.7" in chat
    assert "probe at 2023-11-" in code
    assert "setbacks: 1" in code
    assert legal.endswith("disabled by the policy")
    assert sums.endswith("stopped: start")


def test_json_is_the_whole_status_or_one_bucket(command: Command, store: Path) -> None:
    rollout, _ = played()
    value = command("rollout", "status", "--store", str(store), "--json").json
    assert value["status"] == json.loads(json.dumps(rollout.status()))
    assert value["policy"]["buckets"]["legal"]["enabled"] is False
    value = command("rollout", "status", "--store", str(store), "--bucket", "code", "--json").json
    assert list(value["status"]["buckets"]) == ["code"]


def test_the_log_of_a_store(command: Command, store: Path) -> None:
    ran = command("rollout", "log", "--store", str(store))
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split("  ")[1:] == ["sums", "stop", "off", "by hand"]
    assert lines[1].split("  ")[1:4] == ["code", "off", "full -> off"]
    assert "below the floor 0.4" in lines[1]
    value = command("rollout", "log", "--store", str(store), "--limit", "2", "--bucket", "code", "--json").json
    assert [line["action"] for line in value["decisions"]] == ["off", "manual"]
    assert value["decisions"][0]["evidence"]["acceptance"]["high"] < 0.4
    assert command("rollout", "log", "--store", str(store), "--bucket", "none").out == "nothing was decided\n"


def test_a_store_without_a_rollout(command: Command, tmp_path: Path) -> None:
    RolloutStore(tmp_path / "new.db").close()
    ran = command("rollout", "status", "--store", str(tmp_path / "new.db"))
    assert (ran.code, ran.out) == (2, "")
    assert "holds no rollout yet" in ran.err


def test_a_server_says_what_its_file_says(command: Command, store: Path, server: tuple[str, type[Admin]]) -> None:
    url, _ = server
    for arguments in (["status"], ["log"], ["log", "--bucket", "code"], ["status", "--bucket", "chat"]):
        mine = command("rollout", *arguments, "--server", url)
        assert mine.code == 0, mine.err
        assert mine.out == command("rollout", *arguments, "--store", str(store)).out


def test_stages_are_moved_by_hand(command: Command, server: tuple[str, type[Admin]]) -> None:
    url, handler = server
    ran = command("rollout", "stop", "--server", f"{url}/", "--reason", "odd answers")
    assert ran.code == 0, ran.err
    assert ran.out.split("  ")[1:] == ["*", "stop", "full -> off", "odd answers\n"]
    assert handler.asked[-1][:3] == ("POST", "/admin/rollout/stop", {"bucket": None, "reason": "odd answers"})
    assert command("rollout", "status", "--server", url).out.startswith("all buckets are stopped")
    assert command("rollout", "start", "--server", url).code == 0
    value = command("rollout", "start", "--server", url, "--bucket", "code", "--json").json
    assert [(line["bucket"], line["to_stage"]) for line in value["decisions"]] == [("code", "shadow")]
    assert command("rollout", "promote", "--server", url, "--bucket", "code").out.count("shadow -> canary") == 1
    assert handler.asked[-1][2] == {"bucket": "code", "reason": ""}


def test_the_key(command: Command, server: tuple[str, type[Admin]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = server
    command("rollout", "status", "--server", url)
    assert handler.asked[-1][3] == f"Bearer {KEY}"
    monkeypatch.delenv("DRAFTPROOF_API_KEY")
    ran = command("rollout", "status", "--server", url)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"draftproof: error: {url} says 401: a valid API key is needed\n"
    assert command("rollout", "status", "--server", url, "--api-key", KEY).code == 0
    assert "no key has" in command("rollout", "status", "--server", url, "--api-key", "a\nb").err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, {}, b"not here"), "says 404: Not Found"),
        ((409, {}, b'{"error": {"message": "two\\nlines"}}'), "says 409: two lines"),
        ((500, {}, b'{"error": 7}'), "says 500: Internal Server Error"),
        ((302, {"Location": "http://127.0.0.1:9/other"}, b""), "says 302: Found"),
        ((200, {}, b"<html>"), "gives no JSON"),
        ((200, {}, b"[" * 100_000), "gives no JSON"),
        ((200, {}, b"[]"), "is it the right address?"),
        ((200, {}, b'{"other": 1}'), "is it the right address?"),
    ],
)
def test_answers_that_are_none(
    command: Command, server: tuple[str, type[Admin]], answer: tuple[int, dict[str, str], bytes], said: str
) -> None:
    url, handler = server
    handler.answer = answer
    ran = command("rollout", "status", "--server", url)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert said in ran.err
    assert len(handler.asked) == 1, "a redirection is not followed"


def refusals(store: Path) -> dict[str, list[str]]:
    """What must be said -> the arguments."""
    here = ["--store", str(store)]
    return {
        "one of the arguments --server --store is required": ["status"],
        "not allowed with argument": ["status", *here, "--server", "http://localhost:1"],
        "invalid choice: 'halt'": ["halt", *here],
        "--store only reads: stop needs the running server": ["stop", *here],
        "promote needs the bucket: --bucket B": ["promote", "--server", "http://localhost:1"],
        "--reason has no meaning with status": ["status", *here, "--reason", "x"],
        "--limit has no meaning with status": ["status", *here, "--limit", "3"],
        "--limit must be at least 1, got 0": ["log", *here, "--limit", "0"],
        "--api-key has no meaning with --store": ["log", *here, "--api-key", "x"],
        "there is no bucket 'none'; there are: chat, code, legal, sums": ["status", *here, "--bucket", "none"],
        "there is no rollout store at": ["status", "--store", f"{store}.none"],
        "can't reach http://127.0.0.1:9: Connection refused": ["status", "--server", "http://127.0.0.1:9"],
        "'localhost:8000' is no address of a server": ["status", "--server", "localhost:8000"],
        "'ftp://localhost' is no address of a server": ["status", "--server", "ftp://localhost"],
        "'http://h:x' is no address of a server": ["status", "--server", "http://h:x"],
    }


def test_refusals_are_one_line_and_exit_code_2(command: Command, store: Path) -> None:
    for said, arguments in refusals(store).items():
        ran = command("rollout", *arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert len(ran.err.splitlines()) == 1
        assert said in ran.err


def test_help_has_examples(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("rollout", "--help")
    assert "examples:\n  draftproof rollout status --server" in capsys.readouterr().out
