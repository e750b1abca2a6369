"""Every refusal names what is wrong in OpenAI's error object, and leaves the server as it was."""

from __future__ import annotations

import gzip
import json
import socket

import openai
import pytest

CHAT = {"messages": [{"role": "user", "content": "a"}]}
TEXT = {"prompt": "a", "max_tokens": 2}


@pytest.mark.parametrize(
    ("route", "body", "status", "param"),
    [
        ("chat/completions", {**CHAT, "tools": []}, 400, "tools"),
        ("chat/completions", {**CHAT, "response_format": {"type": "json_object"}}, 400, "response_format.type"),
        ("chat/completions", {"messages": []}, 400, "messages"),
        ("chat/completions", {"messages": [{"role": "wizard", "content": "a"}]}, 400, "messages.0.role"),
        ("chat/completions", {"messages": [{"role": "user", "content": None}]}, 400, "messages.0.content"),
        ("chat/completions", {"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages"),
        ("chat/completions", {"messages": [{"role": "user", "content": "a" * 300}]}, 400, "messages"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "a", "refusal": "no"}]},
            400,
            "messages.0.refusal",
        ),
        ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": []}]}, 400, None),
        ("chat/completions", {**CHAT, "top_logprobs": 2}, 400, "top_logprobs"),
        ("chat/completions", {**CHAT, "max_tokens": 2, "max_completion_tokens": 2}, 400, "max_tokens"),
        ("chat/completions", {**CHAT, "stream_options": {"include_usage": True}}, 400, "stream_options"),
        ("completions", {**TEXT, "best_of": 2}, 400, "best_of"),
        ("completions", {**TEXT, "suffix": "b"}, 400, "suffix"),
        ("completions", {**TEXT, "temperature": "0.5"}, 400, "temperature"),
        ("completions", {**TEXT, "temperature": -0.1}, 400, "temperature"),
        ("completions", {**TEXT, "n": 17}, 400, "n"),
        ("completions", {**TEXT, "n": True}, 400, "n"),
        ("completions", {**TEXT, "seed": -1}, 400, "seed"),
        ("completions", {**TEXT, "logit_bias": {"x": 1}}, 400, "logit_bias.x"),
        ("completions", {**TEXT, "logit_bias": {"1": 1, "01": 2}}, 400, "logit_bias.01"),
        ("completions", {**TEXT, "logit_bias": {"99999": 1}}, 400, "logit_bias"),
        ("completions", {**TEXT, "stop_token_ids": [99999]}, 400, "stop_token_ids"),
        ("completions", {**TEXT, "stop": [""]}, 400, "stop.0"),
        ("completions", {**TEXT, "stop": ""}, 400, "stop"),
        ("completions", {**TEXT, "stop": ["a"] * 17}, 400, "stop"),
        ("completions", {**TEXT, "echo": True, "logprobs": 1}, 400, "echo"),
        ("completions", {**TEXT, "prompt": ""}, 400, "prompt"),
        ("completions", {**TEXT, "prompt": []}, 400, "prompt"),
        ("completions", {**TEXT, "prompt": [1, 99999]}, 400, "prompt"),
        ("completions", {**TEXT, "prompt": "a" * 256}, 400, "prompt"),
        ("completions", {**TEXT, "prompt": "\ud800"}, 400, "prompt"),
        ("completions", {**TEXT, "stop": "\ud800"}, 400, None),
        ("completions", {**TEXT, "bucket": "*"}, 400, "bucket"),
        ("completions", {**TEXT, "speculation": {"drafter": "magic"}}, 400, "speculation.drafter"),
        ("completions", {**TEXT, "speculation": {"drafter": "none", "enabled": True}}, 400, "speculation.enabled"),
        ("completions", {**TEXT, "model": "\ud800"}, 400, "model"),
        ("completions", {"max_tokens": 2}, 400, "prompt"),
        ("completions", [], 400, None),
        ("completions", "a", 400, None),
    ],
)
def test_bodies_that_can_not_be_used(route, body, status, param, server):
    answer = server.http().post(f"/v1/{route}", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    if param is not None:
        assert error["param"] == param
    assert error["message"]
    assert server.http().post("/v1/completions", json=TEXT).status_code == 200


@pytest.mark.parametrize(
    ("route", "body", "param", "says"),
    [
        ("completions", {"prompt": 5}, "prompt", "valid string, or input should be a valid list"),
        ("completions", {"prompt": None}, "prompt", "valid string, or input should be a valid list"),
        ("completions", {"prompt": []}, "prompt", "at least 1 item"),
        ("completions", {"prompt": [[1], []]}, "prompt.1", "at least 1 item"),
        ("completions", {"prompt": ["a"] * 129}, "prompt", "at most 128 items"),
        ("completions", {"prompt": [1, -1]}, "prompt.1", "greater than or equal to 0"),
        ("completions", {"prompt": ["a", [1]]}, "prompt.1", "valid string"),
        ("completions", {**TEXT, "stop": ["a"] * 17}, "stop", "at most 16 items"),
        ("completions", {**TEXT, "stop": ["a", 5]}, "stop.1", "valid string"),
        ("completions", {**TEXT, "stop": "a" * 1025}, "stop", "at most 1024 characters"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content.0.type",
            "should be 'text'",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages.0.content.0.text",
            "required",
        ),
        ("chat/completions", {"messages": [{"role": "user"}]}, "messages.0.content", "required"),
    ],
)
def test_a_field_of_several_types_is_named_as_the_client_wrote_it(route, body, param, says, server):
    error = server.http().post(f"/v1/{route}", json=body).json()["error"]
    assert error["param"] == param
    assert says in error["message"]
    assert error["message"].startswith(f"'{param}': ")


def test_what_is_not_in_the_body_is_named_as_it_came(server):
    http = server.http()
    answer = http.post("/v1/completions", json=TEXT, headers={"X-Draftproof-Key": "k" * 600})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Draftproof-Key")
    answer = http.get("/admin/history", params={"after": "x"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100_000, b'{"seed": ' + b"1" * 5000 + b"}", b"null"]
)
def test_bodies_that_are_no_json(content, server):
    answer = server.http().post("/v1/completions", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    if content.startswith((b"[[", b"\xff", b'{"seed')):  # these do not parse at all
        assert answer.json()["error"]["code"] == "invalid_json"


def test_a_body_without_its_content_type_is_told_so(server):
    answer = server.http().post("/v1/completions", content=json.dumps(TEXT))
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_a_compressed_body_is_told_so(server):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = server.http().post("/v1/completions", content=gzip.compress(json.dumps(TEXT).encode()), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_encoding")
    assert server.http().post("/v1/completions", json=TEXT, headers={"Content-Encoding": "identity"}).status_code == 200


def test_oversized_bodies(serve):
    running = serve(max_body=2048)
    http = running.http()
    for options in ({"content": b"x" * 10_000}, {"content": iter([b"x" * 1000] * 10)}, {"content": b"x" * 1_000_000}):
        answer = http.post("/v1/completions", headers={"Content-Type": "application/json"}, **options)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
    assert http.post("/v1/completions", json=TEXT).status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_body(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert server.http().get("/health").status_code == 200


def test_unknown_routes_and_methods(server):
    http = server.http()
    for answer, status in ((http.get("/v1/nothing"), 404), (http.get("/v1/completions"), 405), (http.get("/"), 404)):
        assert answer.status_code == status
        assert answer.json()["error"]["code"] in ("not_found", "method_not_allowed")


def test_keys(serve):
    running = serve(api_keys=("first-key", "other-key"), admin_keys=("admin-key",))
    with pytest.raises(openai.AuthenticationError, match="API key"):
        running.client(api_key="wrong-key").models.list()
    for key in ("first-key", "other-key"):
        assert running.client(api_key=key).models.list().data
    http = running.http()
    assert http.get("/health").status_code == 200
    assert http.get("/openapi.json").status_code == 200
    for path, key, status in (
        ("/metrics", None, 401),
        ("/metrics", "first-key", 200),
        ("/admin/stats", "first-key", 401),
        ("/admin/stats", "admin-key", 200),
        ("/v1/models", "admin-key", 401),
        ("/healthy", None, 401),
        ("/uix", None, 401),
    ):
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        assert http.get(path, headers=headers).status_code == status, (path, key)
    assert http.get("/v1/models").headers["WWW-Authenticate"] == "Bearer"
    assert http.get("/v1/models", headers={"Authorization": "Basic first-key"}).status_code == 401


def test_admin_goes_by_the_api_keys_without_keys_of_its_own(serve):
    http = serve(api_keys=("first-key",)).http()
    assert http.get("/admin/stats").status_code == 401
    assert http.get("/admin/stats", headers={"Authorization": "bearer first-key"}).status_code == 200
