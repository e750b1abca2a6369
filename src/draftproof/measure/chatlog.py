"""One record of a data file -> a prompt, perhaps its completion, and a bucket.

What is read, without being told which it is:
- {"prompt": text} or {"messages": [...]}, each with an optional "completion": text; bodies of chat requests are these;
- {"request": body, "response": {"choices": [...]}}, a logged pair, and {"body": body, "response": {"body": ...}};
- {"custom_id": ..., "body": body}, an input line of the batch API;
- messages that end with the assistant's turn, a fine-tuning line: that turn is the completion.
Of several choices the first is read. With both "messages" and "prompt", the messages are.

Invariant: what can't be rebuilt as the model saw it (images, tools, a forced format, an answer without its request) is
refused with the reason, never approximated. Sampling settings of a logged request are not looked at: the run has its
own.

Does not know: token ids, chat templates, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.errors import InvalidPrompt

Message = Mapping[str, Any]
DEFAULT_BUCKET = "default"


@dataclass(frozen=True, slots=True)
class Completion:
    """What was answered. ended: the model's own end (True), cut before it (False), or nobody knows (None)."""

    text: str
    ended: bool | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt of the data."""

    line: int
    prompt: str | tuple[Message, ...]
    completion: Completion | None
    bucket: str
    has_bucket: bool = True  # False: the record lacks the bucket field


def read_sample(line: int, record: object, bucket_field: str | None) -> Sample:
    """The prompt of a record. Raises InvalidPrompt with what makes it unusable."""
    if not isinstance(record, dict):
        raise InvalidPrompt(f"not an object with a prompt, but a {type(record).__name__}")
    body = _body(record)
    _refuse_constraints(body)
    prompt, turn = _prompt(body)
    given = [found for found in (_field(record), _response(record), turn) if found is not None]
    if len(given) > 1:
        raise InvalidPrompt("more than one completion: a field, a response or a last turn of the assistant")
    bucket = None if bucket_field is None else _bucket(record, bucket_field)
    return Sample(line, prompt, given[0] if given else None, bucket or DEFAULT_BUCKET, bucket is not None)


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a record that holds the prompt."""
    request = record.get("request")
    inner = request.get("body") if isinstance(request, dict) else None
    for body in (record, inner, request, record.get("body")):
        if isinstance(body, dict) and (body.get("messages") is not None or body.get("prompt") is not None):
            return body
    if record.get("response") is not None or record.get("choices") is not None:
        raise InvalidPrompt("an answer without its request: join the batch's output with its input by custom_id")
    raise InvalidPrompt('no prompt: a line needs "prompt" or "messages"')


def _refuse_constraints(body: Mapping[str, Any]) -> None:
    for name in ("tools", "functions"):
        if body.get(name):
            raise InvalidPrompt(f"the request has {name}: the prompt its server made of them is not known")
    form = body.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise InvalidPrompt("the request forces a response format, which changes the law of each token")


def _prompt(body: Mapping[str, Any]) -> tuple[str | tuple[Message, ...], Completion | None]:
    """The prompt, and the assistant's turn that ended the messages."""
    if body.get("messages") is None:
        text = body["prompt"]
        if not isinstance(text, str):
            raise InvalidPrompt(f'"prompt" must be a string, got a {type(text).__name__}')
        if not text:
            raise InvalidPrompt("the prompt is empty")
        return text, None
    listed = body["messages"]
    if not isinstance(listed, list) or not listed:
        raise InvalidPrompt('"messages" must be a list of messages like {"role": "user", "content": "..."}')
    messages = [_message(each) for each in listed]
    turn = None
    if messages[-1]["role"] == "assistant":
        turn = Completion(messages.pop()["content"], ended=True)
        if not messages:
            raise InvalidPrompt("the messages hold the assistant's turn only: there is no prompt before it")
    return tuple(messages), turn


def _message(message: object) -> Message:
    """A message with its content as one string."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise InvalidPrompt('a message needs a "role" and a "content"')
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            raise InvalidPrompt(f"a message holds {name}: the text its server made of them is not known")
    content = _text(message.get("content"), f"the content of a message of role {message['role']!r}")
    return {**{key: value for key, value in message.items() if value is not None}, "content": content}


def _text(content: object, what: str) -> str:
    """A string, or the joined text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidPrompt(f"{what} must be text, got {'null' if content is None else type(content).__name__}")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidPrompt(f"{what} has a part that is no text: {kind}")
        texts.append(part["text"])
    return "".join(texts)


def _field(record: Mapping[str, Any]) -> Completion | None:
    text = record.get("completion")
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidPrompt(f'"completion" must be a string, got a {type(text).__name__}')
    return Completion(text)


def _response(record: Mapping[str, Any]) -> Completion | None:
    """The first choice of a logged response."""
    response = record.get("response")
    if isinstance(response, dict):
        inner = response.get("body", response)
        response = inner if isinstance(inner, dict) else response
    choices = response.get("choices") if isinstance(response, dict) else record.get("choices")
    if choices is None and not isinstance(response, dict):
        return None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise InvalidPrompt("its response holds no answer: an error, or an empty list of choices")
    choice = choices[0]
    message = choice.get("message")
    text = _message({"role": "assistant", **message})["content"] if isinstance(message, dict) else choice.get("text")
    if not isinstance(text, str):
        raise InvalidPrompt("its response holds no text")
    reason = choice.get("finish_reason")
    return Completion(text, ended=None if reason is None else reason == "stop")


def _bucket(record: Mapping[str, Any], name: str) -> str | None:
    """The field of that name, or at that dotted path, as a string; None where the record lacks it."""
    value: Any = record.get(name)
    if value is None:
        value = record
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    raise InvalidPrompt(f"the bucket field {name!r} must be a string or a number, got a {type(value).__name__}")
