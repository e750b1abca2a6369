"""One POST to a server: time-outs, retries with back-off where it says "not now", and one line for whatever goes wrong.

Two patiences: `timeout_s` without a byte, and `deadline_s` for an answer as a whole, so that one who trickles for ever
(headers, too) is stalled as well. The second is why requests run in an event loop of their own: there a request can be
given up wherever it stands, by its deadline or by `give_up`.

A refusal (400 to 422 but for 408, 425) is an InputError: the same again would be refused again. A server that is busy
(408, 425, 429, 503) or can't be reached is asked again, each time after twice as long or after what `Retry-After` says;
in the end, and for all other statuses, a broken connection, a stalled one or what is no JSON, it is a `SubjectFailed`.

Invariant: a request that may have been answered is never counted twice: an answer is used only if it came whole. The
key goes to this server alone; redirections are not followed. No answer takes more memory than `_MOST`.

Does not know: what is asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from draftproof.certify.types import SubjectFailed
from draftproof.errors import InputError

_NOT_NOW = frozenset({408, 425, 429, 503})
_REFUSED = frozenset({400, 401, 403, 404, 405, 413, 415, 422})
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LONGEST_WAIT_S = 60.0
_CLOSING_S = 5.0
_MOST = 1 << 30  # bytes of an answer: a whole vocabulary's log-probabilities for a long text are a third of it


class Patience(NamedTuple):
    """timeout_s: without a byte. deadline_s: for a whole answer. retries: beside the first try, backoff_s before it."""

    timeout_s: float = 120.0
    deadline_s: float = 600.0
    retries: int = 5
    backoff_s: float = 0.5


class Answer(NamedTuple):
    """One answer, whole."""

    status: int
    text: str
    retry_after: str

    def value(self) -> Any:
        """As JSON. Raises ValueError."""
        return json.loads(self.text)


class Http:
    """A server's address, its key, and patience. Safe to share between threads; close it."""

    def __init__(self, url: str, key: str | None = None, patience: Patience | None = None) -> None:
        """Raises InputError for what is no address, or where httpx is not installed."""
        try:
            import httpx  # an extra: only endpoints need it
        except ImportError as error:
            raise InputError("endpoints need the package httpx: install it, or draftproof with its extras") from error
        host = _host(url)
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            raise InputError("the key holds characters that no key has")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.patience = patience or Patience()
        self._errors = httpx
        self._given_up = threading.Event()
        self._running: set[Future[Answer]] = set()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # a server on this machine is spoken to without a proxy
        self._client = httpx.AsyncClient(timeout=self.patience.timeout_s, headers=headers, trust_env=host not in _LOCAL)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def get(self, path: str) -> Any:
        """The JSON value of the answer, as of `post`."""
        return _value(self.url, self._respond("GET", path, None))

    def text(self, path: str) -> str:
        """The answer as it is, as of `post`."""
        return self._respond("GET", path, None).text

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON value of the answer. Raises InputError for a refusal, SubjectFailed for all else."""
        return _value(self.url, self._respond("POST", path, body))

    def _respond(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        """An answer of status 200."""
        wait, reason = self.patience.backoff_s, ""
        for left in range(self.patience.retries, -1, -1):
            try:
                answer = self._once(method, path, body)
            except self._errors.ConnectError as error:  # nothing was sent: it may be starting again
                reason = f"can't be reached: {error}"
            else:
                if answer.status not in _NOT_NOW:
                    return self._checked(answer)
                reason, wait = f"says {_said(answer)}", max(wait, _seconds(answer.retry_after))
            if left and self._given_up.wait(min(wait, _LONGEST_WAIT_S)):
                raise SubjectFailed(f"{self.url} was given up")
            wait *= 2
        raise SubjectFailed(f"{self.url} {reason} (asked {self.patience.retries + 1} times)")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        """Any answer. Raises ConnectError where there was no connection, SubjectFailed for all else."""
        asked = asyncio.wait_for(self._read(method, path, body), self.patience.deadline_s)
        waiting = asyncio.run_coroutine_threadsafe(asked, self._loop)
        self._running.add(waiting)
        try:
            if self._given_up.is_set():  # it may have been set before this one could be seen
                waiting.cancel()
            return waiting.result()
        except self._errors.ConnectError:
            raise
        except CancelledError as error:
            raise SubjectFailed(f"{self.url} was given up") from error
        except TimeoutError as error:
            given = f"the answer was not whole in {self.patience.deadline_s:g} s"
            raise SubjectFailed(f"{self.url} stalled: {given}") from error
        except self._errors.TimeoutException as error:
            raise SubjectFailed(f"{self.url} stalled: no answer in {self.patience.timeout_s:g} s") from error
        except self._errors.HTTPError as error:
            raise SubjectFailed(f"{self.url} broke off: {error or type(error).__name__}") from error
        finally:
            self._running.discard(waiting)
            waiting.cancel()

    def give_up(self) -> None:
        """Whatever is being asked ends at once, as a SubjectFailed; `go_on` is called before anything else is asked."""
        self._given_up.set()
        for waiting in list(self._running):
            waiting.cancel()

    def go_on(self) -> None:
        """After `give_up`."""
        self._given_up.clear()

    async def _read(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        parts, size = [], 0
        async with self._client.stream(method, f"{self.url}{path}", json=body) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > _MOST:
                    raise SubjectFailed(f"{self.url} broke off: an answer of more than {_MOST >> 20} MiB")
            text = b"".join(parts).decode("utf-8", "replace")
            return Answer(response.status_code, text, response.headers.get("Retry-After", "0"))

    def _checked(self, answer: Answer) -> Answer:
        if answer.status in _REFUSED:
            raise InputError(f"{self.url} refuses: {_said(answer)}")
        if answer.status != 200:
            raise SubjectFailed(f"{self.url} says {_said(answer)}")
        return answer

    def close(self) -> None:
        """Closes its connections; a second time does nothing."""
        if self._loop.is_closed():
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result(_CLOSING_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_S)
        if not self._thread.is_alive():
            self._loop.close()


def _value(url: str, answer: Answer) -> Any:
    try:
        return answer.value()
    except (ValueError, RecursionError) as error:
        raise SubjectFailed(f"{url} answers with what is no JSON: {answer.text[:60]!r}") from error


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host and (parts.username is not None or parts.password is not None):
        raise InputError("the address of a server holds a user or a password: give a key by --api-key")
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or not url.isascii():
        raise InputError(f"{url!r} is no address of a server: write http://HOST:PORT")
    return host


def _said(answer: Answer) -> str:
    """Status and message in one line, nothing in it that a terminal would obey."""
    try:
        value = answer.value()
    except (ValueError, RecursionError):
        value = None
    error = value.get("error", value) if isinstance(value, dict) else None
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    text = " ".join(str(message or answer.text).split())[:200]
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return f"{answer.status}: {shown}" if shown else str(answer.status)


def _seconds(retry_after: str) -> float:
    try:
        return max(0.0, float(retry_after))
    except ValueError:  # a date
        return 0.0
