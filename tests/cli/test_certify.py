"""`certify`: what is asked reaches the plan, what is found reaches files, screen and exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftproof.certify import Plan
from draftproof.certify.certificate import assemble
from draftproof.certify.own import asked
from draftproof.certify.results import Power, Result
from draftproof.cli import certify
from draftproof.engine.options import EngineOptions
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

    def plan(self, texts: Sequence[str], params: SamplingParams, **settings: Any) -> Plan:
        self.texts = texts
        return Plan(tuple((len(text),) for text in texts), params, **settings)

    def certify(self, plan: Plan, *, state: Path | None, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        self.plans.append(plan)
        self.states.append(state)
        progress("fit", 1, 2)
        assert self.options is not None
        facts = {"name": "draftproof", "kind": "engine", "options": asked(self.options)}
        results = [
            Result(f"fit.{name}", "h", self.count, self.p_value, Power(self.count, 9), detail={"cells": [5] * 10})
            for name in ("law", "tested")
        ]
        made = assemble(plan, results, COUNTS, None, {"subject": facts, "reference": {"name": "target"}})
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
        (("--drafter", "magic"), "no drafter is called 'magic'"),
        (("--temperature", "-1"), "temperature must be"),
        (("--check", "c.json", "--tokens", "9"), "own settings: drop --tokens"),
        (("--check", "c.json", "--draft-model", "x"), "own settings: drop --draft-model"),
        (("--check", "c.json", "--top-p", "0.5"), "own settings: drop --top-p"),
    ],
)
def test_input_that_cannot_be_used(command: Command, own: Own, argv: tuple[str, ...], words: str) -> None:
    ran = command("certify", *argv)
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_a_certificate_of_something_else_is_refused(command: Command, own: Own, tmp_path: Path) -> None:
    path = tmp_path / "cert.json"
    path.write_text("{}")
    assert "holds no certificate" in command("certify", "--check", str(path)).err
    command("certify", "--out", str(path))
    other = json.loads(path.read_text())
    other["subject"]["kind"] = "endpoint"
    path.write_text(json.dumps(other))
    assert "not a certificate of draftproof's own engine" in command("certify", "--check", str(path)).err
