"""What goes into the engine thread and what comes out of it: a text to make, and what each step brought for it.

Does not know: the engine, HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from draftproof.drafters.shadow import ShadowCounts
from draftproof.engine.collect import Collector
from draftproof.engine.outputs import StreamChunk
from draftproof.serve.routes import Route
from draftproof.types import Request, TokenLogprobs


@dataclass(slots=True, eq=False)
class Update:
    """What one step brought for one text. With the last one chunk.output is set, or error: why there is none."""

    job: Job
    chunk: StreamChunk
    logprobs: tuple[TokenLogprobs, ...] = ()
    source: str = "plain"  # of the last token: "plain" (no drafts in the round), "correction" or "bonus"
    shadow: ShadowCounts | None = None  # with the last one of a text in shadow
    drafter_failed: bool = False
    error: str | None = None


@dataclass(slots=True, eq=False)
class Job:
    """One text to make, the index-th of its request. `sink` is called in the event loop's thread."""

    index: int
    request: Request
    collector: Collector
    route: Route
    mode: str
    sink: Callable[[Update], None]
    arrival: float = field(default_factory=time.perf_counter)
    started: float | None = None  # when the first step with it began; set by the engine thread
