"""Recipes: there and back, and what is never taken from a certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftproof.certify import again
from draftproof.certify.again import Given, PeerRecipe, ServerRecipe, recipe_of
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError

ADDRESSES = Given(url="http://h:1", baseline="http://h:2", key="s3cret")
SERVER = ServerRecipe(replace(ADDRESSES, served_model="m", deadline_s=9.0), EngineOptions("demo", weights="int8"))
PEER = PeerRecipe("llama-cpp", "demo", {"lookup": 4}, Given(python="/their/python"))


def test_there_and_back() -> None:
    assert recipe_of(SERVER.as_json(), ADDRESSES, "c.json") == SERVER
    assert recipe_of(PEER.as_json(), Given(python="/their/python"), "c.json") == PEER
    assert "s3cret" not in str(SERVER.as_json())
    assert "s3cret" not in repr(SERVER)


def test_a_server_may_have_moved() -> None:
    moved = Given(url="http://new:1", baseline="http://new:2", key="k", served_model="other", deadline_s=5.0)
    found = recipe_of(SERVER.as_json(), moved, "c.json")
    assert isinstance(found, ServerRecipe)
    assert found.given == moved
    assert found.target == SERVER.target


@pytest.mark.parametrize(
    ("recipe", "given", "words"),
    [
        (SERVER, Given(), "of a server at 'http://h:1': give its address again, --endpoint"),
        (SERVER, Given(url="http://h:1"), "of a server at 'http://h:2': give its address again, --baseline"),
        (SERVER, replace(ADDRESSES, python="p"), "drop --python"),
        (ServerRecipe(Given(url="http://h:1"), EngineOptions()), ADDRESSES, "drop --baseline"),
        (PEER, Given(), "interpreter '/their/python': give one that has the engine again, --python"),
        (PEER, replace(ADDRESSES, python="p"), "drop --endpoint"),
    ],
)
def test_what_would_be_unwise_to_take_from_a_file_is_asked_for(recipe: Any, given: Given, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        recipe_of(recipe.as_json(), given, "c.json")
    assert str(caught.value).startswith("c.json ")
    assert "wrongly" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"kind": "callable"},
        {"kind": "endpoint"},
        {**SERVER.as_json(), "target": 3},
        {**SERVER.as_json(), "target": {"magic": 1}},
        {**SERVER.as_json(), "deadline_s": "soon"},
        {**PEER.as_json(), "options": 7},
        {"kind": "peer", "engine": "llama-cpp"},
    ],
)
def test_what_is_no_recipe(value: object) -> None:
    with pytest.raises(InputError):
        recipe_of(value, replace(ADDRESSES, python=None), "c.json")


def test_models_are_given_as_the_engine_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(again, "open_engine", lambda *asked: opened.append(asked))
    monkeypatch.setattr(again.Loader, "folder", lambda *_: "the-folder")

    class Source:
        kind, path = "gguf", "the-file.gguf"

    monkeypatch.setattr(again, "resolve", lambda _: Source)
    for engine, model in (
        ("llama-cpp", "the-file.gguf"),
        ("openvino-genai", "the-file.gguf"),
        ("transformers", "the-folder"),
    ):
        PeerRecipe(engine, "demo", {"lookup": 4}, Given()).open(lambda _: None)
        assert opened[-1] == (engine, {"model": model, "lookup": 4}, "the-folder", None)
    Source.kind = "folder"
    with pytest.raises(InputError, match="llama-cpp reads GGUF files"):
        PEER.open(lambda _: None)
    with pytest.raises(InputError, match="no adapter 'magic'"):
        replace(PEER, engine="magic").open(lambda _: None)
