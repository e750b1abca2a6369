"""A peer as a `Sampler`, and, where it gives its rows, as a `LawReference`.

Invariant: a parameter that the peer can't honour is refused by name, never dropped. Whatever else a peer raises is a
`SubjectFailed`.

Does not know: engines, pipes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from draftproof.certify.types import Job, Round, Sample, SubjectFailed
from draftproof.errors import InputError, InvalidParams
from draftproof.params import SamplingParams
from draftproof.rules import History, processed, warp
from draftproof.types import FloatArray

ALWAYS = frozenset({"temperature", "max_new_tokens", "min_new_tokens", "seed", "stop_ids", "ignore_eos"})


class Peer(Protocol):
    """What a `peer_*` module's class `Peer` is. Everything that goes in or out is JSON-ready.

    supports: names of `SamplingParams` that it honours beside `ALWAYS`. vocab_size: None where it does not say.
    """

    supports: frozenset[str]
    vocab_size: int | None

    def facts(self) -> Mapping[str, Any]:
        """Package versions and settings."""
        ...

    def sample(self, prompt: Sequence[int], asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """{"tokens": [...], "finish": ..., "rounds": [[tokens, accepted, tested, drafted], ...] or None}.

        asked: parameters by name, `stop_ids` resolved. Raises NotImplementedError for what it can't honour.
        """
        ...

    def rows(self, ids: Sequence[int], num_rows: int, path: str) -> Any:
        """Writes float32[num_rows, V] to path: the logits after the last num_rows of the ids. Not every peer can."""
        ...

    def drift(self, ids: Sequence[int], num_prompt: int, widths: Sequence[int]) -> Mapping[str, float]:
        """By how many tokens a step feeds: the largest difference of any logit. Not every peer can."""
        ...

    def close(self) -> None:
        """Frees what it holds."""
        ...


class PeerSampler:
    """`Sampler` over a peer. Texts run one after the other. files: hashes of the model's files, for the certificate."""

    def __init__(self, name: str, peer: Peer, files: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.peer = peer
        self.files = files
        if peer.vocab_size is not None:
            self.vocab_size = peer.vocab_size

    def facts(self) -> Mapping[str, Any]:
        """As of `Sampler`."""
        files = {} if self.files is None else {"files": dict(self.files)}
        return {"kind": "peer", **self.peer.facts(), **files}

    def sample(self, jobs: Sequence[Job]) -> list[Sample]:
        """As of `Sampler`."""
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Sample:
        asked = _asked(job, self.peer.supports, self.name)
        try:
            answer = self.peer.sample(list(job.prompt), asked)
        except NotImplementedError as error:
            raise InvalidParams(f"{self.name}: {error}") from error
        except (InputError, SubjectFailed):
            raise
        except Exception as error:  # whatever an engine raises
            raise SubjectFailed(f"{self.name} failed: {type(error).__name__}: {error}") from error
        rounds = answer.get("rounds")
        told = None if rounds is None else tuple(Round(*each) for each in rounds)
        return Sample(tuple(int(token) for token in answer["tokens"]), answer.get("finish"), told)

    def close(self) -> None:
        """Ends a peer that runs elsewhere."""
        self.peer.close()

    def __enter__(self) -> PeerSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PeerReference:
    """`LawReference` by a peer's own rows, teacher-forced; with `plain`, also a `Sampler` of plain decoding.

    drift: the largest difference of logits between the widths that decoding uses, as measured; None where it is not
    known, and then no first difference of two greedy texts is judged.
    """

    exact = False

    def __init__(self, peer: Peer, plain: PeerSampler | None = None, drift: float | None = None) -> None:
        self.name = "the peer's own forward, teacher-forced"
        self.plain = plain
        self.drift = drift
        self._peer = peer

    def facts(self) -> Mapping[str, Any]:
        """As of `LawReference`."""
        return {**self._peer.facts(), "drift": self.drift}

    def laws(self, job: Job, tokens: Sequence[int]) -> Iterator[FloatArray]:
        """As of `LawReference`."""
        if not len(tokens):
            return
        text = np.array([*job.prompt, *tokens], np.int32)
        first = len(job.prompt)
        rows = self._rows(text[:-1].tolist(), len(tokens))
        for index, row in enumerate(rows):
            history = History(text[: first + index], first)
            yield warp(processed(row, job.params, history, job.stop_ids), job.params).law(len(row))

    def logits(self, job: Job, tokens: Sequence[int]) -> FloatArray:
        """As of `LawReference`."""
        text = np.array([*job.prompt, *tokens], np.int32)
        (row,) = self._rows(text.tolist(), 1)
        return processed(row, job.params, History(text, len(job.prompt)), job.stop_ids)

    def sample(self, jobs: Sequence[Job]) -> Sequence[Sample]:
        """Plain decoding. Raises SubjectFailed where there is no sampler."""
        if self.plain is None:
            raise SubjectFailed("this reference knows laws only: it was given no plain sampler")
        return self.plain.sample(jobs)

    def _rows(self, ids: list[int], num_rows: int) -> FloatArray:
        """float32[num_rows, V]."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.f32"
            try:
                self._peer.rows(ids, num_rows, str(path))
                return np.fromfile(path, np.float32).reshape(num_rows, -1)
            except SubjectFailed:
                raise
            except Exception as error:
                raise SubjectFailed(f"the reference failed: {type(error).__name__}: {error}") from error


_DEFAULTS = SamplingParams()


def _asked(job: Job, supports: frozenset[str], name: str) -> dict[str, Any]:
    """The parameters that are given on. Raises InvalidParams for one that has no place there."""
    params = job.params
    for each in fields(params):
        given = getattr(params, each.name)
        if each.name not in ALWAYS | supports and given != getattr(_DEFAULTS, each.name):
            raise InvalidParams(f"{name} can't be asked for {each.name}: leave it out")
    names = ALWAYS | supports
    asked = {each.name: getattr(params, each.name) for each in fields(params) if each.name in names}
    return {**asked, "stop_ids": sorted(job.stop_ids)}
