"""/admin: the rollout's stages and log, and the hand that moves them.

Every change is stored before it is answered: what an operator was told holds after a crash, too. A change that can't
be stored is made all the same (a kill switch must work on a full disk), and the answer says that it was not stored.

Does not know: how stages are decided, who may come in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from draftproof.errors import DraftproofError
from draftproof.rollout import Decision
from draftproof.serve import wire
from draftproof.serve.errors import ApiError
from draftproof.serve.schema import BUCKET_LENGTH, Strict
from draftproof.serve.service import Service
from draftproof.serve.treatment import RolloutChooser

Bucket = Annotated[str, Field(min_length=1, max_length=BUCKET_LENGTH)]
Reason = Annotated[str, Field(max_length=512)]


class Promote(Strict):
    """One bucket, one stage up."""

    bucket: Bucket
    reason: Reason = ""


class Switch(Strict):
    """One bucket, or all of them."""

    bucket: Bucket | None = None
    reason: Reason = ""


def admin_router(service: Service, responses: dict[int | str, dict[str, Any]]) -> APIRouter:
    """The routes. responses: as errors are documented."""
    router = APIRouter(prefix="/admin", responses=responses)
    _add_reading(router, service)
    _add_moving(router, service)
    return router


def _rollout(service: Service) -> RolloutChooser:
    if not isinstance(service.chooser, RolloutChooser):
        raise ApiError(404, "this server has no policy, so no rollout: start it with --policy", code="no_rollout")
    return service.chooser


@contextmanager
def _stored(what: str) -> Iterator[None]:
    """A store that fails is the server's trouble, not a fault of the request."""
    try:
        yield
    except DraftproofError as error:
        raise ApiError(500, f"{what}: {error}", code="not_stored") from error


def _add_reading(router: APIRouter, service: Service) -> None:
    @router.get("/stats", summary="State and counts")
    async def stats() -> Response:
        return wire.json_response(service.stats())

    @router.get("/history", summary="What was counted every other second, for a quarter of an hour")
    async def history(
        after: Annotated[float, Query(allow_inf_nan=False, description="Seconds of the epoch; later points only.")] = 0,
    ) -> Response:
        return wire.json_response({"points": service.history.since(after)})

    @router.get("/rollout", summary="The stage of each bucket, with its evidence")
    async def status() -> Response:
        rollout = _rollout(service).rollout
        return wire.json_response({"status": rollout.status(), "policy": rollout.policy.to_json()})

    @router.get("/rollout/log", summary="Decisions, newest first")
    async def log(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        bucket: Annotated[str | None, Query(min_length=1, max_length=BUCKET_LENGTH)] = None,
    ) -> Response:
        chooser = _rollout(service)
        with _stored("the log can't be read"):
            return wire.json_response({"decisions": await chooser.decisions(limit, bucket)})


def _add_moving(router: APIRouter, service: Service) -> None:
    async def done(decisions: Sequence[Decision]) -> Response:
        saving = _rollout(service).note(decisions) if decisions else None
        if saving is not None:
            with _stored("this holds now, but is forgotten at the next start"):
                await saving
        return wire.json_response({"decisions": [decision.to_json() for decision in decisions]})

    @router.post("/rollout/promote", summary="One stage up")
    async def promote(body: Promote) -> Response:
        return await done(_rollout(service).rollout.promote(body.bucket, time.time(), body.reason))

    @router.post("/rollout/stop", summary="Off at once, until it is started again")
    async def stop(body: Switch) -> Response:
        return await done(_rollout(service).rollout.stop(body.bucket, time.time(), body.reason))

    @router.post("/rollout/start", summary="From the beginning")
    async def start(body: Switch) -> Response:
        return await done(_rollout(service).rollout.start(body.bucket, time.time(), body.reason))
