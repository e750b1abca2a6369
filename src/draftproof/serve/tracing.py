"""OpenTelemetry: one span a request, sent to a collector from a thread of its own. Imported only where it is asked for.

A span is made when its request has ended, with the times it had, as a child of the caller's span (W3C headers
`traceparent` and `tracestate`); a caller that does not sample is followed. `OTEL_TRACES_SAMPLER`,
`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS` and their like hold as everywhere.

Invariant: a request never waits for a collector, nor fails with it: at most a queue of spans is kept, further ones are
dropped, and the log says so once a minute. The process-wide tracer provider is left alone.

Does not know: what a span says (`spans`), requests.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from draftproof import __version__
from draftproof.errors import InputError
from draftproof.serve.journal import Journal
from draftproof.serve.spans import Attributes

_NAME = "llm_request"  # as vLLM's
_LAST_SPANS = 5.0  # seconds that a shutdown waits for a collector
_QUIET = 60.0  # seconds between words of a collector that fails
_LOGGER = "opentelemetry"
_PROTOCOL = "http/protobuf"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
_PARENT = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans. Event loop only, but for `close`."""

    def __init__(self, processor: SpanProcessor, journal: Journal) -> None:
        self._journal = journal
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("draftproof", __version__)
        self._own_words = _silenced()

    def request(self, headers: Mapping[str, str], seconds: float, attributes: Attributes) -> None:
        """One request that ended now, after so many seconds. headers: of the caller's trace. Never raises."""
        try:
            end = time.time_ns()
            span = self._tracer.start_span(
                _NAME,
                context=_PARENT.extract(headers),
                kind=SpanKind.SERVER,
                attributes=attributes,
                start_time=end - int(seconds * 1e9),
            )
            if attributes["http.response.status_code"] >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end(end)
        except Exception as error:  # of an exporter, a sampler: no reason to lose an answer
            self._journal.error("a span could not be made", error)

    def close(self) -> None:
        """Sends what is left, for a few seconds. Any thread; twice is no error."""
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(_LAST_SPANS)
        logging.getLogger(_LOGGER).propagate = self._own_words


def make_tracing(endpoint: str, journal: Journal) -> Tracing:
    """To a collector that speaks OTLP over HTTP. endpoint: its URL; without a path, /v1/traces is meant.

    Raises InputError for settings in the environment that can't be used.
    """
    for name in _PROTOCOLS:
        if os.environ.get(name, _PROTOCOL) != _PROTOCOL:
            raise InputError(f"spans are sent by {_PROTOCOL} alone, and {name} is {os.environ[name]!r}")
    address = endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
    try:
        return Tracing(BatchSpanProcessor(Watched(OTLPSpanExporter(endpoint=address), journal)), journal)
    except Exception as error:  # of whatever reads the environment
        raise InputError(f"OpenTelemetry can't be set up: {type(error).__name__}: {error}") from error


class Watched(SpanExporter):
    """An exporter whose failures are a line in the log, at most one a minute."""

    def __init__(self, inner: SpanExporter, journal: Journal) -> None:
        self._inner, self._journal = inner, journal
        self._lost = 0
        self._said: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As of the inner one; what it raises is a failure."""
        trouble = "the collector did not take them"
        try:
            result = self._inner.export(spans)
        except Exception as error:
            result, trouble = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            self._say(trouble)
        return result

    def _say(self, trouble: str) -> None:
        now = time.monotonic()
        if self._said is None or now - self._said >= _QUIET:
            self._said = now
            self._journal.write("spans were lost", spans=self._lost, error=trouble)

    def shutdown(self) -> None:
        """As of the inner one."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """As of the inner one."""
        return self._inner.force_flush(timeout_millis)


def _resource() -> Resource:
    """Who sends: the environment's word first."""
    found = Resource.create()
    named = not str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: "draftproof"}))


def _silenced() -> bool:
    """The library's own lines, one a failed attempt, are no JSON and far too many; whether they were shown before."""
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(logging.NullHandler())
    before, logger.propagate = logger.propagate, False
    return before
