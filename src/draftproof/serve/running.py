"""One request that was let in: its answer whole or as events, and the word of its end to all who count.

Invariant: it is settled once: answered, failed by the server's fault, or left by its client; then nothing of it runs.

Does not know: routes, headers, connections.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from draftproof.engine.outputs import Output
from draftproof.serve import report, wire
from draftproof.serve.errors import ApiError
from draftproof.serve.jobs import Update
from draftproof.serve.live import Live
from draftproof.serve.replies import Reply, finish_reason
from draftproof.serve.treatment import Became


@dataclass(frozen=True, slots=True)
class Settled:
    """How a request ended. became None: its client left, or the server's shutdown cut it short."""

    status: int
    seconds: float
    became: Became | None
    note: dict[str, Any]  # for the log
    queue_s: float | None  # from its arrival to the first step with one of its texts
    ttft_s: float | None  # from its arrival to its first token


class Running:
    """A request from its first step to its end."""

    def __init__(
        self, live: Live, reply: Reply, terms: report.Terms, num_texts: int, settled: Callable[[Settled], None]
    ) -> None:
        self.live, self.reply, self._terms = live, reply, terms
        self._num_texts, self._num_ended = num_texts, 0
        self._settled: Callable[[Settled], None] | None = settled

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece. Raises ApiError."""
        try:
            updates = [update async for update in self.live.updates()]
        except ApiError as error:
            self._settle(error.status)
            raise
        self._settle(200)
        return self.reply.whole(self._outputs(), updates, self._told())

    async def events(self, first: Update, updates: AsyncIterator[Update]) -> AsyncIterator[bytes]:
        """Server-sent events from the first update on; a failure is an event, too."""
        try:
            for event in self._event(first):
                yield event
            async for update in updates:
                for event in self._event(update):
                    yield event
            if self.reply.wanted.include_usage:
                yield wire.event(self.reply.last_chunk(self._outputs(), self._told()))
        except ApiError as error:
            self._settle(error.status)
            yield wire.event(error.body())
        yield wire.DONE

    def close(self) -> None:
        """Ends what still runs: its client left. No word of one that has ended."""
        self._settle(499)
        self.live.close()

    def failed(self, error: ApiError) -> None:
        """It ended before its first update."""
        self._settle(error.status)
        self.live.close()

    def _event(self, update: Update) -> list[bytes]:
        told = None
        if update.chunk.output is not None:
            self._num_ended += 1
            if self._num_ended == self._num_texts:
                told = self._told()
                self._settle(200)
        chunk = self.reply.chunk(update, told)
        return [] if chunk is None else [wire.event(chunk)]

    def _outputs(self) -> list[Output]:
        """Of all texts, by index; when all have ended."""
        return [self.live.outputs[index] for index in range(self._num_texts)]

    def _told(self) -> dict[str, Any]:
        return report.describe(self._terms, self._outputs(), self.live.shadow)

    def _settle(self, status: int) -> None:
        if self._settled is None:
            return
        settled, self._settled = self._settled, None
        outputs = list(self.live.outputs.values())
        cut = any(output.finish_reason == "cancelled" for output in outputs)
        became = None
        if status != 499 and not cut:
            error = status != 200 or self.live.drafter_failed
            became = report.became(self._terms.applied, outputs, self.live.shadow, error=error)
        begin, started, first = self.live.arrival, self.live.started, self.live.first
        queue_s = None if started is None else started - begin
        ttft_s = None if first is None else first - begin
        note = self._note(outputs, queue_s, ttft_s)
        settled(Settled(status, time.perf_counter() - begin, became, note, queue_s, ttft_s))

    def _note(self, outputs: list[Output], queue_s: float | None, ttft_s: float | None) -> dict[str, Any]:
        applied = self._terms.applied
        return {
            "id": self.reply.id,
            "bucket": applied.bucket,
            "mode": applied.mode,
            "stage": applied.stage,
            "drafter": applied.route.label,
            "prompt_tokens": sum(len(ids) for ids in self.reply.wanted.prompts),
            "completion_tokens": self.live.num_tokens,
            "queue_ms": None if queue_s is None else round(1000 * queue_s, 2),
            "ttft_ms": None if ttft_s is None else round(1000 * ttft_s, 2),
            "drafted": sum(output.speculation.drafted for output in outputs),
            "accepted": sum(output.speculation.accepted for output in outputs),
            "tested": sum(output.speculation.tested for output in outputs),
            "finish": sorted({finish_reason(output) for output in outputs}),
        }
