"""Who speculates: what a request asks for and what the rollout gives, put together; and what became of it, told back.

- Without a policy: as asked; by default on, with the first drafter.
- With one: the rollout decides by bucket and key. `enabled: false` always holds. `enabled: true` is a wish that is
  granted from the bucket's canary on, not in off or shadow: a kill switch that clients can overrule is none. A request
  that chose for itself (also its drafter) is no evidence.

Invariant: what is given here is what the answer says was applied. The rollout is only touched by the event loop's
thread; its store by one thread of its own, in order, so that the log and the stages are always of one moment.

Does not know: HTTP, texts.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.errors import InvalidParams, UnknownDrafter
from draftproof.rollout import Decision, Rollout, RolloutPolicy, RolloutStore, Sample
from draftproof.rollout.policy import check_name
from draftproof.serve.journal import Journal
from draftproof.serve.routes import PLAIN, Route
from draftproof.serve.schema import SpeculationAsked
from draftproof.serve.settings import ServeSettings
from draftproof.serve.tally import Tally

_OTHER = "other"
_MOST_BUCKETS = 64
_SAVE_EVERY = 5.0  # seconds between saves of what was seen; decisions are saved at once
_EMITTING = ("canary", "wide", "full")


@dataclass(frozen=True, slots=True)
class Applied:
    """What a request got. stage None: there is no rollout. counts: it is evidence for the rollout."""

    mode: Literal["off", "shadow", "on"]
    bucket: str
    route: Route
    stage: str | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Became:
    """What became of an applied request."""

    itl_s: float | None
    ttft_s: float | None
    tokens: int
    drafted: int
    tested: int
    accepted: int
    error: bool


class Chooser:
    """Decides without a rollout: as asked. The base of the one with it."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._buckets: set[str] = {"default"}

    def choose(self, wish: SpeculationAsked, bucket: str, key: str) -> Applied:
        """Raises InputError for a drafter that is not loaded, and for a name that can't be a bucket's."""
        check_name(bucket)
        label = self._label(wish)
        bucket = self._bounded(bucket)
        if label is None or not self._wants(wish):
            return Applied("off", bucket, PLAIN)
        return Applied("on", bucket, Route(label))

    def became(self, applied: Applied, became: Became) -> None:
        """A request that was answered, or that failed by the server's fault."""

    async def start(self) -> None:
        """Before the first request."""

    async def stop(self) -> None:
        """After the last one."""

    def stages(self) -> dict[str, tuple[str, float]]:
        """bucket -> (stage, share that speculates); nothing without a rollout."""
        return {}

    def _bounded(self, bucket: str) -> str:
        if bucket not in self._buckets and len(self._buckets) >= _MOST_BUCKETS:
            return _OTHER
        self._buckets.add(bucket)
        return bucket

    def _label(self, wish: SpeculationAsked) -> str | None:
        """The drafter that the request would have; None where it can have none."""
        label = wish.drafter if wish.drafter is not None else next(iter(self._labels), "none")
        if label != "none" and label not in self._labels:
            raise UnknownDrafter(f"no drafter {label!r} is loaded; there are: {', '.join(self._labels) or 'none'}")
        if label == "none" and wish.enabled:
            what = "speculation.drafter is 'none'" if wish.drafter else "this server has no drafter"
            raise InvalidParams(f"speculation can't be enabled: {what}")
        return None if label == "none" else label

    @staticmethod
    def _wants(wish: SpeculationAsked) -> bool:
        return wish.enabled is not False and wish.max_draft_tokens != 0


class RolloutChooser(Chooser):
    """Decides by a rollout, and tells it what became of its requests."""

    def __init__(
        self, labels: Sequence[str], rollout: Rollout, store: RolloutStore | None, tally: Tally, journal: Journal
    ) -> None:
        super().__init__(labels)
        self.rollout = rollout
        self._store, self._tally, self._journal = store, tally, journal
        self._disk = ThreadPoolExecutor(1, "rollout-store")
        self._ticking: asyncio.Task[None] | None = None
        self._recent: list[dict[str, Any]] = []  # without a store

    def choose(self, wish: SpeculationAsked, bucket: str, key: str) -> Applied:
        """As of the base."""
        label = self._label(wish)
        given = self.rollout.assign(bucket, key)
        if label is None or not self._wants(wish):
            return Applied("off", given.bucket, PLAIN, given.stage)
        if wish.enabled and given.stage in _EMITTING:
            return Applied("on", given.bucket, Route(label), given.stage)
        counts = wish.enabled is None and wish.drafter is None and wish.max_draft_tokens is None
        route = PLAIN if given.mode == "off" else Route(label, given.mode == "shadow")
        return Applied(given.mode, given.bucket, route, given.stage, counts)

    def became(self, applied: Applied, became: Became) -> None:
        """One more sample, where the request is evidence."""
        if not applied.counts:
            return
        sample = Sample(
            applied.bucket,
            applied.mode,
            time.time(),
            became.itl_s,
            became.ttft_s,
            became.tokens,
            became.drafted,
            became.tested,
            became.accepted,
            became.error,
        )
        try:
            decisions = self.rollout.record(sample)
        except Exception as error:  # a fault in the bookkeeping is no reason to lose an answer
            self._journal.error("a sample could not be recorded", error)
            return
        if decisions:
            self.note(decisions)

    def note(self, decisions: Sequence[Decision]) -> asyncio.Future[None] | None:
        """Logs, counts and stores decisions; what is returned is done when they are on the disk."""
        for decision in decisions:
            self._journal.write("decision", **{"at" if k == "time" else k: v for k, v in decision.to_json().items()})
            self._tally.decided(decision.bucket, decision.action)
        self._recent = [*(decision.to_json() for decision in reversed(decisions)), *self._recent][:1000]
        return self._save(decisions)

    def _save(self, decisions: Sequence[Decision]) -> asyncio.Future[None] | None:
        if self._store is None:
            return None
        state = copy.deepcopy(self.rollout.state)  # of this moment: the rollout goes on while the disk writes
        job = asyncio.get_running_loop().run_in_executor(self._disk, self._store.save, state, tuple(decisions))
        job.add_done_callback(self._saved)
        return job

    def _saved(self, job: asyncio.Future[None]) -> None:
        if not job.cancelled() and (error := job.exception()) is not None:
            self._journal.error("the rollout's state could not be saved", error)

    async def decisions(self, limit: int, bucket: str | None) -> list[dict[str, Any]]:
        """The latest decisions, newest first."""
        if self._store is None:
            return [line for line in self._recent if bucket in (None, line["bucket"])][:limit]
        return await asyncio.get_running_loop().run_in_executor(self._disk, self._store.decisions, limit, bucket)

    async def start(self) -> None:
        """Begins to tick."""
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        saved = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            try:
                decisions = self.rollout.tick(time.time())
            except Exception as error:  # the next one may do better; without any, nothing is ever widened or taken back
                self._journal.error("the rollout could not tick", error)
                continue
            if decisions:
                self.note(decisions)
            elif time.monotonic() - saved >= _SAVE_EVERY:
                self._save(())
            else:
                continue
            saved = time.monotonic()

    async def stop(self) -> None:
        """Saves for the last time."""
        if self._ticking is not None:
            self._ticking.cancel()
        if (saving := self._save(())) is not None:
            await asyncio.wait({saving})
        self._disk.shutdown()
        if self._store is not None:
            self._store.close()

    def stages(self) -> dict[str, tuple[str, float]]:
        """As of the base."""
        buckets = self.rollout.status().get("buckets", {})
        return {name: (str(each["stage"]), float(each.get("share", 0.0))) for name, each in buckets.items()}


def make_chooser(settings: ServeSettings, tally: Tally, journal: Journal) -> Chooser:
    """By the settings. Raises InputError for a policy or a state that can't be used."""
    labels = [spec.label for spec in settings.drafters]
    if settings.policy is None:
        return Chooser(labels)
    policy = RolloutPolicy.load(settings.policy)
    store = RolloutStore(settings.state) if settings.state is not None else None
    return RolloutChooser(labels, Rollout(policy, store.load() if store else None), store, tally, journal)
