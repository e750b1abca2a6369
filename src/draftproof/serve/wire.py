"""Bytes of answers: JSON bodies, and server-sent events that end when the client leaves.

Invariant: no JSON holds NaN, Infinity or half a character, whatever a client had us repeat.

Does not know: what is in an answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"


def encode(value: Any) -> bytes:
    """One JSON value as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON body."""
    return Response(encode(value), status, dict(headers or {}), "application/json")


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


class Gone(Exception):
    """The client left."""


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """What `work` gives; it is cancelled, and Gone raised, when the client leaves first. The body has been read."""
    return await _first(asyncio.ensure_future(work), request.receive)


async def _first(work: asyncio.Future[Any], receive: Receive) -> Any:
    gone = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Gone
        return work.result()
    finally:
        for task in (work, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


class EventStream(Response):
    """Sends events as they come; closes their source when the client leaves, at once, or does not read for too long."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], close: Callable[[], None], headers: Mapping[str, str], seconds: float
    ) -> None:
        """seconds: for the whole of it."""
        super().__init__(None, 200, {**headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._close, self._seconds = events, close, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            with suppress(Gone, OSError):  # TimeoutError is one
                async with asyncio.timeout(self._seconds):
                    await _first(asyncio.ensure_future(self._send(send)), receive)
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for body in self._events:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
