"""Binds, serves until a signal, and goes down gracefully: SIGTERM or Ctrl-C once drains, twice ends at once.

While it drains, the server still answers: health checks say unready, new requests get 503 with Retry-After.

Does not know: routes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from draftproof.errors import InputError
from draftproof.serve.app import make_app
from draftproof.serve.build import build_served
from draftproof.serve.journal import Journal
from draftproof.serve.service import Service
from draftproof.serve.settings import ServeSettings
from draftproof.serve.tally import Tally
from draftproof.serve.treatment import make_chooser

if TYPE_CHECKING:
    from draftproof.serve.tracing import Tracing


class GracefulServer(uvicorn.Server):  # type: ignore[misc]
    """uvicorn, but for what a signal does."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._started = service, started
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Notes the loop that signals are handed to; says when requests may come."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second one ends."""
        if self._loop is None or self._draining is not None:
            self.should_exit = self.force_exit = True
            return
        self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Goes down when what runs has ended. In the loop's thread."""
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._service.drain()
        finally:
            self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening address. Raises InputError where it can't be had."""
    found: socket.socket | None = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        if found is not None:
            found.close()
        raise InputError(f"can't listen on {host}:{port}: {error.strerror or error}; give another --port") from None
    return found


def make_server(service: Service, started: Callable[[], None] = lambda: None) -> GracefulServer:
    """uvicorn over the service's application. started: called once requests may come."""
    config = uvicorn.Config(
        make_app(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=5,  # what runs has ended before
    )
    return GracefulServer(config, service, started)


def run_server(settings: ServeSettings, progress: Callable[[str], None], ready: Callable[[str], None]) -> None:
    """Loads, serves, returns after the shutdown. ready: told the address. Raises InputError."""
    journal, tally = Journal(requests=settings.log_requests), Tally()
    with bind(settings.host, settings.port) as listening:  # a port in use is said before a model is loaded
        tracing = _tracing(settings, journal)
        chooser = make_chooser(settings, tally, journal)
        service = Service(settings, build_served(settings, progress), chooser, tally, journal)
        service.tracing = tracing
        if settings.is_public and not settings.api_keys:
            print(
                f"draftproof: warning: {settings.host} can be reached by other machines and asks for no key: "
                "give --api-key, or --host 127.0.0.1",
                file=sys.stderr,
                flush=True,
            )
        host, port = listening.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        make_server(service, lambda: ready(address)).run([listening])


def _tracing(settings: ServeSettings, journal: Journal) -> Tracing | None:
    """Where spans are asked for. Raises InputError where what they need is not installed."""
    if settings.otlp_traces_endpoint is None:
        return None
    try:
        from draftproof.serve.tracing import make_tracing  # an optional dependency
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "draftproof":
            raise
        raise InputError(f"--otlp-traces-endpoint needs {error.name}: pip install 'draftproof[otel]'") from None
    return make_tracing(settings.otlp_traces_endpoint, journal)
