"""The server's log: one JSON object a line on standard error, with a time and the name of what happened.

Invariant: a line never holds a prompt, a text, or a key. Lines of several threads do not mix.

Does not know: what is worth a line.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, TextIO


class Journal:
    """Writes lines; a stream that is gone is no reason to fail."""

    def __init__(self, stream: TextIO | None = None, *, requests: bool = True) -> None:
        """stream: standard error by default. requests: False leaves out one line for each request."""
        self._stream = stream
        self._lock = threading.Lock()
        self._requests = requests

    def write(self, event: str, **fields: Any) -> None:
        """One line."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **fields}, default=str)
        with self._lock:
            try:
                print(line, file=self._stream or sys.stderr, flush=True)
            except (OSError, ValueError):
                return

    def request(self, **fields: Any) -> None:
        """One line for a request that was answered or refused."""
        if self._requests:
            self.write("request", **fields)

    def error(self, event: str, error: BaseException, **fields: Any) -> None:
        """One line for a fault."""
        self.write(event, error=f"{type(error).__name__}: {error}", **fields)
