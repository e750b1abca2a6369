"""The child's side of a worker: one JSON line in, one JSON line out. Run as a file: PYTHON child.py PEER OPTIONS

    -> {"op": "sample", "prompt": [1, 2], "asked": {...}}
    <- {"value": {...}}     or {"refused": "..."} (what can't be honoured)     or {"error": "..."}

PEER is the path of a `peer_*.py`, OPTIONS a JSON object for its class. What libraries print goes to stderr, so that the
lines stay clean. It blocks on a read unless it is asked, and ends when its input is closed.

Standard library only: this runs in the peers' environments, without draftproof. Does not know: engines, tests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

OPS = ("facts", "sample", "rows", "drift", "scored")


def serve(start: Callable[[], Any]) -> int:
    """Opens the peer, says hello, answers until stdin is closed."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        peer = start()
    except Exception as error:  # whatever a library raises, the parent is to hear of it
        say({"error": _line(error), "missing": isinstance(error, ImportError)})
        return 1
    say({"value": {"supports": sorted(peer.supports), "vocab_size": peer.vocab_size, "facts": peer.facts()}})
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        try:
            if op not in OPS:
                raise NotImplementedError(f"no such question: {op}")
            say({"value": getattr(peer, op)(**request)})
        except NotImplementedError as error:
            say({"refused": str(error)})
        except Exception as error:
            say({"error": _line(error)})
    return 0


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def load(path: str) -> Any:
    """The class `Peer` of a file."""
    spec = importlib.util.spec_from_file_location("draftproof_peer", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module.Peer


if __name__ == "__main__":
    sys.exit(serve(lambda: load(sys.argv[1])(**json.loads(sys.argv[2]))))
