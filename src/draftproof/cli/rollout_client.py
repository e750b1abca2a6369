"""JSON over HTTP to a draftproof server, by the standard library alone.

Invariant: whatever goes wrong is an InputError of one line. A redirection is not followed, so that the key never goes
to another host; a server on this machine is spoken to without a proxy.

Does not know: what is asked.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from draftproof.errors import InputError

_PATIENCE = 15.0  # seconds
_MOST = 64 << 20  # bytes of an answer
_LOCAL = ("localhost", "127.0.0.1", "::1")


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the redirection becomes an error."""

    def redirect_request(self, *_: Any) -> None:
        """No other request."""


class Server:
    """A server's address, and the key it wants."""

    def __init__(self, url: str, key: str | None) -> None:
        """Raises InputError for what is no address, or no key."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or not url.isascii():
            raise InputError(f"{url!r} is no address of a server: write http://HOST:PORT")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            raise InputError("the key holds characters that no key has")
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        proxies = [urllib.request.ProxyHandler({})] if host in _LOCAL else []
        self._opener = urllib.request.build_opener(_Stay, *proxies)

    def get(self, path: str, query: Mapping[str, Any]) -> Any:
        """The JSON value of the answer. Raises InputError."""
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        return self._ask(urllib.request.Request(f"{self._url}{path}{asked}", headers=self._headers))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The same, with a JSON body."""
        headers = {**self._headers, "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return self._ask(urllib.request.Request(f"{self._url}{path}", data=data, headers=headers, method="POST"))

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                text = answer.read(_MOST)
        except urllib.error.HTTPError as error:
            with error:
                raise InputError(f"{self._url} says {error.code}: {_said(error)}") from None
        except urllib.error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise InputError(f"can't reach {self._url}: {reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise InputError(f"can't reach {self._url}: {error or type(error).__name__}") from None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{self._url} gives no JSON: is it a draftproof server?") from None


def _said(error: urllib.error.HTTPError) -> str:
    """The message of an error in OpenAI's form, or what HTTP calls it."""
    try:
        message = json.loads(error.read(_MOST))["error"]["message"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return str(error.reason)
    return str(message)
