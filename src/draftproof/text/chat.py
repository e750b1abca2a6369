"""A model's chat template: messages -> the text of the prompt, rendered in a sandbox.

Templates come with models and are code of strangers, so they run in jinja2's immutable sandbox, with the names that
templates in the wild rely on: `raise_exception`, `strftime_now`, a `tojson` that does not escape HTML, loop controls,
and the `{% generation %}` block (which marks the assistant's part for training and renders its content).

Invariant: the same text as transformers' `apply_chat_template` gives (held by a test).

Does not know: tokens; who asks. A template compiles when it is first rendered, so that a model with a broken template
still runs on plain prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from draftproof.errors import CorruptModel, InvalidPrompt


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` renders what is inside."""

    tags = {"generation"}  # noqa: RUF012 - the name and type are jinja2's

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=8)
def _compile(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of the messages without the keys that are None, as templates expect them."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise InvalidPrompt('a chat prompt is a non-empty list of messages like {"role": "user", "content": "..."}')
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidPrompt(f'each chat message needs a "role" and a "content", got {message!r}')
        content = message.get("content")
        if not isinstance(content, (str, list)) and not (content is None and len(message) > 2):  # None: a tool call
            raise InvalidPrompt(f'the "content" of the chat message of role {message["role"]!r} must be text')
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


def render_chat(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    names: Mapping[str, Any],
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt text of `messages`.

    source: the jinja template. names: what the template may read beside the messages (bos_token, eos_token, ...).
    Raises InvalidPrompt for messages of a wrong shape, and where the template itself refuses them; CorruptModel for a
    template that does not compile.
    """
    plain = _checked(messages)
    try:
        template = _compile(source)
    except jinja2.TemplateError as error:
        raise CorruptModel(f"the model's chat template does not compile ({error}): use --no-chat") from error
    try:
        return template.render(messages=plain, add_generation_prompt=add_generation_prompt, **names)
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidPrompt(f"the model's chat template refused the messages: {error}") from error
