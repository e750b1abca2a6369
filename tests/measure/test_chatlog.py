"""Records as they come -> prompt, completion, bucket; and what is refused, with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.errors import InvalidPrompt
from draftproof.measure.chatlog import Completion, read_sample

USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "Hello."}


def choices(content: Any = "Hello.", reason: str | None = "stop") -> list[dict[str, Any]]:
    return [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}, {"index": 1}]


@pytest.mark.parametrize(
    ("record", "prompt", "completion"),
    [
        ({"prompt": "Hi"}, "Hi", None),
        ({"prompt": "Hi", "completion": "Hello."}, "Hi", Completion("Hello.")),
        ({"prompt": "Hi", "completion": ""}, "Hi", Completion("")),
        ({"prompt": "Hi", "completion": None, "messages": None}, "Hi", None),
        ({"messages": [USER], "model": "x", "temperature": 0.3, "stream": True}, [USER], None),
        ({"messages": [SYSTEM, USER], "completion": "Hello."}, [SYSTEM, USER], Completion("Hello.")),
        ({"messages": [USER, ANSWER, USER]}, [USER, ANSWER, USER], None),
        ({"messages": [SYSTEM, USER, ANSWER]}, [SYSTEM, USER], Completion("Hello.", True)),
        ({"prompt": "other", "messages": [USER]}, [USER], None),
        ({"request": {"messages": [USER]}, "response": {"choices": choices()}}, [USER], Completion("Hello.", True)),
        (
            {"request": {"messages": [USER]}, "response": {"choices": choices(reason="length")}},
            [USER],
            Completion("Hello.", False),
        ),
        (
            {"request": {"messages": [USER]}, "response": {"choices": choices(reason=None)}},
            [USER],
            Completion("Hello.", None),
        ),
        ({"request": {"messages": [USER]}}, [USER], None),
        ({"request": {"body": {"messages": [USER]}}}, [USER], None),
        ({"messages": [USER], "choices": choices()}, [USER], Completion("Hello.", True)),
        (
            {"request": {"prompt": "Hi"}, "response": {"choices": [{"text": " there", "finish_reason": "stop"}]}},
            "Hi",
            Completion(" there", True),
        ),
        ({"custom_id": "1", "method": "POST", "url": "/v1", "body": {"messages": [USER]}}, [USER], None),
        (
            {"body": {"messages": [USER]}, "response": {"status_code": 200, "body": {"choices": choices()}}},
            [USER],
            Completion("Hello.", True),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]},
            [USER],
            None,
        ),
        ({"messages": [{**USER, "name": None, "tool_calls": None}]}, [USER], None),
        ({"prompt": "Hi", "tools": [], "response_format": {"type": "text"}}, "Hi", None),
        ({"prompt": "Hi", "response": "a string says nothing"}, "Hi", None),
    ],
)
def test_what_is_read(record: dict[str, Any], prompt: Any, completion: Completion | None) -> None:
    sample = read_sample(7, record, None)
    assert sample.line == 7
    assert (sample.prompt if isinstance(prompt, str) else list(sample.prompt)) == prompt
    assert sample.completion == completion
    assert sample.bucket == "default"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "not an object with a prompt, but a NoneType"),
        ([USER], "but a list"),
        ("Hi", "but a str"),
        ({}, 'needs "prompt" or "messages"'),
        ({"text": "Hi"}, 'needs "prompt" or "messages"'),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": 7}, "must be a string, got a int"),
        ({"prompt": ["a", "b"]}, "must be a string, got a list"),
        ({"prompt": "Hi", "completion": 3}, '"completion" must be a string'),
        ({"messages": []}, '"messages" must be a list'),
        ({"messages": USER}, '"messages" must be a list'),
        ({"messages": ["Hi"]}, 'needs a "role"'),
        ({"messages": [{"content": "Hi"}]}, 'needs a "role"'),
        ({"messages": [{"role": "user"}]}, "must be text, got null"),
        ({"messages": [{"role": "user", "content": 3}]}, "must be text, got int"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part that is no text: image_url"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "a part that is no text: str"),
        ({"messages": [ANSWER]}, "the assistant's turn only"),
        ({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{}]}]}, "holds tool_calls"),
        ({"messages": [USER], "tools": [{"type": "function"}]}, "the request has tools"),
        ({"messages": [USER], "response_format": {"type": "json_object"}}, "forces a response format"),
        ({"messages": [USER, ANSWER], "completion": "Hello."}, "more than one completion"),
        ({"custom_id": "1", "response": {"body": {"choices": choices()}}}, "join the batch's output with its input"),
        ({"request": {"messages": [USER]}, "response": {"choices": []}}, "holds no answer"),
        ({"body": {"messages": [USER]}, "response": {"status_code": 500, "body": {"error": {}}}}, "holds no answer"),
        ({"request": {"messages": [USER]}, "response": {"choices": choices(None)}}, "must be text, got null"),
        ({"request": {"prompt": "Hi"}, "response": {"choices": [{"text": None}]}}, "holds no text"),
    ],
)
def test_what_is_refused(record: Any, reason: str) -> None:
    with pytest.raises(InvalidPrompt) as error:
        read_sample(1, record, None)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("extra", "field", "bucket", "has_bucket"),
    [
        ({"task": "edit"}, "task", "edit", True),
        ({"task": 3}, "task", "3", True),
        ({"task": 0.5}, "task", "0.5", True),
        ({"task": True}, "task", "true", True),
        ({"task": ""}, "task", "default", True),
        ({"task": None}, "task", "default", False),
        ({}, "task", "default", False),
        ({"metadata": {"task": "edit"}}, "metadata.task", "edit", True),
        ({"a.b": "flat", "a": {"b": "deep"}}, "a.b", "flat", True),
        ({"metadata": "x"}, "metadata.task", "default", False),
    ],
)
def test_buckets(extra: dict[str, Any], field: str, bucket: str, has_bucket: bool) -> None:
    sample = read_sample(1, {"prompt": "Hi", **extra}, field)
    assert (sample.bucket, sample.has_bucket) == (bucket, has_bucket)


def test_a_bucket_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidPrompt, match="must be a string or a number, got a list"):
        read_sample(1, {"prompt": "Hi", "task": ["a"]}, "task")
