"""Settings -> one engine with all drafters, for one thread to own.

Does not know: HTTP, requests, threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftproof.engine.build import Built, build_each
from draftproof.engine.step import Engine
from draftproof.errors import EngineError
from draftproof.kv.ledger import PageLedger
from draftproof.noise import PhiloxNoise
from draftproof.sched.scheduler import BatchScheduler
from draftproof.serve.routes import Routes
from draftproof.serve.settings import ServeSettings
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Served:
    """The engine, and what a server needs to know of it. info: as of `LLM.info`, drafter: the default one's label."""

    engine: Engine
    scheduler: BatchScheduler
    ledger: PageLedger
    routes: Routes
    tokenizer: Tokenizer
    info: dict[str, Any]
    max_sequences: int

    @property
    def default(self) -> str | None:
        """The label of the drafter that requests get which name none."""
        return self.routes.labels[0] if self.routes.labels else None


def build_served(settings: ServeSettings, report: Callable[[str], None]) -> Served:
    """Everything together. Raises InputError for what can't be built, NumericsError where a promise does not hold."""
    options = settings.engine_options()
    return serve_built(build_each(options, report), [spec.label for spec in settings.drafters])


def serve_built(built: list[Built], labels: list[str]) -> Served:
    """One engine over what `build_each` made. labels: of the drafters, one for each; empty for a plain server."""
    first = built[0]
    pairs = list(zip(labels, built[: len(labels)], strict=True))
    policies = {label: each.policy for label, each in pairs if each.policy is not None}
    if first.limits is None or len(policies) != len(labels):
        raise EngineError("an engine was built without its limits or its draft policy: please report this")
    routes = Routes({label: each.engine.drafter for label, each in pairs}, policies)
    scheduler = BatchScheduler(first.ledger, first.limits, routes)
    engine = Engine(first.engine.target, routes.drafter, scheduler, first.ledger, PhiloxNoise())
    info = {**first.info, "drafters": list(labels), "load_s": max(each.info["load_s"] for each in built)}
    return Served(engine, scheduler, first.ledger, routes, first.tokenizer, info, first.limits.max_sequences)
