"""Our own engine as a subject, as its own baseline, and its target as the reference.

The subject runs the very engine that serves (`engine.step`), with every draft and decision written down. The reference
scores texts by teacher forcing through the target's own forward (`engine.score`), one text at a time: under invariant
numerics these are the bits that decoding saw, elsewhere they differ by the drift that is measured beside it.

Invariant: the engine is left as it was found, without sequences.
Does not know: tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.certify.trace import TracedDrafter
from draftproof.certify.types import Job, Sample, SubjectFailed
from draftproof.engine.build import OF_ONE_START, Built
from draftproof.engine.collect import Collector
from draftproof.engine.score import last_row, score
from draftproof.engine.step import Engine
from draftproof.errors import EngineError, InvalidParams
from draftproof.protocols import KVCache, Target
from draftproof.rules import History, processed, warp
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Event, FinishReason, FloatArray, Request, TokenLogprobs


class EngineSampler:
    """`Sampler` over a running engine. tokenizer: only needed for stop strings."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer | None = None,
        facts: Mapping[str, Any] | None = None,
        name: str = "draftproof",
    ) -> None:
        self.name = name
        self.engine = engine
        self.target = engine.target
        self.vocab_size = engine.target.vocab_size
        self._tokenizer = tokenizer
        self._facts = dict(facts or {})
        self._next_id = 0

    def facts(self) -> Mapping[str, Any]:
        """What runs."""
        return {"drafter": self.engine.drafter.name, "numerics": self.engine.target.numerics, **self._facts}

    def sample(self, jobs: Sequence[Job]) -> list[Sample]:
        """All jobs in one batch. Raises SubjectFailed where the engine breaks off."""
        engine, plain_drafter = self.engine, self.engine.drafter
        trace = TracedDrafter(plain_drafter)
        engine.drafter = trace
        try:
            return self._run(jobs, trace)
        except EngineError as error:
            raise SubjectFailed(str(error)) from error
        finally:
            engine.drafter = plain_drafter

    def _run(self, jobs: Sequence[Job], trace: TracedDrafter) -> list[Sample]:
        texts = [self._submit(job) for job in jobs]
        by_id = {text.request.id: text for text in texts}
        try:
            while any(text.finish is None for text in texts):
                for event in self.engine.step():
                    text = by_id[event.request_id]
                    text.take(event)
                    if text.finish is not None and event.finish is None:  # a stop string
                        self.engine.cancel(text.seq)
        finally:
            for text in texts:
                if text.finish is None:
                    self.engine.cancel(text.seq)
        while self.engine.has_work:
            self.engine.step()
        return [text.sample(trace) for text in texts]

    def _submit(self, job: Job) -> _Text:
        if job.params.stop and self._tokenizer is None:
            raise InvalidParams("stop strings need a tokenizer: this engine was given none")
        number, self._next_id = self._next_id, self._next_id + 1
        request = Request(number, np.array(job.prompt, np.int32), job.params, job.stop_ids, arrival=number)
        collector = None
        if job.params.stop and self._tokenizer is not None:
            collector = Collector(request, self._tokenizer, self.engine.drafter.name, 0.0)
        return _Text(request, self.engine.submit(request), collector)


class _Text:
    """One text as it comes."""

    def __init__(self, request: Request, seq: int, collector: Collector | None) -> None:
        self.request, self.seq = request, seq
        self._collector = collector
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self.finish: FinishReason | None = None

    def take(self, event: Event) -> None:
        if event.finish == "error":
            raise SubjectFailed(event.error or "the engine gave an error")
        self._tokens += event.tokens
        self._logprobs += event.logprobs
        self.finish = event.finish
        if self._collector is not None:
            self._collector.take(event)
            self.finish = "stop" if self._collector.done and event.finish is None else event.finish

    def sample(self, trace: TracedDrafter) -> Sample:
        tokens, text, finish = self._tokens, None, self.finish
        if self._collector is not None:
            output = self._collector.output()
            tokens, text, finish = output.token_ids, output.text, output.finish_reason
        rounds = _clipped(trace.take(self.seq), len(tokens))
        logprobs = tuple(self._logprobs[: len(tokens)]) or None
        return Sample(tuple(tokens), finish, rounds, logprobs, text)


def _clipped(rounds: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Rounds of the first `count` tokens: a stop string cuts a text behind the engine's back."""
    kept = []
    for round_ in rounds:
        num = min(round_.num_tokens, count)
        if not num:
            break
        count -= num
        accepted, tested = min(round_.num_accepted, num), min(round_.num_tested, num)
        kept.append(replace(round_, num_tokens=num, num_accepted=accepted, num_tested=tested))
    return tuple(kept)


@dataclass
class EngineReference:
    """`LawReference` by teacher forcing, and `Sampler` of plain decoding where `plain` is given."""

    target: Target
    ledger: KVCache
    plain: EngineSampler | None = None
    name: str = "the target, teacher-forced"

    @property
    def exact(self) -> bool:
        """True where the laws are the bits that decoding sees."""
        return self.target.numerics == "invariant"

    def facts(self) -> Mapping[str, Any]:
        """What the laws come from."""
        return {"numerics": self.target.numerics, "vocab_size": self.target.vocab_size}

    def laws(self, job: Job, tokens: Sequence[int]) -> Iterator[FloatArray]:
        """As of `LawReference`. The last token is never fed."""
        text = np.array([*job.prompt, *tokens], np.int32)
        first, vocab_size = len(job.prompt) - 1, self.target.vocab_size
        if not len(tokens):
            return
        for index, row in enumerate(score(self.target, self.ledger, text[:-1].tolist(), len(job.prompt))):
            if index >= first:
                history = History(text[: index + 1], len(job.prompt))
                yield warp(processed(row, job.params, history, job.stop_ids), job.params).law(vocab_size)

    def logits(self, job: Job, tokens: Sequence[int]) -> FloatArray:
        """As of `LawReference`."""
        text = [*job.prompt, *tokens]
        row = last_row(self.target, self.ledger, text, len(job.prompt))
        return processed(row, job.params, History(np.array(text, np.int32), len(job.prompt)), job.stop_ids)

    def sample(self, jobs: Sequence[Job]) -> Sequence[Sample]:
        """Plain decoding. Raises SubjectFailed where this reference has no sampler."""
        if self.plain is None:
            raise SubjectFailed("this reference knows laws only: it was given no engine of plain decoding")
        return self.plain.sample(jobs)


def engine_facts(built: Built) -> dict[str, Any]:
    """JSON-ready: what the engine was made of, and hashes of its files."""
    info = {key: value for key, value in built.info.items() if key not in OF_ONE_START}
    found: dict[str, Any] = {"engine": info}
    if built.folder is not None:
        found["files"] = hashes(built.folder)
    if built.draft is not None:
        found["draft_model"] = {"name": built.draft.source.name, "num_layers": built.draft.num_layers}
        found["draft_model"]["files"] = hashes(built.draft.folder)
    return found


def hashes(place: Path) -> dict[str, str]:
    """SHA-256 of the files that decide what a model says: weights, graph, configuration, tokenizer; or of one file."""
    found, decisive = {}, (".bin", ".safetensors", ".xml", ".json")
    names = [place] if place.is_file() else [path for path in sorted(place.iterdir()) if path.suffix in decisive]
    for path in names:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
