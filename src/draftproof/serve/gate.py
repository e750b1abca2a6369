"""Before every route: who may come in, how much they may bring, and one count for each answer.

- Where keys are given, every path but /health*, /ui* and /openapi.json asks for `Authorization: Bearer KEY`; /admin*
  for one of the admin keys, where there are any. Keys are compared in constant time.
- A body is read whole, up to the limit, within a time; then the route sees it.

Pure ASGI: a route may still listen for its client's leaving.

Does not know: routes, what a body means.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftproof.serve import wire
from draftproof.serve.errors import ApiError
from draftproof.serve.settings import ServeSettings

_OPEN = ("/health", "/ui", "/openapi.json")
_BODY_SECONDS = 60.0
_SWALLOWED = 8  # times the limit that is read and dropped, so that the client hears of its 413


class _Left(Exception):
    """The client left before its body was complete."""


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, answered: Callable[[str, int], None]) -> None:
        self._app, self._answered = app, answered
        self._limit = settings.max_body
        self._keys = _digests(settings.api_keys)
        self._admin = _digests(settings.admin_keys) or self._keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._answered(route, message["status"])
            await send(message)

        try:
            self._check_key(scope)
            _check_encoding(scope)
            body = await self._body(receive)
        except ApiError as error:
            await wire.json_response(error.body(), error.status, error.headers)(scope, receive, counted)
            return
        except _Left:
            return
        await self._app(scope, _replayed(body, receive), counted)

    def _check_key(self, scope: Scope) -> None:
        path = scope["path"]
        keys = self._admin if path.startswith("/admin") else self._keys
        if not keys or any(path == each or path.startswith((f"{each}/",)) for each in _OPEN):
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        fits = [hmac.compare_digest(digest, known) for known in keys]  # all of them, whichever fits
        if scheme.lower() != b"bearer" or not any(fits):
            raise ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")

    async def _body(self, receive: Receive) -> bytes:
        """The whole body. Raises ApiError for one that is too large or too slow."""
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while more and size <= _SWALLOWED * self._limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if size <= self._limit:
                        chunks.append(message.get("body", b""))
        except TimeoutError:
            raise ApiError(
                408, f"the body did not come within {_BODY_SECONDS:g} seconds", code="body_timeout"
            ) from None
        if size > self._limit:
            raise ApiError(413, f"the body is larger than {self._limit} bytes", code="body_too_large")
        return b"".join(chunks)


def _check_encoding(scope: Scope) -> None:
    """Raises ApiError for a compressed body."""
    given = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"identity")
    if given.strip().lower() not in (b"", b"identity"):
        message = "a body with a Content-Encoding can't be read: send it as it is"
        raise ApiError(400, message, code="unsupported_encoding")


def _digests(keys: Sequence[str]) -> list[bytes]:
    return [hashlib.sha256(key.encode()).digest() for key in keys]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` that gives the body first."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
