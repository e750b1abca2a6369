"""Dataclasses to JSON-ready values and back, exactly: floats keep their bits, order stays, nothing is guessed.

Invariant: `read(type(x), plain(x)) == x` and `copied(x) == x`; a value that does not fit, lacks a field or has one too
many is a ValueError that names the place.

Does not know: what the classes mean.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any


def plain(value: Any) -> Any:
    """Of dataclasses, dicts, lists, texts, numbers, booleans and None."""
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {name: plain(getattr(value, name)) for name in fields_of(kind)}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def copied(value: Any) -> Any:
    """The same value, of which no part is shared that could change."""
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return kind(*[copied(getattr(value, name)) for name in fields_of(kind)])
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@cache
def fields_of(kind: Any) -> dict[str, Any]:
    """Name -> type of a dataclass's fields."""
    hints = typing.get_type_hints(kind)
    return {own.name: hints[own.name] for own in dataclasses.fields(kind)}


def read(kind: Any, value: Any, where: str = "state") -> Any:
    """An instance of `kind`. Raises ValueError."""
    return _reader(kind)(value, where)


@cache
def _reader(kind: Any) -> Callable[[Any, str], Any]:
    origin = typing.get_origin(kind)
    if kind is Any:
        return lambda value, _: value
    if dataclasses.is_dataclass(kind):
        return lambda value, where: _read_fields(kind, value, where)
    if origin is list:
        inner = _reader(typing.get_args(kind)[0])
        return lambda value, where: [inner(item, f"{where}[]") for item in _is(list, value, where)]
    if origin is dict:
        inner = _reader(typing.get_args(kind)[1])
        return lambda value, where: {n: inner(item, f"{where}.{n}") for n, item in _is(dict, value, where).items()}
    if origin is types.UnionType:
        inner = _reader(next(one for one in typing.get_args(kind) if one is not type(None)))
        return lambda value, where: None if value is None else inner(value, where)
    if origin is typing.Literal:
        return lambda value, where: _one_of(typing.get_args(kind), value, where)
    return lambda value, where: _is(kind, value, where)


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    fields = fields_of(kind)
    given = _is(dict, value, where)
    if given.keys() != fields.keys():
        raise ValueError(f"{where} has the fields {sorted(given)} instead of {sorted(fields)}")
    return kind(**{name: _reader(inner)(given[name], f"{where}.{name}") for name, inner in fields.items()})


def _is(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type(value) is not kind or kind is float:
        raise ValueError(f"{where} is {value!r}, which is no {kind.__name__}")
    return value


def _one_of(known: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in known:
        raise ValueError(f"{where} is {value!r}, none of {', '.join(map(str, known))}")
    return value
