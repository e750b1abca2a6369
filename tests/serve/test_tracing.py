"""One span a request, with what the answer says, unless its caller wants none; a collector can hurt no request."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from draftproof.errors import InputError, InvalidParams
from draftproof.serve import run, tracing
from draftproof.serve.journal import Journal
from draftproof.serve.settings import ServeSettings
from draftproof.serve.tracing import Tracing, Watched, make_tracing

TEXT = {"prompt": "abcabcabcabc", "max_tokens": 30, "temperature": 0}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def traced(serve):
    """(server, its exporter)."""
    running, kept = serve(max_waiting=2), InMemorySpanExporter()
    running.service.tracing = Tracing(SimpleSpanProcessor(kept), running.service.journal)
    return running, kept


def span_of(kept):
    until(kept.get_finished_spans)
    (span,) = kept.get_finished_spans()
    return span


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_one_span_of_its_callers_trace(stream, traced):
    running, kept = traced
    client, name = running.client(), running.service.model
    ask = {"messages": [{"role": "user", "content": "abc" * 20}], "max_tokens": 100, "temperature": 0.0, "seed": 5}
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1"}
    got = client.chat.completions.create(model=name, extra_body={"bucket": "b"}, extra_headers=headers, **ask, **more)
    answer = list(got)[-1] if stream else got
    span = span_of(kept)
    told = answer.usage.speculative_decoding
    assert (span.name, span.kind, span.status.status_code) == ("llm_request", SpanKind.SERVER, StatusCode.UNSET)
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state["a"] == "1"
    assert span.resource.attributes["service.name"] == "draftproof"
    said = dict(span.attributes)
    assert (
        said.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "draftproof",
            "gen_ai.request.model": name,
            "gen_ai.request.temperature": 0.0,
            "gen_ai.request.max_tokens": 100,
            "gen_ai.request.seed": 5,
            "gen_ai.request.stream": stream,
            "gen_ai.request.id": answer.id,
            "gen_ai.usage.input_tokens": answer.usage.prompt_tokens,
            "gen_ai.usage.completion_tokens": answer.usage.completion_tokens,
            "gen_ai.response.finish_reasons": ("length",),
            "http.response.status_code": 200,
            "draftproof.bucket": "b",
            "draftproof.mode": "on",
            "draftproof.drafter": "suffix",
            "draftproof.rule": "follow",
            "draftproof.num_draft_tokens": told["num_draft_tokens"],
            "draftproof.num_accepted_draft_tokens": told["num_accepted_draft_tokens"],
            "draftproof.acceptance": told["acceptance"],
        }.items()
    )
    assert told["num_draft_tokens"] > 0
    assert "error.type" not in said
    queue, first, whole = (said[f"gen_ai.latency.{n}"] for n in ("time_in_queue", "time_to_first_token", "e2e"))
    assert 0 <= queue <= first <= whole
    assert span.end_time - span.start_time == pytest.approx(whole * 1e9, abs=1000)
    assert not {"abcabcabc", told["seed"]} & {value for value in said.values() if isinstance(value, str)}


def test_several_texts_are_one_span(traced):
    running, kept = traced
    body = {**TEXT, "prompt": ["abcabc", "x"], "n": 2, "speculation": {"enabled": False}, "temperature": 1}
    answer = running.http().post("/v1/completions", json=body).json()
    said = dict(span_of(kept).attributes)
    assert said["gen_ai.usage.num_sequences"] == 4
    assert said["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"]
    assert (said["draftproof.mode"], said["draftproof.drafter"]) == ("off", "none")
    assert "draftproof.acceptance" not in said


def test_the_time_in_line_is_counted(traced):
    running, kept = traced  # 8 run, 2 wait
    target = running.served.engine.target
    verify, go_on = target.verify, threading.Event()
    target.verify = lambda batch: (go_on.wait(30), verify(batch))[1]
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            full = pool.submit(running.http().post, "/v1/completions", json={**TEXT, "prompt": ["a"] * 8})
            until(lambda: running.service.line.taken == 8)
            last = pool.submit(running.http().post, "/v1/completions", json={**TEXT, "bucket": "last"})
            until(lambda: running.service.line.taken == 9)
            begin = time.perf_counter()
            time.sleep(0.05)
            held = time.perf_counter() - begin
            go_on.set()
            assert full.result().status_code == last.result().status_code == 200
    finally:
        del target.verify
    until(lambda: len(kept.get_finished_spans()) == 2)
    queues = {
        s.attributes["draftproof.bucket"]: s.attributes["gen_ai.latency.time_in_queue"]
        for s in kept.get_finished_spans()
    }
    assert queues["last"] >= held
    assert {line["bucket"]: line["queue_ms"] for line in running.lines("request")} == {
        bucket: round(1000 * seconds, 2) for bucket, seconds in queues.items()
    }


def test_a_client_that_leaves_has_its_tokens_counted(traced):
    running, kept = traced
    verify = running.served.engine.target.verify
    running.served.engine.target.verify = lambda batch: (time.sleep(0.02), verify(batch))[1]
    body = {**TEXT, "max_tokens": 200, "ignore_eos": True, "stream": True, "speculation": {"enabled": False}}
    try:
        with running.http().stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            for _ in range(6):
                next(lines)
        span = span_of(kept)
    finally:
        del running.served.engine.target.verify
    assert span.status.status_code is StatusCode.UNSET  # nobody's fault here
    assert span.attributes["http.response.status_code"] == 499
    assert 2 <= span.attributes["gen_ai.usage.output_tokens"] < 200
    assert "gen_ai.response.finish_reasons" not in span.attributes


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [({"prompt": ["a"] * 11}, 400, "too_many_texts"), ({"prompt": "a" * 400}, 400, "context_length_exceeded")],
)
def test_refusals_are_spans(body, status, kind, traced):
    running, kept = traced
    assert running.http().post("/v1/completions", json={**TEXT, **body}).status_code == status
    assert dict(span_of(kept).attributes) == {"http.response.status_code": status, "error.type": kind}


def test_what_is_the_servers_fault_is_an_error(traced):
    running, kept = traced
    running.service.line.close("closed for the test")
    assert running.http().post("/v1/completions", json=TEXT).status_code == 503
    span = span_of(kept)
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "overloaded")


def test_the_callers_choice_is_followed(traced):
    running, kept = traced
    http = running.http()
    assert (
        http.post("/v1/completions", json=TEXT, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}).status_code == 200
    )
    assert not kept.get_finished_spans()
    for header in ("", "nonsense", "00-" + "0" * 32 + f"-{PARENT}-01", "é".encode("latin-1"), "9" * 5000):
        assert http.post("/v1/completions", json=TEXT, headers={"traceparent": header}).status_code == 200
    assert [span.parent for span in kept.get_finished_spans()] == [None] * 5


class Bad(SpanExporter):
    """Raises, or never returns."""

    def __init__(self, hang: threading.Event | None = None) -> None:
        self.hang = hang

    def export(self, spans):
        if self.hang is not None:
            self.hang.wait(60)
            return SpanExportResult.FAILURE
        raise ConnectionError("no collector")


@pytest.mark.parametrize("at_once", [False, True])
def test_a_collector_that_fails_is_a_line_in_the_log(at_once, server):
    exporter = Watched(Bad(), server.service.journal)
    processor = SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter, schedule_delay_millis=10)
    server.service.tracing = Tracing(processor, server.service.journal)
    http = server.http()
    assert [http.post("/v1/completions", json=TEXT).status_code for _ in range(5)] == [200] * 5
    until(lambda: server.lines("spans were lost"))
    (line,) = server.lines("spans were lost")  # one a minute
    assert line["error"] == "ConnectionError: no collector"


def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_shutdown(serve, monkeypatch):
    monkeypatch.setattr(tracing, "_LAST_SPANS", 0.1)
    running, hang = serve(), threading.Event()
    processor = BatchSpanProcessor(Bad(hang), schedule_delay_millis=1, max_queue_size=2, max_export_batch_size=1)
    running.service.tracing = Tracing(processor, running.service.journal)
    http = running.http()
    assert [http.post("/v1/completions", json=TEXT).status_code for _ in range(6)] == [200] * 6  # more than it keeps
    running.stop()
    hang.set()


def test_a_tracer_that_raises_loses_no_answer(server):
    server.service.tracing = Tracing(SimpleSpanProcessor(InMemorySpanExporter()), server.service.journal)
    server.service.tracing._tracer = None
    assert server.http().post("/v1/completions", json=TEXT).status_code == 200
    assert server.lines("a span could not be made")


class Collector(BaseHTTPRequestHandler):
    """An OTLP collector."""

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()


@pytest.mark.parametrize(
    ("path", "expected"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/else/where", "/else/where")]
)
def test_spans_arrive_at_a_collector(path, expected, server, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        collector.got = []
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        server.service.tracing = make_tracing(f"http://127.0.0.1:{collector.server_port}{path}", server.service.journal)
        assert server.http().post("/v1/completions", json=TEXT).status_code == 200
        server.service.tracing.close()
        collector.shutdown()
        thread.join()
    ((address, got),) = collector.got
    (resource,) = got.resource_spans
    assert address == expected
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "mine"
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["llm_request"]


def test_nothing_of_it_is_imported_when_it_is_off(server):
    assert server.service.tracing is None
    look = "import sys, draftproof.serve.run, draftproof.serve.app; "
    look += "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))], "
    look += "'draftproof.serve.tracing' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["[]", "False"]


@pytest.mark.parametrize(
    "url", ["", "localhost:4317", "grpc://localhost:4317", "http://", "http://a:b", "http://h:99999", "ftp://h/v1"]
)
def test_what_is_no_endpoint_is_refused(url):
    with pytest.raises(InvalidParams, match="--otlp-traces-endpoint must be a URL"):
        ServeSettings(otlp_traces_endpoint=url)


def test_what_is_not_installed_is_named_before_a_model_is_loaded(monkeypatch):
    missing = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "draftproof.serve.tracing")
    settings = ServeSettings(otlp_traces_endpoint="http://localhost:4318", engine={"model": "/nowhere"}, port=0)
    with pytest.raises(InputError, match=rf"needs {missing}: pip install 'draftproof\[otel\]'"):
        run.run_server(settings, lambda _: None, lambda _: None)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf alone"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf alone"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "can't be set up"),
    ],
)
def test_an_environment_that_can_not_be_followed_is_refused(name, value, says, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=says):
        make_tracing("http://127.0.0.1:9", Journal())


def test_the_command_hands_it_on(monkeypatch):
    from draftproof.cli.main import main

    found = []
    monkeypatch.setattr(run, "run_server", lambda settings, *_: found.append(settings))
    assert main(["serve", "--otlp-traces-endpoint", "http://localhost:4318/v1/traces"]) == 0
    assert found[0].otlp_traces_endpoint == "http://localhost:4318/v1/traces"
    with pytest.raises((SystemExit, InvalidParams)):
        raise SystemExit(main(["serve", "--otlp-traces-endpoint", "x"]))
    assert len(found) == 1
