"""An OpenAI-compatible server as a `Sampler`: `/v1/completions`, token ids in and out.

    subject = Endpoint(EndpointOptions("http://127.0.0.1:8000", speculation=True))
    baseline = Endpoint(EndpointOptions("http://127.0.0.1:8000", speculation=False))  # draftproof's own: one server
    baseline = Endpoint(EndpointOptions("http://127.0.0.1:8001"))  # others: a second one, with it off

Prompts go as token ids; where a server refuses them and a tokenizer is given, as text, if that text is these ids.

Invariant: all parameters that the server knows are sent with each request, so that no default of its own steps in; one
that it does not know is refused here by name. A prompt that it reads as another number of tokens is an InputError.

Does not know: how an answer is read (`endpoint_reply`), connections (`endpoint_http`), tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from draftproof.certify.endpoint_dialect import Dialect, body_of, detect
from draftproof.certify.endpoint_http import Http, Patience
from draftproof.certify.endpoint_reply import Reader
from draftproof.certify.types import Job, Sample, SubjectFailed
from draftproof.errors import InputError, InvalidParams, InvalidPrompt
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Where a server is, and how it is spoken to.

    model: as of /v1/models; None is its first one. speculation: draftproof's own switch, for each request; None leaves
    it to the server. tokenizer: only for servers that give or take text. prompts: "auto" is ids where they are taken.
    dialect: None asks the server who it is. concurrency: requests at once. extra: goes into every body as it is.
    timeout_s, deadline_s, retries, backoff_s: as of `endpoint_http.Patience`.
    """

    url: str
    model: str | None = None
    api_key: str | None = None
    speculation: bool | None = None
    tokenizer: Tokenizer | None = None
    prompts: Literal["auto", "ids", "text"] = "auto"
    dialect: Dialect | None = None
    concurrency: int = 8
    timeout_s: float = 120.0
    deadline_s: float = 600.0
    retries: int = 5
    backoff_s: float = 0.5
    extra: Mapping[str, Any] = field(default_factory=dict)


class Endpoint:
    """`Sampler` over a server. Close it, or use it as a context manager. vocab_size: where somebody knows it."""

    vocab_size: int | None = None

    def __init__(self, options: EndpointOptions, name: str = "endpoint") -> None:
        """Raises InputError where the server can't be reached, or has no such model or switch."""
        if options.concurrency < 1:
            raise InvalidParams(f"concurrency must be an integer >= 1, got {options.concurrency!r}")
        if not 0 < options.deadline_s < math.inf or not 0 < options.timeout_s < math.inf:
            raise InvalidParams("time-outs must be seconds > 0")
        if options.prompts == "text" and options.tokenizer is None:
            raise InvalidParams("prompts as text need a tokenizer: give the model's folder")
        self.name, self.options = name, options
        patience = Patience(options.timeout_s, options.deadline_s, options.retries, options.backoff_s)
        self._http = Http(options.url, options.api_key, patience)
        self._reader = Reader(options.tokenizer)
        self._as_text: bool | None = None if options.prompts == "auto" else options.prompts == "text"
        try:
            self._introduce()
        except BaseException:
            self._http.close()
            raise

    def _introduce(self) -> None:
        try:
            listed = self._http.get("/v1/models")
        except SubjectFailed as error:
            raise InputError(str(error)) from error
        entries = listed.get("data") if isinstance(listed, Mapping) else None
        told = entries if isinstance(entries, list) else []
        models = [each for each in told if isinstance(each, Mapping) and isinstance(each.get("id"), str)]
        if not models:
            raise InputError(f"{self._http.url} lists no model at /v1/models: it is no OpenAI-compatible server")
        wanted = [each for each in models if self.options.model in (None, each["id"])]
        if not wanted:
            names = ", ".join(each["id"] for each in models)
            raise InputError(f"{self._http.url} has no model {self.options.model!r}: it has {names}")
        self.model: str = wanted[0]["id"]
        self.dialect = self.options.dialect or detect(wanted[0])
        if self.options.speculation is not None and self.dialect != "draftproof":
            raise InvalidParams(f"{self._http.url} has no switch for speculation: give a second server as --baseline")

    def facts(self) -> Mapping[str, Any]:
        """As of `Sampler`; the key is not in it."""
        given = {"kind": "endpoint", "url": self._http.url, "model": self.model, "dialect": self.dialect}
        facts = {**given, "speculation": self.options.speculation, "extra": dict(self.options.extra)}
        with suppress(InputError, SubjectFailed):
            answer = self._http.get("/version") if self.dialect == "vllm" else {}
            facts["server_version"] = answer.get("version")
        return facts

    def sample(self, jobs: Sequence[Job]) -> list[Sample]:
        """As of `Sampler`; the first one alone while it is not known how the server likes its prompts."""
        settled = 0 if self._as_text is not None and self._reader.how is not None else 1
        first = [self._one(job) for job in jobs[:settled]]
        try:
            with ThreadPoolExecutor(self.options.concurrency) as pool:
                rest = [pool.submit(self._one, job) for job in jobs[settled:]]
                try:
                    return first + [each.result() for each in rest]
                except BaseException:  # nobody waits for the others: each may have its whole deadline before it
                    self._http.give_up()
                    pool.shutdown(cancel_futures=True)
                    raise
        finally:
            self._http.go_on()

    def _one(self, job: Job) -> Sample:
        body = body_of(job, self.dialect, self.options.speculation)
        answer = self.ask({**body, **self.options.extra}, job.prompt)
        return self._reader.sample(answer, job, job.params.logprobs is not None)

    def ask(self, body: Mapping[str, Any], prompt: Sequence[int]) -> Any:
        """The answer to one completion. Raises InputError for what is refused, SubjectFailed for all else."""
        if self._as_text is None:
            self._as_text = self._settle(body, prompt)
        given = self._text(prompt) if self._as_text else list(prompt)
        answer = self._http.post("/v1/completions", {"model": self.model, "prompt": given, **body})
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        count = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        if isinstance(count, int) and count != len(prompt):
            raise InputError(f"{self._http.url} reads a prompt of {len(prompt)} tokens as {count}: send it as ids")
        return answer

    def _settle(self, body: Mapping[str, Any], prompt: Sequence[int]) -> bool:
        """True where prompts have to go as text: ids are refused, the same as text is not."""
        trial = {"model": self.model, **body, "max_tokens": 1}
        try:
            self._http.post("/v1/completions", {**trial, "prompt": list(prompt)})
        except InputError:
            if self.options.tokenizer is None:
                raise
            self._http.post("/v1/completions", {**trial, "prompt": self._text(prompt)})
            return True
        return False

    def _text(self, prompt: Sequence[int]) -> str:
        """Raises InvalidPrompt where no text is read as these ids."""
        tokenizer = self.options.tokenizer
        assert tokenizer is not None
        text = tokenizer.decode(prompt)
        if tokenizer.encode(text) != list(prompt):
            raise InvalidPrompt("a prompt's text is not read back as its ids: this server needs prompts that are")
        return text

    def named(self, name: object) -> int | None:
        """The id behind a token's name in log-probabilities; None where it names none, or several."""
        return self._reader.named(name)

    def counters(self) -> dict[str, float] | None:
        """Drafted and accepted tokens since the server started, where it counts them (vLLM); None elsewhere."""
        if self.dialect != "vllm":
            return None
        text = self._http.text("/metrics")
        found = {name: _metric(text, f"vllm:spec_decode_num_{name}_tokens_total") for name in ("draft", "accepted")}
        return {name: value for name, value in found.items() if value is not None} or None

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _metric(text: str, name: str) -> float | None:
    """The sum of a Prometheus counter over its labels."""
    lines = [line for line in text.splitlines() if line.startswith(name)]
    convert: Callable[[str], float] = float
    return sum(convert(line.rpartition(" ")[2]) for line in lines) if lines else None
