"""Two certificates of the same plan: does what the old one says still hold, and what has changed around it?

Does not know: how a certificate is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.certify.certificate import Certificate, broke_off


def still_holds(before: Certificate, now: Certificate) -> dict[str, Any]:
    """JSON-ready: `holds` is True when the verdict is the same, None where this run broke off and so says nothing."""
    same = before["verdict"] == now["verdict"]
    return {
        "holds": None if broke_off(now) and not same and now["verdict"] != "fault" else same,
        "before": before["verdict"],
        "now": now["verdict"],
        "changed": [
            {"what": name, "before": old, "now": new}
            for part in ("subject", "reference", "versions")
            for name, old, new in _changes(before.get(part, {}), now.get(part, {}), part)
        ],
    }


def _changes(before: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves that differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _changes(before.get(key), now.get(key), f"{name}.{key}")
    elif before != now:
        yield name, before, now
