"""What goes wrong with a request, as HTTP status and OpenAI error object.

    {"error": {"message": "...", "type": "invalid_request_error", "param": "temperature", "code": "invalid_value"}}

Does not know: routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from draftproof.errors import DraftproofError, InputError, PromptTooLong

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
    503: "service_unavailable",
    504: "timeout",
}


class ApiError(Exception):
    """A refusal, or a failure. retry_after: seconds, for a client that may try again."""

    def __init__(
        self, status: int, message: str, *, code: str, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    def body(self) -> dict[str, Any]:
        """The JSON object that the client gets."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def busy(message: str) -> ApiError:
    """No room for now."""
    return ApiError(503, message, code="overloaded", retry_after=1)


@contextmanager
def naming(param: str) -> Iterator[None]:
    """What the library refuses inside is refused with this field's name."""
    try:
        yield
    except InputError as error:
        raise of_library(error, param) from None


def of_library(error: DraftproofError, param: str | None = None) -> ApiError:
    """What the library refused, or could not keep."""
    if isinstance(error, PromptTooLong):
        return ApiError(400, str(error), code="context_length_exceeded", param=param)
    if isinstance(error, InputError):
        return ApiError(400, str(error), code="invalid_value", param=param)
    return ApiError(500, str(error), code="engine_error")
