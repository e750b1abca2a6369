"""The engine thread: the only owner of the engine. Commands come in by one queue, updates go out to the event loop.

    submit, cancel, end, stop  --queue-->  [take commands, step, take commands, ...]  --call_soon_threadsafe-->  sinks

All updates of a step are handed over in one call. The thread sleeps while there is no work. What is cancelled, by its
client or by a stop string, is gone before the next step.

A step that raises is tried once more (the engine keeps every sequence's tokens); if it raises again, the requests that
can have been in it end with an error, and the others go on. An engine that keeps failing is declared broken: everything
ends with an error and nothing is taken any more.

Does not know: HTTP, JSON, event loops beyond handing over, why a request has its route.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.drafters.shadow import ShadowCounts
from draftproof.engine.outputs import StreamChunk
from draftproof.errors import EngineError
from draftproof.serve.build import Served
from draftproof.serve.jobs import Job, Update
from draftproof.serve.journal import Journal
from draftproof.serve.tally import Tally
from draftproof.types import Event

_PATIENCE = 3  # failing steps in a row, each after its requests were ended, before the engine is called broken


@dataclass(slots=True, eq=False)
class _Live:
    job: Job
    seq: int
    last: float | None = None  # when its latest tokens came
    drafter_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Submit:
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class _Cancel:
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class _End:
    """Every text ends where it is."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """The thread ends."""


_Command = _Submit | _Cancel | _End | _Stop


class EngineHost:
    """Owns the engine from `start` to `stop`. The public methods may be called from any thread."""

    def __init__(self, served: Served, tally: Tally, journal: Journal) -> None:
        self._served, self._tally, self._journal = served, tally, journal
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._lives: dict[int, _Live] = {}  # by request id, in order of arrival
        self._unstarted: deque[_Live] = deque()  # no step has had them yet; the scheduler lets them in in this order
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._failures = 0
        self.broken: str | None = None  # why, once it is for good
        served.routes.on_fault(self._drafter_failed)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the thread; updates go to this loop."""
        self._loop = loop
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues texts whose requests the engine's `check` has passed."""
        self._commands.put(_Submit(jobs))

    def cancel(self, ids: Sequence[int]) -> None:
        """Ends these requests before the next step; no update follows. One that has ended is no error."""
        self._commands.put(_Cancel(ids))

    def end(self) -> None:
        """Every text ends where it is, with the finish reason "cancelled"."""
        self._commands.put(_End())

    def stop(self) -> None:
        """Ends the thread after its step, and waits for it."""
        self._commands.put(_Stop())
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        engine = self._served.engine
        try:
            while not self._stopping:
                updates = self._take(wait=not engine.has_work)
                if engine.has_work and not self._stopping:
                    updates += self._step()
                self._post(updates)
        except BaseException as error:
            self._break(error)  # logs it; the thread is at its end either way

    def _take(self, wait: bool) -> list[Update]:
        """Carries out what was asked for; sleeps for the first command where there is nothing else to do."""
        updates: list[Update] = []
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return updates
            wait = False
            match command:
                case _Submit(jobs):
                    updates += [update for job in jobs for update in self._submit(job)]
                case _Cancel(ids):
                    for number in ids:
                        self._cancel(number)
                case _End():
                    for live in self._lives.values():
                        self._served.engine.cancel(live.seq)  # its event comes with the next step
                case _Stop():
                    self._stopping = True

    def _submit(self, job: Job) -> list[Update]:
        if self.broken is not None:
            return [self._ended(_Live(job, -1), self.broken)]
        try:
            seq = self._served.engine.submit(job.request)
        except Exception as error:  # checked before, so a fault of ours
            self._journal.error("submit failed", error)
            return [self._ended(_Live(job, -1), f"the request can't run: {error}")]
        self._served.routes.assign(seq, job.route)
        live = self._lives[job.request.id] = _Live(job, seq)
        self._unstarted.append(live)
        return []

    def _cancel(self, number: int) -> None:
        live = self._lives.get(number)
        if live is not None:
            self._served.engine.cancel(live.seq)
            self._close(live, "cancelled")

    def _step(self) -> list[Update]:
        engine = self._served.engine
        before, begin = engine.meter.steps, time.perf_counter()
        try:
            events = engine.step()
        except Exception as error:  # of a device, a kernel, a bug: the server outlives it where it can
            return self._failed(error)
        if engine.meter.steps > before:  # it may have had nothing but the events of cancelled texts
            self._failures = 0
        self._note_started(begin)
        now = time.perf_counter()
        lives = [(self._lives.get(event.request_id), event) for event in events]
        return [self._told(live, event, now) for live, event in lives if live is not None]

    def _note_started(self, begin: float) -> None:
        """The step that began then was the first of some texts."""
        waiting = self._unstarted
        while waiting and (waiting[0].job.request.id not in self._lives or self._has_run(waiting[0].seq)):
            live = waiting.popleft()
            if live.job.request.id in self._lives:  # else cancelled in the line
                live.job.started = begin

    def _has_run(self, seq: int) -> bool:
        try:
            return self._served.scheduler.sequence(seq).running
        except KeyError:  # it has ended
            return True

    def _told(self, live: _Live, event: Event, now: float) -> Update:
        try:
            return self._update(live, event, now)
        except Exception as error:  # a fault in making its text stays with the text
            self._journal.error("a text could not be made", error)
            self._served.engine.cancel(live.seq)
            return self._ended(live, f"the text could not be made: {_line(error)}")

    def _update(self, live: _Live, event: Event, now: float) -> Update:
        job = live.job
        chunk = job.collector.take(event)
        kept = len(chunk.token_ids)
        if kept:
            since = job.arrival if live.last is None else live.last
            self._tally.tokens(job.mode, job.request.bucket, kept, now - since, first=live.last is None)
            live.last = now
        if event.decided:
            tested = min(event.num_tested, kept)
            self._tally.round(job.request.bucket, event.num_drafted, tested, chunk.num_accepted)
        update = Update(job, chunk, event.logprobs[:kept], _source(event), drafter_failed=live.drafter_failed)
        if job.collector.done:
            if event.finish is None:  # a stop string: the engine would go on
                self._served.engine.cancel(live.seq)
            update.shadow = self._close(live, str(job.collector.finish))
        return update

    def _close(self, live: _Live, reason: str) -> ShadowCounts | None:
        """The text has ended; what its shadow drafts came to, where it was in shadow."""
        job = live.job
        self._lives.pop(job.request.id, None)
        counts = self._served.routes.close(live.seq)
        self._tally.finished(job.mode, reason)
        if not job.route.shadow:
            return None
        self._tally.shadow(job.request.bucket, counts)
        return counts

    # -- faults --------------------------------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> list[Update]:
        self._failures += 1
        self._tally.step_failures += 1
        self._journal.error("a step failed", error, failures=self._failures)
        if self._failures == 1:
            return []
        gone = list(self._lives.values())[: self._served.max_sequences]  # running ones are the oldest
        if self._failures > _PATIENCE:
            self.broken = f"the engine keeps failing: {_line(error)}"
            gone = list(self._lives.values())
        updates = [self._ended(live, f"the engine failed: {_line(error)}") for live in gone]
        for live in gone:
            try:
                self._served.engine.cancel(live.seq)
            except Exception as second:
                self.broken = f"the engine can't be mended: {_line(second)}"
                self._journal.error("a failed request can't be taken back", second)
        return updates

    def _ended(self, live: _Live, message: str) -> Update:
        """The last update of a text that no step will end."""
        self._close(live, "error")
        return Update(live.job, StreamChunk("", (), 0), drafter_failed=live.drafter_failed, error=message)

    def _drafter_failed(self, label: str, seqs: Sequence[int], error: Exception) -> None:
        self._tally.drafter_failures[label] = self._tally.drafter_failures.get(label, 0) + 1
        self._journal.error("a drafter failed; its texts go on without drafts", error, drafter=label, texts=len(seqs))
        lost = set(seqs)
        for live in self._lives.values():
            live.drafter_failed = live.drafter_failed or live.seq in lost

    def _break(self, error: BaseException) -> None:
        """The thread itself is at its end: nobody must wait for ever."""
        self.broken = self.broken or f"the engine thread ended: {_line(error)}"
        self._journal.error("the engine thread ended", error, trace=traceback.format_exc())
        updates = [self._ended(live, self.broken) for live in list(self._lives.values())]
        while not self._commands.empty():
            command = self._commands.get()
            jobs = command.jobs if isinstance(command, _Submit) else ()
            updates += [self._ended(_Live(job, -1), self.broken) for job in jobs]
        self._post(updates)

    def _post(self, updates: Sequence[Update]) -> None:
        if not updates:
            return
        loop = self._loop
        if loop is None:
            raise EngineError("the engine thread has no event loop to report to")
        try:
            loop.call_soon_threadsafe(_deliver, updates)
        except RuntimeError:  # the loop is closed: nobody listens any more
            self._stopping = True


def _deliver(updates: Sequence[Update]) -> None:
    for update in updates:
        update.job.sink(update)


def _source(event: Event) -> str:
    if not event.num_drafted:
        return "plain"
    return "correction" if event.num_tested > event.num_accepted else "bonus"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
