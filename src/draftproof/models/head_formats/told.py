"""Values of somebody's config.json, taken one by one: each of the type it must have, or an error that names it.

Does not know: what the values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.errors import CorruptModel, UnsupportedModel


@dataclass(frozen=True, slots=True)
class Told:
    """One object of a configuration. where: what it is called in messages."""

    values: Mapping[str, Any]
    where: str

    def part(self, name: str) -> Told:
        """An object inside; empty where it is not told."""
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object")
        return Told(value, f"{name} of {self.where}")

    def integer(self, name: str, default: int | None = None) -> int:
        """At least 1."""
        value = self._given(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(name, "a whole number of at least 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Above 0 and finite."""
        value = self._given(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self._wrong(name, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._given(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where it is empty or not told."""
        value = self.values.get(name)
        if value is None or value == []:
            return None
        if not isinstance(value, list) or not all(
            isinstance(each, int) and not isinstance(each, bool) for each in value
        ):
            raise self._wrong(name, "a list of whole numbers")
        return tuple(value)

    def must_be(self, name: str, allowed: object, why: str) -> None:
        """Raises UnsupportedModel, with the reason, for a value that is told and is another one."""
        value = self.values.get(name, allowed)
        if value is not None and value != allowed:
            raise UnsupportedModel(f"{self.where} has {name} {value!r}: {why}")

    def _given(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise CorruptModel(f"{self.where} does not tell {name}: get the draft head again")
        return value

    def _wrong(self, name: str, needed: str) -> CorruptModel:
        return CorruptModel(f"{self.where} has {name} {self.values.get(name)!r}, which is not {needed}")
