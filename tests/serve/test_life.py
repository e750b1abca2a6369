"""Full, slow, left, failing, shutting down: what a server does when things do not go well."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import threading
import time
from contextlib import suppress

import httpx
import openai
import pytest

from draftproof import SamplingParams
from draftproof.engine.collect import Collector
from draftproof.serve.wire import EventStream

LONG = {"prompt": "a", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


def until(holds, seconds=30.0):
    """Waits for something that happens soon; fails by assertion when it does not at all."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def events(response):
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


class Held:
    """Holds the engine before each forward until it is let go."""

    def __init__(self, running) -> None:
        self._target = running.served.engine.target
        self._verify = self._target.verify
        self.open = threading.Event()
        self.steps = 0
        self._target.verify = self._slow

    def _slow(self, batch):
        self.steps += 1
        assert self.open.wait(30)
        return self._verify(batch)

    def release(self) -> None:
        self.open.set()
        self._target.verify = self._verify


@pytest.fixture
def hold():
    made = []

    def make(running) -> Held:
        made.append(Held(running))
        return made[-1]

    yield make
    for each in made:
        each.release()


def test_a_full_line_is_refused_at_once_and_opens_again(serve, hold):
    running = serve(max_waiting=2)  # 8 run, 2 wait
    held = hold(running)
    http = running.http()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(lambda: running.http().post("/v1/completions", json=LONG)) for _ in range(10)]
        until(lambda: running.service.line.taken == 10)
        refused = http.post("/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"
        assert http.get("/health").status_code == 200
        held.release()
        assert all(answer.result().status_code == 200 for answer in answers)
    assert http.post("/v1/completions", json=LONG).status_code == 200


def test_more_texts_than_ever_fit_are_a_bad_request(serve):
    running = serve(max_waiting=0)
    answer = running.http().post("/v1/completions", json={"prompt": ["a"] * 9, "max_tokens": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_texts")
    answer = running.http().post("/v1/completions", json={"prompt": ["a"] * 4, "n": 2, "max_tokens": 1})
    assert answer.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long(stream, serve, hold):
    running = serve(request_timeout=0.3)
    held = hold(running)
    answer = running.http().post("/v1/completions", json={**LONG, "stream": stream})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timeout")
    held.release()
    until(lambda: not running.served.engine.has_work)
    assert [line["status"] for line in running.lines("request")] == [504]


def test_a_stream_that_takes_too_long_ends_with_an_error_event(serve):
    running = serve(request_timeout=1.0)
    engine = running.served.engine
    step = engine.step

    def slow():
        time.sleep(0.05)
        return step()

    engine.step = slow
    with running.http().stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        assert response.status_code == 200
        said = list(events(response))
    assert json.loads(said[-2])["error"]["code"] == "request_timeout"
    assert said[-1] == "[DONE]"
    with pytest.raises(openai.APIError, match="longer than"):
        list(running.client().completions.create(model=running.service.model, **_client(LONG), stream=True))


def _client(body):
    """The same for the official client."""
    return {k: v for k, v in body.items() if k != "ignore_eos"} | {"extra_body": {"ignore_eos": True}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_a_client_that_leaves_frees_its_pages_within_a_step(stream, started, serve, hold):
    running = serve()
    held = hold(running)
    if started:
        held.release()
        running.served.engine.target.verify = _delayed(held._verify)
    ledger = running.served.ledger
    _leave(running, {**LONG, "stream": stream, "speculation": {"enabled": False}})
    until(lambda: running.service.line.taken == 0)
    held.release()
    until(lambda: ledger.free_pages == ledger.num_pages and not running.served.engine.has_work)
    assert running.service.tally.texts == {("off", "cancelled"): 1}
    assert [line["status"] for line in running.lines("request")] == [499]


def _leave(running, body):
    """A client that waits for half a second, and for a little of the answer."""
    with (
        suppress(httpx.ReadTimeout),
        httpx.Client(base_url=running.url, timeout=0.5) as http,
        http.stream("POST", "/v1/completions", json=body) as response,
    ):
        next(response.iter_raw())


def _delayed(verify, at_step=None, then=None):
    """A forward of at least 20 ms; `then` is called, on a thread of its own, when `at_step` of them have begun."""
    steps = itertools.count(1)

    def slow(batch):
        if next(steps) == at_step:
            threading.Thread(target=then).start()
        time.sleep(0.02)
        return verify(batch)

    return slow


def test_a_cancelled_text_takes_no_further_step(serve, hold):
    running = serve()
    held = hold(running)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=running.url, timeout=0.3) as http:
        http.post("/v1/completions", json=LONG)
    until(lambda: running.service.line.taken == 0)
    assert held.steps == 1
    held.release()
    until(lambda: not running.served.engine.has_work)
    assert running.served.engine.meter.steps == 1


def test_a_shutdown_finishes_what_runs_and_refuses_what_comes(serve, hold, truth):
    running = serve(grace=30.0)
    held = hold(running)
    http = running.http()
    assert http.get("/health/ready").status_code == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: running.http().post("/v1/completions", json=LONG))
        until(lambda: held.steps)
        running.drain()
        until(lambda: http.get("/health/ready").status_code == 503)
        assert http.get("/health/live").status_code == 200
        refused = http.post("/v1/completions", json=LONG)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        held.release()
        finished = answer.result()
    want = truth.generate("a", SamplingParams(max_new_tokens=200, ignore_eos=True))[0]
    assert finished.json()["choices"][0]["text"] == want.text
    running._thread.join(30)
    assert not running._thread.is_alive()


@pytest.mark.parametrize("stream", [False, True])
def test_after_the_grace_period_texts_end_with_a_clear_reason(stream, serve, truth):
    running = serve(grace=0.2)
    running.served.engine.target.verify = _delayed(running.served.engine.target.verify, 8, running.drain)
    try:
        body = {**LONG, "stream": stream}
        with running.http().stream("POST", "/v1/completions", json=body) as response:
            said = "".join(response.iter_text())
    finally:
        del running.served.engine.target.verify
    assert response.status_code == 200
    if stream:
        chunks = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
        assert said.rstrip().endswith("[DONE]")
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        reason = chunks[-1]["choices"][0]["finish_reason"]
    else:
        text, reason = (json.loads(said)["choices"][0][name] for name in ("text", "finish_reason"))
    whole = truth.generate("a", SamplingParams(max_new_tokens=200, ignore_eos=True))[0].text
    assert reason == "shutdown"
    assert text
    assert whole.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}"))  # it may end inside a character
    assert text != whole


def test_a_client_that_does_not_read_is_let_go():
    """Its events would be kept, and it connected, for as long as it likes."""
    said, closed = [], []

    async def never(message):
        said.append(message["type"])
        if len(said) > 2:
            await asyncio.sleep(3600)

    async def stays():
        await asyncio.sleep(3600)

    async def events():
        for _ in range(10):
            yield b"data: {}\n\n"

    stream = EventStream(events(), lambda: closed.append(True), {}, 0.05)
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, stays, never), 10))
    assert closed == [True]
    assert said == ["http.response.start", *["http.response.body"] * 2]


class Faults:
    """Makes the next forwards fail."""

    def __init__(self, running, count) -> None:
        self._target, self._left = running.served.engine.target, count
        self._verify = self._target.verify
        self._target.verify = self

    def __call__(self, batch):
        if self._left > 0:
            self._left -= 1
            raise RuntimeError("the device is gone")
        return self._verify(batch)


@pytest.fixture
def fail(built):
    def make(running, count) -> None:
        Faults(running, count)

    yield make
    built[0].engine.target.__dict__.pop("verify", None)


def test_one_failing_step_changes_no_answer(server, fail, truth):
    fail(server, 1)
    answer = server.http().post("/v1/completions", json=LONG)
    want = truth.generate("a", SamplingParams(max_new_tokens=200, ignore_eos=True))[0]
    assert answer.json()["choices"][0]["text"] == want.text
    assert [line["error"] for line in server.lines("a step failed")] == ["RuntimeError: the device is gone"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_step_that_fails_twice_fails_its_requests_and_the_server_goes_on(stream, server, fail):
    fail(server, 2)
    http = server.http()
    answer = http.post("/v1/completions", json={**LONG, "stream": stream})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "engine_error"
    assert "the device is gone" in answer.json()["error"]["message"]
    assert http.get("/health").status_code == 200
    assert http.post("/v1/completions", json=LONG).status_code == 200
    assert "draftproof_step_failures_total 2.0" in http.get("/metrics").text


def test_an_engine_that_keeps_failing_is_unhealthy(server, fail):
    fail(server, 10**9)
    http = server.http()
    statuses = [http.post("/v1/completions", json=LONG).status_code for _ in range(4)]
    assert statuses[0] == 500
    assert statuses[-1] == 503
    for path in ("/health", "/health/live", "/health/ready"):
        answer = http.get(path)
        assert answer.status_code == 503
        assert "keeps failing" in answer.json()["reason"]
    assert http.post("/v1/completions", json=LONG).json()["error"]["code"] == "engine_broken"


def test_a_text_that_can_not_be_made_fails_alone(server, monkeypatch, truth):
    take = Collector.take

    def broken(self, event):
        if self.request.bucket == "broken" and len(self._tokens) > 5:
            raise KeyError("no such piece")
        return take(self, event)

    monkeypatch.setattr(Collector, "take", broken)
    http = server.http()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        buckets = ["broken", "sound", "broken", "sound"]
        answers = list(pool.map(lambda bucket: http.post("/v1/completions", json={**LONG, "bucket": bucket}), buckets))
    assert [answer.status_code for answer in answers] == [500, 200, 500, 200]
    assert "could not be made" in answers[0].json()["error"]["message"]
    want = truth.generate("a", SamplingParams(max_new_tokens=200, ignore_eos=True))[0]
    assert answers[1].json()["choices"][0]["text"] == want.text
    assert http.get("/health").status_code == 200


def test_a_thread_that_ends_leaves_nobody_waiting(serve, monkeypatch):
    running = serve()
    host = running.service.host
    monkeypatch.setattr(host, "_update", None)
    monkeypatch.setattr(host, "_told", None)
    answer = running.http().post("/v1/completions", json=LONG)
    host._thread.join(30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_error")
    assert running.http().get("/health/live").status_code == 503
    assert running.http().post("/v1/completions", json=LONG).status_code == 503
    for seq in range(3):
        running.served.engine.cancel(seq)
    running.served.scheduler.drain()


def test_a_drafter_that_raises_costs_its_drafts_only(server, truth):
    drafter = server.served.routes.drafter.drafters["ngram"]
    propose = drafter.propose

    def broken(items, noise):
        if any(len(item.tokens) > 30 for item in items):
            raise ZeroDivisionError("no more")
        return propose(items, noise)

    drafter.propose = broken
    try:
        body = {"prompt": "abcabcabc", "max_tokens": 60, "temperature": 0, "speculation": {"drafter": "ngram"}}
        answer = server.http().post("/v1/completions", json=body).json()
    finally:
        del drafter.propose
    want = truth.generate("abcabcabc", SamplingParams(max_new_tokens=60))[0]
    assert answer["choices"][0]["text"] == want.text
    assert answer["usage"]["speculative_decoding"]["num_draft_tokens"] > 0
    assert [line["drafter"] for line in server.lines("a drafter failed; its texts go on without drafts")] == ["ngram"]
    assert 'draftproof_drafter_failures_total{drafter="ngram"} 1.0' in server.http().get("/metrics").text
