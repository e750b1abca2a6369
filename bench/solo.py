"""Our own engine in a process of its own, asked for one prompt at a time.

Does not know: which configurations are compared, statistics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench import provenance
from bench.groups import Config
from bench.turns import command
from bench.worker import Worker

_SETTLE_S = 0.15  # until the threads of the engine that was asked are asleep


def solo_worker(bench: str, name: str, options: Mapping[str, Any]) -> Worker:
    """options: `LLM`'s own. bench: whose log it writes."""
    log = provenance.ROOT / ".cache" / "bench" / bench / f"{name}.log"
    return Worker(name, command(Config(name, "ours", options), {}), log)


def ask(
    worker: Worker, prompt: str, num_tokens: int, sampling: Mapping[str, Any], counted: tuple[str, ...]
) -> dict[str, Any]:
    """Seconds, counts of tokens, what of the meter is `counted`, and digests of the text ("ids")."""
    answer = worker.ask("run", prompts=[prompt], num_tokens=num_tokens, sampling=sampling)
    time.sleep(_SETTLE_S)
    meter = {name: answer["meter"][name] for name in counted}
    return {"seconds": answer["seconds"], "counts": answer["counts"], **meter, "ids": answer["digests"]}
