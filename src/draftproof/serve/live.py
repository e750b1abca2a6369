"""One request on its way: its texts in the engine, their updates in order, and its end, whichever comes first.

    async for update in live: ...      until every text has ended; raises ApiError on a time-out or a failure

Invariant: every text that entered the line leaves it once, and none runs on in the engine after `close`.

Does not know: HTTP, JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from draftproof.drafters.shadow import ShadowCounts
from draftproof.engine.outputs import Output
from draftproof.serve.errors import ApiError
from draftproof.serve.host import EngineHost
from draftproof.serve.jobs import Job, Update
from draftproof.serve.line import Line


class Live:
    """A request from its submission to its end; of one event loop."""

    def __init__(self, host: EngineHost, line: Line, timeout: float) -> None:
        self.arrival = time.perf_counter()
        self.outputs: dict[int, Output] = {}  # by index, as texts end
        self.shadow: dict[int, ShadowCounts] = {}
        self.drafter_failed = False
        self.num_tokens = 0  # that have come, also of texts that did not end
        self.first: float | None = None  # when the first of them came
        self._jobs: Sequence[Job] = ()
        self._host, self._line = host, line
        self._deadline = asyncio.get_running_loop().time() + timeout
        self._timeout = timeout
        self._updates: asyncio.Queue[Update] = asyncio.Queue()
        self._open: dict[int, int] = {}  # index -> request id of texts that have not ended

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hands the texts to the engine; they have entered the line before. Their sink is `sink`."""
        self._jobs = jobs
        self._open = {job.index: job.request.id for job in jobs}
        self._host.submit(jobs)

    def sink(self, update: Update) -> None:
        """One update from the engine."""
        index = update.job.index
        if index not in self._open:
            return
        self.drafter_failed = self.drafter_failed or update.drafter_failed
        self.num_tokens += len(update.chunk.token_ids)
        if self.first is None and update.chunk.token_ids:
            self.first = time.perf_counter()
        if update.shadow is not None:
            self.shadow[index] = update.shadow
        if update.chunk.output is not None:
            self.outputs[index] = update.chunk.output
        if update.chunk.output is not None or update.error is not None:
            self._release(index)
        self._updates.put_nowait(update)

    async def updates(self) -> AsyncIterator[Update]:
        """Until the last text has ended. Raises ApiError: 504 when the time is over, 500 when the engine failed."""
        while self._open or not self._updates.empty():
            try:
                async with asyncio.timeout_at(self._deadline):
                    update = await self._updates.get()
            except TimeoutError:
                message = f"the request took longer than the {self._timeout:g} seconds that this server gives it"
                raise ApiError(504, message, code="request_timeout") from None
            output = update.chunk.output
            error = update.error if output is None else output.error
            if error is not None:
                raise ApiError(500, error, code="engine_error")
            yield update

    @property
    def started(self) -> float | None:
        """When the first step with one of its texts began; None before."""
        return min((job.started for job in self._jobs if job.started is not None), default=None)

    @property
    def done(self) -> bool:
        """True when every text has ended."""
        return not self._open

    def close(self) -> None:
        """Ends what still runs; twice is no error."""
        if self._open:
            self._host.cancel(list(self._open.values()))
        for index in list(self._open):
            self._release(index)

    def _release(self, index: int) -> None:
        del self._open[index]
        self._line.leave(1)
