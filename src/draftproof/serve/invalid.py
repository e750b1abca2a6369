"""What pydantic found in a request -> the refusal: one field, named as the client wrote it.

Where a field may be of several types, pydantic reports what each of them misses, under names of its own ("prompt.str",
"stop.list[constrained-str]"). Told is what the type misses that fits best: one of the same kind as what was sent, with
the fewest faults. Where none is of its kind, all kinds are named.

Invariant: `param` is a path in the body as it was sent, or the name of what is missing in it; what was sent is never
repeated, but for names of fields.

Does not know: routes, models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from draftproof.serve.errors import ApiError

_CODES = {"extra_forbidden": "unsupported_field", "missing": "missing_field"}
_PLACES = ("body", "query", "header", "path")
_Found = Mapping[str, Any]  # as pydantic reports: loc, type, msg


def of_validation(errors: Sequence[_Found], body: Any) -> ApiError:
    """errors: at least one. body: what was sent, parsed as far as it could be."""
    kind, first = str(errors[0]["type"]), errors[0]
    if kind == "json_invalid":
        return not_json()
    if not _inside(first["loc"]) and kind != "missing":
        return ApiError(
            400, "the body must be a JSON object, sent with Content-Type: application/json", code="invalid_json"
        )
    found = _best(first, errors, body)
    kind, path = str(found[0]["type"]), _path(found[0], body)
    code, param = _CODES.get(kind, "invalid_value"), ".".join(path) or None
    if kind == "extra_forbidden":
        return ApiError(400, f"unsupported field {_short(param)}: this server does not know it", code=code, param=param)
    where = f"{_short(param)}: " if param else "the body: "
    return ApiError(400, f"{where}{_sentence(str(each['msg']) for each in found)}", code=code, param=param)


def not_json() -> ApiError:
    """A body that is no JSON at all, or too deep, or not UTF-8."""
    return ApiError(400, "the body is not JSON", code="invalid_json")


def _best(first: _Found, errors: Sequence[_Found], body: Any) -> list[_Found]:
    """What to tell: one fault, or one for each type that a field might have had."""
    start = _union_at(first, body)
    if start is None:
        return [first]
    loc, types = first["loc"], dict[Any, list[_Found]]()
    for error in errors:
        if error["loc"][:start] == loc[:start] and len(error["loc"]) > start:
            types.setdefault(error["loc"][start], []).append(error)
    fitting = [own for own in types.values() if not _is_other_kind(own[0], start)]
    return [min(fitting, key=_faults)[0]] if fitting else [own[0] for own in types.values()]


def _faults(errors: Sequence[_Found]) -> tuple[int, int]:
    """Fewer is nearer; a value out of its range is nearer than one of another type."""
    return len(errors), sum(str(error["type"]).endswith("_type") for error in errors)


def _is_other_kind(error: _Found, start: int) -> bool:
    """True where the value itself is of another type than this one of the union."""
    return len(error["loc"]) == start + 1 and str(error["type"]).endswith("_type")


def _union_at(error: _Found, body: Any) -> int | None:
    """Where in its location a name of pydantic's stands in place of the client's."""
    value, loc = body, error["loc"]
    if loc[0] != "body":
        return None
    for at in range(1, len(loc)):
        if not _leads_on(value, loc[at]):
            of_the_client = at == len(loc) - 1 and (error["type"] == "missing" or loc[at] == "[key]")
            return None if of_the_client else at
        value = value[loc[at]]
    return None


def _path(error: _Found, body: Any) -> list[str]:
    """The location without pydantic's own names."""
    value, kept = body, []
    inside = _inside(error["loc"])
    if error["loc"][0] != "body":
        return [str(part) for part in inside]
    for at, part in enumerate(inside):
        if _leads_on(value, part):
            value = value[part]
            kept.append(str(part))
        elif error["type"] == "missing" and at == len(inside) - 1:
            kept.append(str(part))
    return kept


def _leads_on(value: Any, part: Any) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _inside(loc: Sequence[Any]) -> Sequence[Any]:
    """A location without the part of the request it lies in."""
    return loc[1:] if loc and loc[0] in _PLACES else loc


def _short(text: str | None) -> str:
    return repr((text or "")[:128])


def _sentence(texts: Iterable[str]) -> str:
    """ "Input should be a valid string", "Input should be a valid list" -> one of them after the other, each once."""
    return ", or ".join(dict.fromkeys(text[:1].lower() + text[1:300] for text in texts))
