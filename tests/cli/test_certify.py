"""`certify`: what is asked reaches the plan, what is found reaches files, screen and exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftproof.certify import Plan, again
from draftproof.certify.certificate import assemble
from draftproof.certify.own import asked
from draftproof.certify.results import Power, Result
from draftproof.cli import certify
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError
from draftproof.types import SamplingParams

Command = Callable[..., Any]
COUNTS = {"tokens": 9000, "drafted": 700, "tested": 500, "accepted": 300, "correction": 200, "bonus": 50, "plain": 9}


@dataclass
class Own:
    """Stands in for an engine: remembers what it was asked, says what it was told."""

    p_value: float = 0.5
    count: int = 30_000
    options: EngineOptions | None = None
    plans: list[Plan] = field(default_factory=list)
    states: list[Path | None] = field(default_factory=list)
    texts: Sequence[str] = ()
    failure: str | None = None
    kind: str = "engine"
    url: str = ""

    def plan(self, texts: Sequence[str], params: SamplingParams, **settings: Any) -> Plan:
        self.texts = texts
        return Plan(tuple((len(text),) for text in texts), params, **settings)

    def certify(self, plan: Plan, *, state: Path | None, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        self.plans.append(plan)
        self.states.append(state)
        progress("fit", 1, 2)
        assert self.options is not None
        facts = {"name": "draftproof", "kind": self.kind, "options": asked(self.options), "url": self.url}
        results = [
            Result(f"fit.{name}", "h", self.count, self.p_value, Power(self.count, 9), detail={"cells": [5] * 10})
            for name in ("law", "tested")
        ]
        made = assemble(plan, results, COUNTS, self.failure, {"subject": facts, "reference": {"name": "target"}})
        return {**made, "versions": {}}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Own:
    """The engine that the command prepares."""
    engine = Own()

    def prepare(options: EngineOptions, progress: Callable[[str], None]) -> Own:
        engine.options = options
        return engine

    monkeypatch.setattr(certify, "prepare", prepare)
    return engine


@pytest.mark.parametrize(
    ("p_value", "count", "verdict", "code"),
    [(0.5, 30_000, "lossless", 0), (1e-9, 30_000, "fault", 1), (0.5, 300, "not_enough_evidence", 3)],
)
def test_verdict_and_exit_code(command: Command, own: Own, p_value: float, count: int, verdict: str, code: int) -> None:
    own.p_value, own.count = p_value, count
    ran = command("certify", "--json")
    assert ran.code == code
    assert ran.json["verdict"] == verdict
    assert ran.json["provenance"]["command"][0] == "draftproof"


def test_a_table_and_words(command: Command, own: Own) -> None:
    out = command("certify").out
    assert out.splitlines()[0].split() == ["test", "result", "looked", "at", "p", "finds", "99", "%"]
    assert "verdict: lossless" in out
    assert "500 of 700 drafts judged" in out


def test_what_is_given_reaches_the_plan(command: Command, own: Own, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\nthree\n")
    given = ("--drafter", "ngram", "--gamma", "3", "--rule", "reject", "--top-p", "0.9", "--seed", "7")
    more = ("--tokens", "500", "--alpha", "0.01", "--max-tv", "0.2", "--tests", "fit, joint", "--max-new-tokens", "9")
    command("certify", *given, *more, "--prompts", str(prompts))
    (plan,) = own.plans
    assert own.options is not None
    assert (own.options.drafter, own.options.gamma) == ("ngram", 3)
    assert own.texts == ("one", "three")
    assert (plan.tokens, plan.alpha, plan.max_tv, plan.tests) == (500, 0.01, 0.2, ("fit", "joint"))
    assert (plan.text_tokens, plan.seed) == (9, 7)
    assert (plan.params.temperature, plan.params.top_p, plan.params.rule) == (0.8, 0.9, "reject")


def test_files(command: Command, own: Own, tmp_path: Path) -> None:
    out, page = tmp_path / "cert.json", tmp_path / "cert.html"
    command("certify", "--out", str(out), "--html", str(page), "--temperature", "1")
    assert json.loads(out.read_text())["verdict"] == "lossless"
    assert "<!doctype html>" in page.read_text()
    assert own.states == [tmp_path / "cert.json.part"]


def test_an_interrupted_run_says_where_it_goes_on(
    command: Command, own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plan: Plan, *, state: Path, progress: Any) -> None:
        state.write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(own, "certify", interrupted)
    ran = command("certify", "--out", str(tmp_path / "c.json"))
    assert ran.code == 130
    assert f"is kept in {tmp_path / 'c.json.part'}: the same command carries on" in ran.err


def test_a_certificate_is_run_again(command: Command, own: Own, tmp_path: Path) -> None:
    out = tmp_path / "cert.json"
    command("certify", "--drafter", "ngram", "--gamma", "2", "--tokens", "700", "--out", str(out))
    ran = command("certify", "--check", str(out))
    assert ran.code == 0
    assert "the certificate still holds" in ran.out
    assert own.plans[0] == own.plans[1]
    assert own.options is not None
    assert (own.options.drafter, own.options.gamma) == ("ngram", 2)
    own.p_value = 1e-9
    ran = command("certify", "--check", str(out))
    assert ran.code == 1
    assert "does not hold: it said lossless, now it is fault" in ran.out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--tests", "magic"), "tests must be some of"),
        (("--tokens", "0"), "tokens must be an integer >= 1"),
        (("--seed", "70000"), "seed must be an integer in [0, 65536)"),
        (("--prompts", "no-such-file"), "can't read no-such-file"),
        (("--check", "no-such-file"), "can't read no-such-file"),
        (("--out", "no/such/folder/c.json"), "there is no folder"),
        (("--out", "/dev/null"), "it is no regular file"),
        (("--out", "c.json", "--html", "./c.json"), "--html and --out are the same file"),
        (("--check", "c.json", "--html", "c.json"), "--html and --check are the same file"),
        (("--drafter", "magic"), "no drafter is called 'magic'"),
        (("--temperature", "-1"), "temperature must be"),
        (("--check", "c.json", "--tokens", "9"), "own settings: drop --tokens"),
        (("--check", "c.json", "--draft-model", "x"), "own settings: drop --draft-model"),
        (("--check", "c.json", "--top-p", "0.5"), "own settings: drop --top-p"),
        (("--check", "c.json", "--tree", "auto"), "own settings: drop --tree"),
        (("--check", "c.json", "--draft-weights", "int8"), "own settings: drop --draft-weights"),
        (("--subject", "transformers", "--tree", "auto"), "drafts as it was set up: drop --tree"),
        (("--subject", "transformers", "--draft-weights", "int8"), "drafts as it was set up: drop --draft-weights"),
    ],
)
def test_input_that_cannot_be_used(command: Command, own: Own, argv: tuple[str, ...], words: str) -> None:
    ran = command("certify", *argv)
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("{}", "holds no certificate"),
        ("[" * 100_000, "holds no certificate"),
        ("\0", "holds no certificate"),
        ({"schema": 99}, "has certificate schema 99"),
        ({"verdict": ["x"]}, "no whole certificate: its verdict"),
        ({"plan": None}, "no whole certificate: it has no plan"),
        ({"plan": {}}, "this is no plan of a certificate"),
        ({"subject": {"kind": "engine"}}, "does not say how its engine was made"),
        ({"subject": {"kind": "engine", "options": {"magic": 1}}}, "engine options can't be used"),
        ({"subject": {"kind": "peer"}}, "does not say how its subject is opened; it was made by: draftproof"),
        ({"subject": {"kind": "peer"}, "again": {"kind": "magic"}}, "can't be run again"),
    ],
)
def test_what_is_no_certificate_is_said(command: Command, own: Own, tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "cert.json"
    command("certify", "--out", str(path))
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    ran = command("certify", "--check", str(path))
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1


@pytest.fixture
def servers(own: Own, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What servers were opened; they answer as `own` does."""
    opened: list[Any] = []

    @contextmanager
    def opening(options: Any, baseline: str | None, target: EngineOptions) -> Iterator[Own]:
        opened.append((options.url, baseline, options.api_key, target))
        own.options = target
        own.kind, own.url = "endpoint", options.url
        yield own

    monkeypatch.setattr(again, "open_endpoint", opening)
    return opened


def test_a_server_is_checked_again_at_the_address_that_is_given(
    command: Command, own: Own, servers: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "cert.json")
    monkeypatch.setattr("sys.argv", ["draftproof", "certify", "--api-key", "s3cret", "--api-key=s3cret"])
    asked = ("--baseline", "http://off", "--api-key", "s3cret", "--temperature", "0.5", "--weights", "int8")
    assert command("certify", "--endpoint", "http://on", *asked, "--out", path).code == 0
    assert "s3cret" not in Path(path).read_text()
    monkeypatch.setattr("sys.argv", ["draftproof"])
    monkeypatch.setenv("DRAFTPROOF_API_KEY", "another")
    ran = command("certify", "--check", path)
    assert ran.code == 2
    assert "give its address again, --endpoint" in ran.err
    assert len(servers) == 1  # nobody was asked at an address out of a file
    ran = command("certify", "--check", path, "--endpoint", "http://moved", "--baseline", "http://off")
    assert ran.code == 0
    assert "the certificate still holds" in ran.out
    assert "changed: subject.url was http://on, is http://moved" in ran.out
    assert servers[1][:3] == ("http://moved", "http://off", "another")
    assert servers[1][3] == servers[0][3]
    assert own.plans[0] == own.plans[1]
    ran = command("certify", "--check", path, "--python", "/usr/bin/python")
    assert "drop --python" in ran.err


def test_a_check_that_breaks_off_says_nothing_about_the_certificate(command: Command, own: Own, tmp_path: Path) -> None:
    path, out = str(tmp_path / "cert.json"), str(tmp_path / "again.json")
    command("certify", "--out", path)
    own.failure = "fit: \x1b[2Jgone"
    ran = command("certify", "--check", path, "--out", out)
    assert ran.code == 3
    assert "could not be run again to its end, so whether it holds is not known: broke off: fit: " in ran.out
    assert "\x1b" not in ran.out
    assert json.loads(Path(out).read_text())["check"]["holds"] is None


def test_what_was_tested_stays_until_the_certificate_is_on_the_disk(
    command: Command, own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, state = tmp_path / "cert.json", tmp_path / "cert.json.part"
    state.write_text("{}")

    def full(path: Path, data: bytes) -> None:
        raise InputError(f"can't write {path}: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(certify, "write_whole", full)
        assert command("certify", "--out", str(out)).code == 2
    assert state.exists()
    assert command("certify", "--out", str(out)).code == 0
    assert not state.exists()
    state.write_text("{}")
    own.failure = "fit: gone"
    assert command("certify", "--out", str(out)).code == 3
    assert state.exists()  # the subject may come back


def test_another_engine_does_not_take_options_of_ours(command: Command, own: Own) -> None:
    for option, value in (("--threads", "1"), ("--weights", "int8"), ("--kv-memory", "1GiB")):
        ran = command("certify", "--subject", "transformers", option, value)
        assert ran.code == 2
        assert f"{option} is of our own engine" in ran.err
    ran = command("certify", "--subject", "transformers", "--subject-options", '{"model": "x"}')
    assert "by --model" in ran.err


def test_an_error_can_not_steer_a_terminal(command: Command, own: Own) -> None:
    ran = command("certify", "--prompts", "\x1b[2Jno-such-file\u202e")
    assert ran.code == 2
    assert "\\x1b[2Jno-such-file" in ran.err
    assert "\x1b" not in ran.err
    assert "\u202e" not in ran.err
