"""A server as a subject: draftproof's own, and small ones that are busy, stall, die, or stop telling what they told."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftproof.certify import Job, Plan, SubjectFailed, run
from draftproof.certify.adapters.foreign import open_endpoint, open_engine
from draftproof.certify.endpoint import Endpoint, EndpointOptions
from draftproof.certify.endpoint_dialect import body_of
from draftproof.certify.endpoint_laws import EndpointLaws
from draftproof.engine.build import build_each
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.params import SamplingParams
from draftproof.text.tokenizer import Tokenizer

_SPEC = importlib.util.spec_from_file_location("serve_fixtures", Path(__file__).parents[1] / "serve/conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_SERVING = importlib.util.module_from_spec(_SPEC)
sys.modules["serve_fixtures"] = _SERVING
_SPEC.loader.exec_module(_SERVING)
folder, cache_dir, serve = _SERVING.folder, _SERVING.cache_dir, _SERVING.serve

LAW = np.array([0.4, 0.3, 0.2, 0.1])
VOCAB = len(LAW)


class Fake:
    """A server that draws each token from LAW (moved by `tilt`), in the way it is told to. Counts its requests."""

    def __init__(self, *, owner: str = "vllm", tilt: float = 0.0, **quirks: Any) -> None:
        self.owner, self.quirks, self.law = owner, quirks, LAW + tilt * np.array([1, -1, 0, 0])
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.lock = threading.Lock()
        self.closed, self.left, self.stalled_out = threading.Event(), threading.Event(), threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

            def do_GET(self) -> None:
                models = {"data": [{"id": "toy", "owned_by": fake.owner}]}
                metrics = 'vllm:spec_decode_num_draft_tokens_total{a="1"} 8.0\n'
                told = fake.quirks.get("models", json.dumps(models))
                self.answer(200, metrics if self.path == "/metrics" else told)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with fake.lock:
                    fake.bodies.append(body)
                    fake.headers.append(self.headers)
                    number = len(fake.bodies)
                status, text = fake.reply(number, body)
                if number > fake.quirks.get("trickles_after", number):
                    self.trickle()
                elif status:
                    self.answer(status, text)
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)

            def trickle(self) -> None:
                """One byte after the other, of a header that never ends or of a body; until who asked has left."""
                self.close_connection = True
                if fake.quirks["part"] == "body":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000000")
                    self.end_headers()
                else:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                with suppress(OSError):
                    while not fake.closed.wait(0.02):
                        self.wfile.write(b" ")
                    return
                fake.left.set()

            def answer(self, status: int, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in fake.quirks.get("headers", {}).items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # who asked has left
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def reply(self, number: int, body: dict[str, Any]) -> tuple[int, str]:
        quirks = self.quirks
        if number > quirks.get("dies_after", number):
            return 0, ""
        if number > quirks.get("stalls_after", number):
            self.closed.wait(quirks["stall_s"])
            self.stalled_out.set()
        if number <= quirks.get("busy", 0):
            return quirks.get("status", 503), '{"error": {"message": "come again"}}'
        if quirks.get("refuses_ids") and not isinstance(body["prompt"], str):
            return 400, '{"error": {"message": "text only"}}'
        if "garbage" in quirks and number > 1:
            return 200, str(quirks["garbage"])
        return 200, json.dumps(self.completion(number, body))

    def completion(self, number: int, body: dict[str, Any]) -> dict[str, Any]:
        rng = np.random.default_rng(body.get("seed", 0))
        tokens = rng.choice(VOCAB, size=body["max_tokens"], p=self.law).tolist()
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": self.quirks.get("finish", "length")}
        bare = number > self.quirks.get("ids_until", number)
        if self.owner == "vllm" and not bare:
            choice["token_ids"] = tokens
        if "logprobs" in body and not bare:
            names = self.quirks.get("names", [f"token_id:{token}" for token in range(VOCAB)])
            choice["logprobs"] = {
                "tokens": [names[token] for token in tokens],
                "token_logprobs": [float(np.log(self.law[token])) for token in tokens],
            }
        if "prompt_logprobs" in body:
            order = np.argsort(-self.law)[: body["prompt_logprobs"]]
            top = {str(token): {"logprob": float(np.log(self.law[token]))} for token in order}
            own = [{str(t): {"logprob": float(np.log(self.law[t]))}, **top} for t in body["prompt"]]
            choice["prompt_logprobs"] = [None, *own[1:]]
        count = self.quirks.get("reads_as", len(body["prompt"]))
        return {"choices": [choice], "usage": {"prompt_tokens": count, "completion_tokens": body["max_tokens"]}}

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def fake() -> Iterator[Any]:
    """fake(quirks...) -> Fake."""
    made: list[Fake] = []

    def make(**quirks: Any) -> Fake:
        made.append(Fake(**quirks))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """endpoint(url, options...) -> Endpoint."""
    made: list[Endpoint] = []

    def make(url: str, name: str = "endpoint", **options: Any) -> Endpoint:
        made.append(Endpoint(EndpointOptions(url, **{"backoff_s": 0.01, "retries": 2, **options}), name))
        return made[-1]

    yield make
    for each in made:
        each.close()


def job(number: int = 0, prompt: tuple[int, ...] = (1, 2, 3), stops: tuple[int, ...] = (), **params: Any) -> Job:
    given = {"temperature": 1.0, "seed": number, "max_new_tokens": 4, **params}
    return Job(number, prompt, SamplingParams(**given), frozenset(stops))


def plan(**changes: Any) -> Plan:
    given = {"prompts": ((1, 2, 3), (3, 2, 1)), "params": SamplingParams(temperature=1.0), "tokens": 2400, "batch": 32}
    return Plan(**{**given, "text_tokens": 64, "max_tv": 0.2, "tests": ("identity", "fit", "joint"), **changes})


# -- a server that works -----------------------------------------------------------------------------------------------


def test_it_is_asked_for_everything_and_for_nothing_else(fake: Any, endpoint: Any) -> None:
    server_ = fake()
    made = endpoint(server_.url + "/v1/", api_key="s3cret", extra={"priority": 1})
    (sample,) = made.sample([job(stops=(9, 2), top_k=3, min_new_tokens=2, seed=7)])
    assert len(sample.tokens) == 4
    assert sample.finish == "length"
    assert sample.rounds is None
    asked = server_.bodies[-1]
    assert asked["prompt"] == [1, 2, 3]
    assert asked["stop_token_ids"] == [2, 9]
    wanted = {"top_k": 3, "min_p": 0.0, "top_p": 1.0, "repetition_penalty": 1.0, "min_tokens": 2, "ignore_eos": True}
    assert wanted.items() <= asked.items()
    assert asked["priority"] == 1
    assert server_.headers[-1]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in json.dumps(made.facts())
    assert made.counters() == {"draft": 8.0}


@pytest.mark.parametrize(
    ("dialect", "params"),
    [
        ("vllm", {"bad_words": ((1, 2),)}),
        ("vllm", {"rule": "reject"}),
        ("vllm", {"max_draft_tokens": 3}),
        ("openai", {"top_k": 4}),
        ("openai", {"min_new_tokens": 4}),
        ("vllm", {"logprobs": 0, "logprobs_mode": "processed"}),
        ("vllm", {"max_new_tokens": None}),
    ],
)
def test_what_has_no_field_is_refused_by_name(dialect: Any, params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams) as caught:
        body_of(job(**params), dialect)
    assert list(params)[-1].removesuffix("_mode") in str(caught.value) or "length" in str(caught.value)


def test_the_law_of_a_right_server_passes_and_a_tilted_one_does_not(fake: Any, endpoint: Any) -> None:
    right, tilted = fake(), fake(tilt=0.12)
    laws = EndpointLaws(endpoint(right.url, "the target"), VOCAB, top=2)
    made = run(endpoint(right.url), laws, plan(tests=("fit",)))
    assert made["verdict"] == "lossless", made["summary"]
    assert made["subject"]["url"] == right.url
    made = run(endpoint(tilted.url), laws, plan(tests=("fit",)))
    assert made["verdict"] == "fault"
    assert "fit.law" in made["fault"]["tests"]


def test_two_servers_without_laws(fake: Any, endpoint: Any) -> None:
    right, tilted = fake(), fake(tilt=0.25)
    baseline, asked = endpoint(right.url, "plain"), plan(tokens=1600, tests=("joint",))
    made = run(endpoint(fake().url), baseline, asked)
    assert made["fault"] is None
    assert made["verdict"] == "not_enough_evidence"  # 60 texts show no small error, and the certificate says so
    assert run(endpoint(tilted.url), baseline, asked)["verdict"] == "fault"


def test_coarse_laws_know_the_likeliest_and_spread_the_rest(fake: Any, endpoint: Any) -> None:
    made = EndpointLaws(endpoint(fake().url), VOCAB, top=2)
    for row in made.laws(job(), (3, 0)):
        np.testing.assert_allclose(row, [0.4, 0.3, 0.15, 0.15])
    assert made.logits(job(), (3,))[0] == pytest.approx(np.log(0.4))
    with pytest.raises(InvalidParams, match="temperature 1"):
        list(made.laws(job(temperature=0.5), (3, 0)))
    whole = EndpointLaws(endpoint(fake().url), VOCAB, top=VOCAB)
    (row,) = whole.laws(job(temperature=0.5), (3,))
    np.testing.assert_allclose(row, LAW**2 / (LAW**2).sum(), rtol=1e-5)


def test_a_server_that_gives_no_logprobs_of_prompts_is_no_reference(fake: Any, endpoint: Any) -> None:
    made = EndpointLaws(endpoint(fake(owner="someone").url), VOCAB, top=2)
    with pytest.raises(SubjectFailed, match="no log-probabilities of the prompt"):
        list(made.laws(job(), (1,)))


# -- token ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["token_id:0", "token_id:1", "token_id:2", "token_id:3"], ["a", "b", "c", "d"]])
def test_ids_from_the_names_in_logprobs(fake: Any, endpoint: Any, folder: Path, names: list[str]) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    server_ = fake(owner="someone", names=names)
    (sample,) = endpoint(server_.url, tokenizer=tokenizer).sample([job(seed=5)])
    drawn = np.random.default_rng(5).choice(VOCAB, size=4, p=LAW).tolist()
    assert [names[token] for token in drawn] == [
        f"token_id:{token}" if ":" in names[0] else tokenizer.decode([token]) for token in sample.tokens
    ]


def test_names_that_name_no_token_are_not_guessed(fake: Any, endpoint: Any, folder: Path) -> None:
    server_ = fake(owner="someone", names=["no token is called this"] * 4)
    with pytest.raises(SubjectFailed, match="counts 4 tokens"):
        endpoint(server_.url, tokenizer=Tokenizer.from_folder(folder)).sample([job()])
    with pytest.raises(SubjectFailed, match="neither token ids nor log-probabilities"):
        endpoint(server_.url).sample([job()])


def test_prompts_go_as_text_where_ids_are_refused(fake: Any, endpoint: Any, folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    server_ = fake(refuses_ids=True, reads_as=len(tokenizer.encode("abc")))
    prompt = tuple(tokenizer.encode("abc"))
    assert len(endpoint(server_.url, tokenizer=tokenizer).sample([job(prompt=prompt)])[0].tokens) == 4
    assert server_.bodies[-1]["prompt"] == "abc"
    with pytest.raises(InputError, match="text only"):
        endpoint(server_.url).sample([job()])


def test_a_prompt_that_is_read_otherwise_is_refused(fake: Any, endpoint: Any) -> None:
    with pytest.raises(InputError, match="reads a prompt of 3 tokens as 4"):
        endpoint(fake(reads_as=4).url).sample([job()])


# -- servers that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(fake: Any, endpoint: Any, status: int) -> None:
    server_ = fake(busy=2, status=status, headers={"Retry-After": "0"})
    assert endpoint(server_.url, prompts="ids").sample([job()])
    assert len(server_.bodies) == 3
    with pytest.raises(SubjectFailed, match=f"{status}: come again .asked 3 times"):
        endpoint(fake(busy=9, status=status).url).sample([job()])


def test_other_statuses_are_final(fake: Any, endpoint: Any) -> None:
    server_ = fake(busy=1, status=500)
    with pytest.raises(SubjectFailed, match="500: come again"):
        endpoint(server_.url, prompts="ids").sample([job()])
    assert len(server_.bodies) == 1
    with pytest.raises(InputError, match="refuses: 401"):
        endpoint(fake(busy=9, status=401).url).sample([job()])


@pytest.mark.parametrize(
    ("quirks", "reason"),
    [
        ({"dies_after": 40}, "broke off"),
        ({"stalls_after": 40, "stall_s": 1.0}, "stalled: no answer in 0.2 s"),
        ({"ids_until": 40}, "stopped giving token ids by 'token_ids' half-way"),
        ({"ids_until": 40, "owner": "someone"}, "stopped giving token ids by 'logprobs' half-way"),
    ],
)
def test_what_was_done_before_it_failed_is_kept(fake: Any, endpoint: Any, quirks: dict[str, Any], reason: str) -> None:
    laws = EndpointLaws(endpoint(fake().url, "the target"), VOCAB, top=2)
    patience = 0.2 if "stall_s" in quirks else 30.0
    made = run(endpoint(fake(**quirks).url, timeout_s=patience), laws, plan(batch=8, tests=("fit",), text_tokens=16))
    assert made["verdict"] == "not_enough_evidence"
    assert reason in made["reasons"][0]
    by_name = {test["test"]: test for test in made["tests"]}
    assert by_name["fit.law"]["count"] >= 128
    assert not by_name["fit.law"]["alarm"]


@pytest.mark.parametrize("part", ["body", "headers"])
def test_a_server_that_trickles_for_ever_is_stalled(fake: Any, endpoint: Any, part: str) -> None:
    laws = EndpointLaws(endpoint(fake().url, "the target"), VOCAB, top=2)
    slow = fake(trickles_after=40, part=part)
    asked = plan(batch=8, tests=("fit",), text_tokens=16)
    made = run(endpoint(slow.url, timeout_s=30.0, deadline_s=0.5), laws, asked)
    assert made["verdict"] == "not_enough_evidence"
    assert "stalled: the answer was not whole in 0.5 s" in made["reasons"][0]
    assert {test["test"]: test for test in made["tests"]}["fit.law"]["count"] >= 128
    assert slow.left.wait(10)  # its connections are closed, nobody goes on reading


def test_a_failure_waits_for_nobody_else(fake: Any, endpoint: Any) -> None:
    """One of several requests fails at once while the others stall: those are given up, not waited for."""
    server_ = fake(stalls_after=2, stall_s=20.0, busy=2, status=500)
    made = endpoint(server_.url, prompts="ids", concurrency=4)
    made._reader.how = "token_ids"  # as after a first answer
    with pytest.raises(SubjectFailed, match="500: come again"):
        made.sample([job(n) for n in range(6)])
    assert not server_.stalled_out.is_set()
    right = endpoint(fake().url)
    assert len(right.sample([job(n) for n in range(3)])) == 3  # and nothing is given up that comes later


def test_what_a_server_says_can_not_steer_a_terminal(fake: Any, endpoint: Any) -> None:
    server_ = fake(garbage="\x1b[2J\x9b\u202e<html>")
    with pytest.raises(SubjectFailed) as caught:
        endpoint(server_.url).sample([job()])
    assert str(caught.value).isprintable()
    refusing = fake(busy=9, status=400)
    refusing.reply = lambda *_: (400, json.dumps({"error": {"message": "\x1b]0;owned\x07 no\x9b"}}))
    with pytest.raises(InputError) as refused:
        endpoint(refusing.url, prompts="ids").sample([job()])
    assert str(refused.value).isprintable()
    assert "owned" in str(refused.value)


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        ("<html>", "no JSON"),
        ("[]", "no single choice"),
        ('{"choices": []}', "no single choice"),
        ('{"choices": [{"finish_reason": "length", "token_ids": ["x"]}]}', "no integers"),
        ('{"choices": [{"finish_reason": "content_filter", "token_ids": [1]}]}', "broke off"),
        ('{"choices": [{"finish_reason": ["length"], "token_ids": [1]}]}', "broke off"),
        ("[" * 100_000, "no JSON"),
        ('{"choices": [{"finish_reason": "length", "token_ids": [1]}], "usage": {"completion_tokens": 7}}', "counts 7"),
    ],
)
def test_answers_that_are_none(fake: Any, endpoint: Any, garbage: str, reason: str) -> None:
    with pytest.raises(SubjectFailed, match=reason):
        endpoint(fake(garbage=garbage).url).sample([job()])


def test_logprobs_that_stop_coming(fake: Any, endpoint: Any) -> None:
    server_ = fake(ids_until=2)
    made = endpoint(server_.url, prompts="ids")
    (sample,) = made.sample([job(logprobs=0)])
    assert sample.logprobs is not None
    assert sample.logprobs[0].logprob == pytest.approx(np.log(LAW[sample.tokens[0]]))
    with pytest.raises(SubjectFailed, match="half-way"):
        made.sample([job(logprobs=0), job(logprobs=0)])


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("ftp://here", {}, "no address"),
        ("http://127.0.0.1:1", {"retries": 0}, "can't be reached"),
        ("http://127.0.0.1:1", {"api_key": "two words\n"}, "key"),
        ("http://127.0.0.1:1", {"prompts": "text"}, "tokenizer"),
        ("http://127.0.0.1:1", {"concurrency": 0}, "concurrency"),
        ("http://127.0.0.1:1", {"deadline_s": 0.0}, "time-outs"),
        ("http://me:secret@127.0.0.1:1", {}, "holds a user or a password"),
    ],
)
def test_what_can_not_be_used_is_said_at_once(endpoint: Any, url: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        endpoint(url, **options)


@pytest.mark.parametrize("models", ["<html>", "[]", "{}", '{"data": 5}', '{"data": "toy"}', '{"data": [1, {"id": 2}]}'])
def test_what_is_no_such_server(fake: Any, endpoint: Any, models: str) -> None:
    with pytest.raises(InputError, match=r"no JSON|no OpenAI-compatible server"):
        endpoint(fake(models=models).url)


def test_unknown_models_and_switches(fake: Any, endpoint: Any) -> None:
    with pytest.raises(InputError, match="has no model 'other': it has toy"):
        endpoint(fake().url, model="other")
    with pytest.raises(InvalidParams, match="no switch for speculation"):
        endpoint(fake().url, speculation=True)


# -- draftproof's own server -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built(folder: Path, cache_dir: Path) -> Any:
    """One engine: the first of the labels that `serve` knows."""
    options = EngineOptions(str(folder), drafter="suffix", cache_dir=cache_dir, **_SERVING.ENGINE)
    return build_each([options], lambda _: None)


def test_one_server_is_subject_and_baseline(serve: Any, folder: Path, endpoint: Any) -> None:
    tokenizer, server = Tokenizer.from_folder(folder), serve(drafters=("suffix",))
    prompts = tuple(tuple(tokenizer.encode(text, special=False)) for text in ("abcabcabc", "xyxyxyxy"))
    on, off = endpoint(server.url, speculation=True), endpoint(server.url, speculation=False)
    jobs = [job(n, prompts[n % 2], max_new_tokens=24, temperature=0.8) for n in range(6)]
    ours, plain = on.sample(jobs), off.sample(jobs)
    assert [each.tokens for each in ours] == [each.tokens for each in plain]
    assert sum(round_.num_tested for each in ours for round_ in each.rounds or ()) > 0
    for sample in ours:
        assert sum(round_.num_tokens for round_ in sample.rounds or ()) == len(sample.tokens)
    assert all(round_.num_drafted == 0 for each in plain for round_ in each.rounds or ())
    with open_endpoint(EndpointOptions(server.url), None, None, folder) as foreign:
        asked = foreign.plan(["abcabcabc", "xyxyxyxy"], SamplingParams(temperature=0.8), tokens=800)
        assert asked.prompts == prompts
        made = foreign.certify(asked)
    assert made["fault"] is None, made["summary"]
    assert made["speculation"]["rounds"] > 0
    assert made["reference"]["name"] == "endpoint without speculation"


def test_a_server_against_our_target(serve: Any, folder: Path, cache_dir: Path) -> None:
    """Greedy: its texts are ours, up to ties within the drift of log-probabilities that is measured first."""
    server, target = serve(drafters=("suffix",)), EngineOptions(str(folder), cache_dir=cache_dir, **_SERVING.ENGINE)
    with open_endpoint(EndpointOptions(server.url), None, target) as foreign:
        with pytest.raises(InvalidParams, match="'oracle' is of our own engine"):
            foreign.plan(["abcabc"], SamplingParams(), tests=("oracle",))
        made = foreign.certify(foreign.plan(["abcabc", "xyxy"], SamplingParams(), tokens=200, text_tokens=24))
    by_name = {test["test"]: test for test in made["tests"]}
    assert by_name["identity.greedy"]["counts"]
    assert by_name["identity.greedy"]["detail"]["equal"] == by_name["identity.greedy"]["detail"]["texts"] == 9
    assert made["fault"] is None  # few drafts are judged on these texts, so it may be no evidence either
    with pytest.raises(InvalidParams, match="tokenizer"):
        open_endpoint(EndpointOptions(server.url), None, None)


def test_an_engine_against_itself(folder: Path) -> None:
    with open_engine("transformers", {"model": str(folder), "lookup": 3}, folder) as foreign:
        made = foreign.certify(foreign.plan(["abcabcabc", "xyxyxyxy"], SamplingParams(), tokens=150, text_tokens=24))
    assert made["verdict"] != "fault", made["summary"]
    assert made["reference"]["drift"] > 0
