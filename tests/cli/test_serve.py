"""`draftproof serve`: what the options become, and what is refused before a model is loaded."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.measure.specs import DrafterSpec
from draftproof.serve import run as serving
from draftproof.serve.settings import ServeSettings

Command = Callable[..., Any]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """What a server would have been started with."""
    found: list[ServeSettings] = []

    def run_server(settings: ServeSettings, progress: Callable[[str], None], ready: Callable[[str], None]) -> None:
        found.append(settings)
        ready("http://127.0.0.1:1")

    monkeypatch.setattr(serving, "run_server", run_server)
    return found


def test_options_reach_the_server(command: Command, settings: list[ServeSettings], monkeypatch) -> None:
    monkeypatch.setenv("DRAFTPROOF_API_KEY", "from-outside")
    ran = command(
        *("serve", "--model", "m", "--drafter", "suffix", "--drafter", "small=model:./d", "--drafter", "fixed_tree:3"),
        *("--gamma", "3", "--port", "0", "--api-key", "one-key-a", "--admin-key", "admin-key", "--max-waiting", "5"),
        *("--max-body", "1MiB", "--request-timeout", "2.5", "--grace", "0", "--max-sequences", "4", "--threads", "1"),
        *("--name", "served", "--policy", "p.yaml", "--state", "s.db", "--quiet"),
    )
    assert ran.code == 0
    assert "serving at http://127.0.0.1:1\n" in ran.err
    assert "its page: http://127.0.0.1:1/ui\n" in ran.err
    (found,) = settings
    assert [spec.label for spec in found.drafters] == ["suffix", "small", "fixed_tree:3"]
    assert found.drafters[1] == DrafterSpec("small", "model", model="./d")
    assert found.drafters[2].exit_layer == 3
    assert found.api_keys == ("one-key-a", "from-outside")
    assert found.admin_keys == ("admin-key",)
    assert (found.max_waiting, found.max_body, found.request_timeout, found.grace) == (5, 1 << 20, 2.5, 0.0)
    assert (found.host, found.port, found.name) == ("127.0.0.1", 0, "served")
    assert (found.policy, found.state, found.log_requests) == (Path("p.yaml"), Path("s.db"), False)
    options = found.engine_options()
    assert [each.drafter for each in options] == ["suffix", "model", "fixed_tree"]
    assert {(each.model, each.gamma, each.threads, each.max_sequences) for each in options} == {("m", 3, 1, 4)}


def test_options_of_some_drafters_go_to_those(command: Command, settings: list[ServeSettings]) -> None:
    drafters = ("--drafter", "suffix", "--drafter", "cascade", "--drafter", "m=model:./d")
    assert command("serve", *drafters, "--tree", "3,2", "--draft-weights", "int8").code == 0
    options = settings[0].engine_options()
    assert [(each.tree, each.draft_weights) for each in options] == [(None, "auto"), ("3,2", "auto"), (None, "int8")]


def test_the_defaults_are_a_plain_private_server(command: Command, settings: list[ServeSettings], monkeypatch) -> None:
    monkeypatch.delenv("DRAFTPROOF_API_KEY", raising=False)
    assert command("serve").code == 0
    (found,) = settings
    assert (found.drafters, found.api_keys, found.host, found.port) == ((), (), "127.0.0.1", 8000)
    assert not found.is_public
    assert found.log_requests
    assert [each.drafter for each in found.engine_options()] == ["none"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--drafter", "magic"), "magic"),
        (("--drafter", "suffix", "--drafter", "suffix"), "two drafters"),
        (("--drafter", "model"), "model:PATH"),
        (("--drafter", "fixed_tree:"), "fixed_tree"),
        (("--port", "70000"), "--port"),
        (("--max-waiting", "-1"), "--max-waiting"),
        (("--request-timeout", "0"), "--request-timeout"),
        (("--grace", "inf"), "--grace"),
        (("--api-key", "short"), "--api-key"),
        (("--state", "s.db"), "--policy"),
        (("--policy", "p.yaml"), "--drafter"),
        (("--max-sequences", "0"), "max_sequences"),
        (("--draft-model", "x"), "--draft-model"),
        (("--tree", "auto"), "takes no tree"),
        (("--drafter", "suffix", "--tree", "auto"), "no drafter here takes --tree"),
        (("--drafter", "cascade", "--tree", "wide"), "a tree is"),
        (("--drafter", "cascade", "--draft-weights", "int8"), "no drafter here takes --draft-weights"),
        (("--max-body", "12"), "--max-body"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments, says, command: Command, settings: list[ServeSettings]) -> None:
    ran = command("serve", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert not settings


def test_a_port_in_use_is_said_before_a_model_is_loaded(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = command("serve", "--port", str(taken.getsockname()[1]), "--model", "/nowhere")
    assert ran.code == 2
    assert "can't listen" in ran.err


def test_a_model_that_is_not_there(command: Command) -> None:
    ran = command("serve", "--port", "0", "--model", "/nowhere/at/all")
    assert (ran.code, "/nowhere/at/all" in ran.err) == (2, True)


def test_missing_extras_are_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("draftproof.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = command("serve")
    assert ran.code == 2
    assert "pip install 'draftproof[serve]'" in ran.err


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True), ("my.host", True)],
)
def test_who_is_public(host: str, public: bool) -> None:
    assert ServeSettings(host=host).is_public is public
