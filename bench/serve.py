"""The child's side of a worker: one JSON line in, one JSON line out.

A worker holds one engine in one configuration, and is idle (blocked on a read) unless it is asked. What libraries
print goes to stderr, so that the lines stay clean.

    -> {"op": "run", "prompts": [...], "num_tokens": 128}
    <- {"seconds": 1.31, "counts": [128], "digests": ["5e1c..."]}     or {"error": "..."}

Standard library only: this runs in the peers' environments. Does not know: engines, prompts, statistics.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Handler = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Result:
    """What an engine made of some prompts: number of tokens, and the text (or token ids) of each."""

    counts: Sequence[int]
    texts: Sequence[str | Sequence[int]]
    extra: Mapping[str, Any] = field(default_factory=dict)


def digest(text: str | Sequence[int]) -> str:
    """A short hash of a text or of token ids: equal texts, equal hash."""
    flat = text if isinstance(text, str) else ",".join(str(int(token)) for token in text)
    return hashlib.sha256(flat.encode()).hexdigest()[:16]


def timed(run: Callable[..., Result]) -> Handler:
    """A handler that measures `run` from outside and hashes the texts after the clock has stopped."""

    def handler(**request: Any) -> dict[str, Any]:
        begin = time.perf_counter()
        result = run(**request)
        seconds = time.perf_counter() - begin
        digests = [digest(text) for text in result.texts]
        return {"seconds": seconds, "counts": list(result.counts), "digests": digests, **result.extra}

    return handler


def version(package: str) -> dict[str, str]:
    """{package: its installed version}."""
    return {package: importlib.metadata.version(package)}


def serve(start: Callable[[], tuple[Mapping[str, Any], Mapping[str, Handler]]]) -> int:
    """Starts the engine, says hello, answers until stdin closes. `start` gives (hello, handlers by op)."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        hello, handlers = start()
    except Exception as error:  # whatever a peer raises, the runner is to hear of it and go on
        say({"error": f"{type(error).__name__}: {error}"})
        return 1
    say({"ready": True, **hello})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(handlers[request.pop("op")](**request))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})
    return 0
