"""The HTTP routes of a `Service`, and their description (/openapi.json).

Does not know: how an answer is made; sockets and signals (`run`).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from draftproof import __version__
from draftproof.errors import DraftproofError
from draftproof.serve import wire
from draftproof.serve.admin import admin_router
from draftproof.serve.asking import Wanted, num_texts, wanted_chat, wanted_completion
from draftproof.serve.errors import ApiError, of_library
from draftproof.serve.gate import Gate
from draftproof.serve.invalid import not_json, of_validation
from draftproof.serve.schema import ChatAsked, CompletionAsked, Strict
from draftproof.serve.service import Asker, Service
from draftproof.serve.ui import add_page

BucketHeader = Annotated[str | None, Header(alias="X-Draftproof-Bucket", description="As the field `bucket`.")]
KeyHeader = Annotated[
    str | None, Header(alias="X-Draftproof-Key", max_length=512, description="A rollout's sticky key, as `user`.")
]


class ErrorDetail(Strict):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Strict):
    """Every refusal and failure."""

    error: ErrorDetail


_WORDS = {
    400: "The request can't be used; the message names the field",
    401: "No valid API key",
    404: "No such model or route",
    405: "No such method here",
    408: "The body came too slowly",
    413: "The body is too large",
    500: "The engine failed",
    503: "No room, shutting down, or the engine is broken; see Retry-After",
    504: "The request took too long",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text} for status, text in _WORDS.items()
}
_ANSWERS = {
    **RESPONSES,
    200: {
        "description": "The answer, whole or as server-sent events",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
    },
}


# FastAPI's own spans, metrics and logs: its lines would hold what clients sent; a request's span is `tracing`'s.
# Versions before it had any keep what they do not know in `FastAPI.extra`.
_NO_TELEMETRY: Any = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}

_READING = 30.0  # seconds beside a request's own that a client has to read a stream to its end


def make_app(service: Service) -> FastAPI:
    """The whole application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="draftproof",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    _handle_errors(app, service)
    _add_texts(app, service)
    _add_state(app, service)
    app.include_router(admin_router(service, RESPONSES))
    add_page(app)
    app.add_middleware(Gate, settings=service.settings, answered=service.tally.answered)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description without its own 422: what does not validate is a 400 here."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


def _handle_errors(app: FastAPI, service: Service) -> None:
    def answer(error: ApiError) -> Response:
        return wire.json_response(error.body(), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return answer(error)

    @app.exception_handler(DraftproofError)
    async def by_library(_: Request, error: DraftproofError) -> Response:
        return answer(of_library(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return answer(of_validation(error.errors(), error.body))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # FastAPI's own: it could not parse the body
            return answer(not_json())
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        found = ApiError(error.status_code, str(error.detail), code=code)
        found.headers.update(error.headers or {})
        return answer(found)

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> Response:
        service.journal.error("a fault of the server", error)
        return answer(ApiError(500, "a fault of the server; its log says more", code="internal_error"))


def _add_texts(app: FastAPI, service: Service) -> None:
    async def create(request: Request, body: ChatAsked | CompletionAsked, want: Callable[[], Wanted]) -> Response:
        count = _checked(service, body)
        header = request.headers.get("X-Draftproof-Bucket")
        key = body.user or request.headers.get("X-Draftproof-Key") or uuid.uuid4().hex
        running = await service.begin(count, want, Asker(body.bucket or header or "default", key, _trace(request)))
        headers = {"X-Request-Id": running.reply.id}
        try:
            if not body.stream:
                return wire.json_response(await wire.unless_gone(request, running.whole()), headers=headers)
            updates = running.live.updates()
            first = await wire.unless_gone(request, anext(updates))
        except ApiError as error:
            running.failed(error)
            raise
        except wire.Gone:
            running.close()
            return Response(status_code=499)
        except BaseException:
            running.close()
            raise
        seconds = service.settings.request_timeout + _READING
        return wire.EventStream(running.events(first, updates), running.close, headers, seconds)

    @app.post("/v1/chat/completions", responses=_ANSWERS, summary="An answer to a conversation")
    async def chat(request: Request, body: ChatAsked, bucket: BucketHeader = None, key: KeyHeader = None) -> Response:
        return await create(request, body, lambda: wanted_chat(body, service.served.tokenizer, service.vocab_size))

    @app.post("/v1/completions", responses=_ANSWERS, summary="How texts go on")
    async def complete(
        request: Request, body: CompletionAsked, bucket: BucketHeader = None, key: KeyHeader = None
    ) -> Response:
        return await create(
            request, body, lambda: wanted_completion(body, service.served.tokenizer, service.vocab_size)
        )


def _trace(request: Request) -> dict[str, str]:
    """The W3C headers of the caller's span."""
    names = ("traceparent", "tracestate")
    return {name: ",".join(request.headers.getlist(name)) for name in names if name in request.headers}


def _checked(service: Service, body: ChatAsked | CompletionAsked) -> int:
    """How many texts a body asks for. Raises ApiError for another model, or too many texts."""
    if body.model is not None and body.model != service.model:
        message = f"the model {body.model[:128]!r} is not served here; this is {service.model!r}"
        raise ApiError(404, message, code="model_not_found", param="model")
    most = service.settings.max_choices
    if body.n is not None and body.n > most:
        raise ApiError(400, f"n must be at most {most} on this server", code="invalid_value", param="n")
    return num_texts(body)


def _add_state(app: FastAPI, service: Service) -> None:
    def state(trouble: str | None) -> Response:
        if trouble is None:
            return wire.json_response({"status": "ok"})
        return wire.json_response({"status": "unavailable", "reason": trouble}, 503)

    model = {"id": service.model, "object": "model", "created": 0, "owned_by": "draftproof"}

    health = {**RESPONSES, 503: {"description": "Not so, with the reason"}}

    @app.get("/health", responses=health, summary="As /health/ready")
    @app.get("/health/ready", responses=health, summary="200 while requests are taken")
    async def ready() -> Response:
        return state(service.unready)

    @app.get("/health/live", responses=health, summary="200 while the engine is sound")
    async def live() -> Response:
        return state(service.trouble)

    @app.get("/metrics", responses=RESPONSES, summary="Prometheus' text format")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=service.metrics.content_type)

    @app.get("/v1/models", responses=RESPONSES, summary="The model")
    async def models() -> Response:
        return wire.json_response({"object": "list", "data": [model]})

    @app.get("/v1/models/{name:path}", responses=RESPONSES, summary="The model by name")
    async def one_model(name: str) -> Response:
        if name != service.model:
            raise ApiError(404, f"the model {name[:128]!r} is not served here", code="model_not_found", param="model")
        return wire.json_response(model)
