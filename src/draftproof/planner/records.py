"""Frozen dataclasses from JSON, strictly: an unknown, missing or ill-typed field is one InputError that names it.

Does not know: which records there are.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from draftproof.errors import InputError

T = TypeVar("T")


def decode(kind: type[T], value: object, where: str) -> T:
    """The record of dataclass `kind` that `dataclasses.asdict` (and JSON) made `value` of; `where` is its name."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be an object, got {type(value).__name__}")
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(value) - set(names)):
        raise InputError(f"{where} has a field this version does not know: {unknown[0]!r}")
    if missing := [name for name in names if name not in value]:
        raise InputError(f"{where} lacks the field {missing[0]!r}")
    return kind(**{name: _value(hints[name], value[name], f"{where}.{name}") for name in names})


def _value(hint: Any, value: Any, where: str) -> Any:
    """One field, by its annotation: a record, tuple[X, ...], X | None, dict[str, Any], or a plain type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return (
            None if value is None else _value(next(kind for kind in inner if kind is not types.NoneType), value, where)
        )
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{where} must be a list")
        return tuple(_value(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if is_dataclass(hint):
        return decode(typing.cast(type, hint), value, where)
    expected = (int, float) if hint is float else (origin or hint,)
    if not isinstance(value, expected) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return float(value) if hint is float else value
