"""One POST to a server: time-outs, retries with back-off where it says "not now", and one line for whatever goes wrong.

A refusal (400 to 422 but for 408, 425) is an InputError: the same again would be refused again. A server that is busy
(408, 425, 429, 503) or can't be reached is asked again, each time after twice as long or after what `Retry-After` says;
in the end, and for all other statuses, a broken connection, a stalled one or what is no JSON, it is a `SubjectFailed`.

Invariant: a request that may have been answered is never counted twice: an answer is used only if it came whole. The
key goes to this server alone; redirections are not followed.

Does not know: what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from draftproof.certify.types import SubjectFailed
from draftproof.errors import InputError

if TYPE_CHECKING:
    import httpx

_NOT_NOW = frozenset({408, 425, 429, 503})
_REFUSED = frozenset({400, 401, 403, 404, 405, 413, 415, 422})
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LONGEST_WAIT_S = 60.0


class Http:
    """A server's address, its key, and patience. Safe to share between threads; close it.

    timeout_s: without a byte of the answer. retries: beside the first try.
    backoff_s: before the first retry. sleep: for tests.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 120.0,
        retries: int = 5,
        backoff_s: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises InputError for what is no address, or where httpx is not installed."""
        try:
            import httpx  # an extra: only endpoints need it
        except ImportError as error:
            raise InputError("endpoints need the package httpx: install it, or draftproof with its extras") from error
        host = _host(url)
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            raise InputError("the key holds characters that no key has")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.timeout_s, self._retries, self._backoff_s, self._sleep = timeout_s, retries, backoff_s, sleep
        self._errors = httpx
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # a server on this machine is spoken to without a proxy
        self._client = httpx.Client(timeout=timeout_s, headers=headers, trust_env=host not in _LOCAL)

    def get(self, path: str) -> Any:
        """The JSON value of the answer, as of `post`."""
        return _value(self.url, self._respond("GET", path, None))

    def text(self, path: str) -> str:
        """The answer as it is, as of `post`."""
        return str(self._respond("GET", path, None).text)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON value of the answer. Raises InputError for a refusal, SubjectFailed for all else."""
        return _value(self.url, self._respond("POST", path, body))

    def _respond(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        """An answer of status 200."""
        wait, reason = self._backoff_s, ""
        for left in range(self._retries, -1, -1):
            try:
                response = self._client.request(method, f"{self.url}{path}", json=body)
            except self._errors.ConnectError as error:  # nothing was sent: it may be starting again
                reason = f"can't be reached: {error}"
            except self._errors.TimeoutException as error:
                raise SubjectFailed(f"{self.url} stalled: no answer in {self.timeout_s:g} s") from error
            except self._errors.HTTPError as error:
                raise SubjectFailed(f"{self.url} broke off: {error or type(error).__name__}") from error
            else:
                if response.status_code not in _NOT_NOW:
                    return self._checked(response)
                reason, wait = f"says {_said(response)}", max(wait, _retry_after(response))
            if left:
                self._sleep(min(wait, _LONGEST_WAIT_S))
                wait *= 2
        raise SubjectFailed(f"{self.url} {reason} (asked {self._retries + 1} times)")

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.status_code in _REFUSED:
            raise InputError(f"{self.url} refuses: {_said(response)}")
        if response.status_code != 200:
            raise SubjectFailed(f"{self.url} says {_said(response)}")
        return response

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()


def _value(url: str, response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise SubjectFailed(f"{url} answers with what is no JSON: {response.text[:60]!r}") from error


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or not url.isascii():
        raise InputError(f"{url!r} is no address of a server: write http://HOST:PORT")
    return host


def _said(response: httpx.Response) -> str:
    """Status and message in one line."""
    try:
        value = response.json()
    except ValueError:
        value = None
    error = value.get("error", value) if isinstance(value, dict) else None
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    text = " ".join(str(message or response.text).split())
    return f"{response.status_code}: {text[:200]}" if text else str(response.status_code)


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:  # a date
        return 0.0
