"""The server without HTTP: what is loaded, what runs, how requests are let in, how it all begins and ends.

Invariant: what is let in has passed every check of the engine; it is counted in the line until it has ended.

Does not know: routes, headers, connections.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from draftproof import __version__
from draftproof.engine import prompts as prompting
from draftproof.engine.collect import Collector
from draftproof.errors import DraftproofError, InvalidParams, UnknownDrafter
from draftproof.rollout.policy import check_name
from draftproof.serve import spans
from draftproof.serve.asking import Wanted
from draftproof.serve.build import Served
from draftproof.serve.errors import ApiError, busy, naming, of_library
from draftproof.serve.history import EVERY, History
from draftproof.serve.host import EngineHost
from draftproof.serve.jobs import Job
from draftproof.serve.journal import Journal
from draftproof.serve.line import Line
from draftproof.serve.live import Live
from draftproof.serve.metrics import Exposition
from draftproof.serve.replies import Reply
from draftproof.serve.report import Terms
from draftproof.serve.running import Running, Settled
from draftproof.serve.settings import ServeSettings
from draftproof.serve.tally import Tally
from draftproof.serve.tokens import TokenTexts
from draftproof.serve.treatment import Applied, Chooser, RolloutChooser
from draftproof.types import Ids, Request, SamplingParams

if TYPE_CHECKING:
    from draftproof.serve.tracing import Tracing

_SHUTTING_DOWN = "the server is shutting down"
_LAST_STEP = 30.0  # seconds that a step in flight is waited for


@dataclass(frozen=True, slots=True)
class Asker:
    """Who sends a request. key: a rollout's sticky one. trace: the headers of the caller's span."""

    bucket: str
    key: str
    trace: Mapping[str, str] = field(default_factory=dict)


class Service:
    """One model behind a line."""

    tracing: Tracing | None = None  # set before the start, where spans are asked for

    def __init__(
        self, settings: ServeSettings, served: Served, chooser: Chooser, tally: Tally, journal: Journal
    ) -> None:
        self.settings, self.served, self.chooser = settings, served, chooser
        self.tally, self.journal = tally, journal
        self.model = settings.name or str(served.info["model"])
        self.vocab_size = served.engine.target.vocab_size
        self.line = Line(served.max_sequences + settings.max_waiting)
        self.host = EngineHost(served, tally, journal)
        self.metrics = Exposition(tally, self.model, self.gauges, chooser.stages)
        self.started = time.time()
        self.history = History(tally.sums(), self.started)
        self._noting: asyncio.Task[None] | None = None
        self._tokens = TokenTexts(served.tokenizer)
        self._ids = itertools.count()
        known = (__version__, *(str(served.info[name]) for name in ("model", "weights", "backend", "numerics")))
        self._fingerprint = "dp_" + hashlib.sha256("|".join(known).encode()).hexdigest()[:12]

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Before the first request."""
        self.host.start(asyncio.get_running_loop())
        await self.chooser.start()
        self._noting = asyncio.create_task(self._note())

    async def stop(self) -> None:
        """After the last one."""
        self.line.close(_SHUTTING_DOWN)
        if self._noting is not None:
            self._noting.cancel()
        await asyncio.to_thread(self.host.stop)
        await self.chooser.stop()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.history.note(self.tally.sums(), self.gauges(), time.time())

    async def drain(self) -> None:
        """Takes nothing more; lets what runs finish for the grace period, then ends it where it is."""
        self.line.close(_SHUTTING_DOWN)
        self.journal.write("shutting down", texts=self.line.taken, grace=self.settings.grace)
        await self._emptied(self.settings.grace)
        if self.line.taken:
            self.journal.write("grace is over", texts=self.line.taken)
            self.host.end()
            await self._emptied(_LAST_STEP)

    async def _emptied(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.line.taken and self.trouble is None and loop.time() < end:
            await asyncio.sleep(0.05)

    @property
    def trouble(self) -> str | None:
        """Why the engine can't serve any more, if so."""
        return self.host.broken or (None if self.host.alive else "the engine thread does not run")

    @property
    def unready(self) -> str | None:
        """Why no request is taken, if so."""
        return self.trouble or self.line.closed

    def gauges(self) -> dict[str, float]:
        """The state of now."""
        running, ledger = self.served.scheduler.num_running, self.served.ledger
        return {
            "texts_running": running,
            "texts_waiting": max(0, self.line.taken - running),
            "kv_pages_free": ledger.free_pages,
            "kv_pages": ledger.num_pages,
            "ready": float(self.unready is None),
        }

    # -- one request ---------------------------------------------------------------------------------------------------

    async def begin(self, count: int, want: Callable[[], Wanted], asker: Asker) -> Running:
        """Lets a request of `count` texts in and hands them to the engine.

        want: makes the request; it tokenises, so it runs in another thread. Raises ApiError or InputError.
        """
        arrival = time.perf_counter()
        try:
            return await self._begin(count, want, asker)
        except (ApiError, DraftproofError) as error:
            if self.tracing is not None:
                refusal = error if isinstance(error, ApiError) else of_library(error)
                self.tracing.request(asker.trace, time.perf_counter() - arrival, spans.of_refusal(refusal))
            raise

    async def _begin(self, count: int, want: Callable[[], Wanted], asker: Asker) -> Running:
        if (trouble := self.trouble) is not None:
            raise ApiError(503, trouble, code="engine_broken")
        self.line.enter(count)
        live = Live(self.host, self.line, self.settings.request_timeout)
        try:
            wanted = await asyncio.to_thread(want)
            with naming("messages" if wanted.is_chat else "prompt"):
                requests = [self._request(*text) for text in wanted.texts()]
            applied = self._applied(wanted, asker)
            if self.line.closed is not None:
                raise busy(self.line.closed)
        except BaseException:
            self.line.leave(count)
            raise
        settled = self._settled(applied, wanted, asker.trace)
        running = Running(live, self._reply(wanted), self._terms(wanted, applied), count, settled)
        live.submit([self._job(index, request, applied, live) for index, request in enumerate(requests)])
        return running

    def _applied(self, wanted: Wanted, asker: Asker) -> Applied:
        try:
            with naming("bucket"):
                check_name(asker.bucket)
            return self.chooser.choose(wanted.wish, asker.bucket, asker.key)
        except UnknownDrafter as error:
            raise of_library(error, "speculation.drafter") from None
        except InvalidParams as error:
            raise of_library(error, "speculation.enabled") from None

    def _reply(self, wanted: Wanted) -> Reply:
        return Reply(wanted, self._tokens, self.model, self._fingerprint)

    def _request(self, prompt: Ids, params: SamplingParams) -> Request:
        number = next(self._ids)
        ends = prompting.stop_ids(params, self.served.tokenizer)
        inside = frozenset(end for end in ends if end < self.vocab_size)
        request = Request(number, prompt, params, inside, arrival=number)
        self.served.engine.check(request)
        return request

    def _job(self, index: int, request: Request, applied: Applied, live: Live) -> Job:
        """A plain text asks for no drafts; one in shadow needs its look-ahead."""
        params = request.params
        if applied.mode == "off":
            params = replace(params, max_draft_tokens=0)
        own = replace(request, params=params, bucket=applied.bucket)
        label = applied.route.label or "none"
        collector = Collector(own, self.served.tokenizer, label, self.served.info["load_s"])
        return Job(index, own, collector, applied.route, applied.mode, live.sink, live.arrival)

    def _terms(self, wanted: Wanted, applied: Applied) -> Terms:
        label, cap = applied.route.label, wanted.params.max_draft_tokens
        longest = self.served.routes.most(label) if label is not None and applied.mode == "on" else 0
        longest = longest if cap is None else min(longest, cap)
        return Terms(applied, wanted.params.resolved_rule, self.served.engine.target.numerics, wanted.seed, longest)

    def _settled(self, applied: Applied, wanted: Wanted, trace: Mapping[str, str]) -> Callable[[Settled], None]:
        def settled(end: Settled) -> None:
            if end.became is not None:
                self.chooser.became(applied, end.became)
            if end.status == 200:
                self.tally.ended(end.seconds, end.note["prompt_tokens"])
            self.journal.request(status=end.status, seconds=round(end.seconds, 4), **end.note)
            if self.tracing is not None:
                self.tracing.request(trace, end.seconds, spans.of_request(wanted, self.model, end))

        return settled

    def stats(self) -> dict[str, Any]:
        """The state and the counts, JSON-ready, for the page."""
        return {
            "model": self.model,
            "info": {name: value for name, value in self.served.info.items() if not isinstance(value, float)},
            "state": self.gauges(),
            "started": self.started,
            "drafters": list(self.served.routes.labels),
            "chat": self.served.tokenizer.has_chat_template,
            "rollout": isinstance(self.chooser, RolloutChooser),
            "trouble": self.unready,
            **self.tally.as_dict(),
        }
