"""Where a target's weights lie: in how many compiled copies, and on pages of which size.

Does not know: engines, drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from draftproof.models import huge_pages

_LANE_BYTES = 1 << 29  # of weights in further compiled copies
_CACHE_SHARE = 0.75  # of the last cache, that weights may count on
_MOST_LANES = 3
_REACH = 8 << 20  # of weights: pages of 4 KiB that a processor keeps the translations of hold about so much


@runtime_checkable
class _Warm(Protocol):
    weight_bytes: int

    def warm_up(self) -> None: ...


def num_lanes(weight_bytes: int, cache_bytes: int) -> int:
    """Compiled copies: one more for each width of step that is kept ready, as far as its weights are small.

    Each copy holds its weights. Where those of one stay in the processor's last cache and those of several don't, a
    step of another copy takes longer than preparing another width (ADR 8).
    """
    in_memory = 1 + min(_MOST_LANES - 1, _LANE_BYTES // weight_bytes)
    in_cache = int(_CACHE_SHARE * cache_bytes) // weight_bytes
    return min(in_memory, in_cache) if in_cache else in_memory


def settle(models: Sequence[object], before: Sequence[huge_pages.Range], report: Callable[[str], None]) -> int:
    """Models that were just loaded lay out their weights, which then move to huge pages (ADR 12); the bytes moved.

    models: those that can `warm_up` (OpenVINO's) and are large enough to matter do. before: `huge_pages.ranges` of the
    moment before anything was loaded.
    """
    large = [model for model in models if isinstance(model, _Warm) and model.weight_bytes > _REACH]
    if not large:
        return 0
    report("moving the weights to huge pages")
    for model in large:
        model.warm_up()
    return huge_pages.collapse(before)
