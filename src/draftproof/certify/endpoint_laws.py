"""A server's own log-probabilities of a prompt as a `LawReference`: the text is sent back as a prompt, and scored.

vLLM gives `prompt_logprobs`; others may give `logprobs` with `echo`. A server gives the likeliest `top` tokens of a
row, seldom all. *Coarse laws.* With the chances of these and nothing of the others, the law that spreads the rest
evenly over the others has two properties that tests need: the chance of every one of the `top` tokens is right, and so
is that of the others together. The transform of `pit` with this law as its own score is uniform, and a joint cell of
`top` tokens has its right chance. It sees errors within the others as little as the server tells of them. The token of
the text itself is told beyond `top`; it is left out, for a score must not depend on the token it scores.

A coarse row is of the untouched logits, so it is a law at temperature 1 without parameters only; with all tokens told,
every parameter is ours to apply.

Does not know: what is tested.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftproof.certify.endpoint import Endpoint
from draftproof.certify.types import Job, SubjectFailed
from draftproof.errors import InvalidParams
from draftproof.params import SamplingParams
from draftproof.rules import History, processed, warp
from draftproof.types import FloatArray

_LOWEST = -1e30  # a finite logit for what is not told


class EndpointLaws:
    """`LawReference`. top: tokens of each row, at most what the server gives; vocab_size: of the model."""

    exact = False

    def __init__(self, endpoint: Endpoint, vocab_size: int, top: int = 20) -> None:
        if not 1 <= top <= vocab_size:
            raise InvalidParams(f"top must be within 1 and the vocabulary's {vocab_size}, got {top}")
        self.name = f"log-probabilities by {endpoint.name}"
        self._endpoint, self._vocab_size, self._top = endpoint, vocab_size, top

    @property
    def whole(self) -> bool:
        """True where rows are told in full."""
        return self._top == self._vocab_size

    def facts(self) -> Mapping[str, Any]:
        """As of `LawReference`."""
        return {**self._endpoint.facts(), "top": self._top, "vocab_size": self._vocab_size}

    def laws(self, job: Job, tokens: Sequence[int]) -> Iterator[FloatArray]:
        """As of `LawReference`; coarse where rows are."""
        if not self.whole:
            _check_coarse(job.params)
        text, first = np.array([*job.prompt, *tokens], np.int32), len(job.prompt)
        for index, row in enumerate(self._rows(job.prompt, tokens)):
            if not self.whole:
                yield self._coarse(row)
                continue
            history = History(text[: first + index], first)
            yield warp(processed(self._logits(row), job.params, history, job.stop_ids), job.params).law(
                self._vocab_size
            )

    def logits(self, job: Job, tokens: Sequence[int]) -> FloatArray:
        """As of `LawReference`, up to a constant; what is not told is far below."""
        text = np.array([*job.prompt, *tokens], np.int32)
        *_, row = self._rows(job.prompt, [*tokens, 0])  # no row depends on the token that stands behind it
        return processed(self._logits(row), job.params, History(text, len(job.prompt)), job.stop_ids)

    def _logits(self, row: Mapping[int, float]) -> FloatArray:
        logits = np.full(self._vocab_size, _LOWEST, np.float32)
        logits[list(row)] = list(row.values())
        return logits

    def _coarse(self, row: Mapping[int, float]) -> FloatArray:
        law = np.zeros(self._vocab_size)
        law[list(row)] = np.exp(list(row.values()))
        rest = max(0.0, 1.0 - float(law.sum()))
        others = np.ones(self._vocab_size, bool)
        others[list(row)] = False
        law[others] = rest / max(1, int(others.sum()))
        coarse: FloatArray = law / law.sum()
        return coarse

    def _rows(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[dict[int, float]]:
        """The likeliest tokens before each of `tokens`, with their log-probabilities."""
        if not len(tokens):
            return []
        text, vllm = [*prompt, *tokens], self._endpoint.dialect == "vllm"
        body: dict[str, Any] = {"max_tokens": 1, "temperature": 1.0}
        body |= {"prompt_logprobs": self._top} if vllm else {"echo": True, "logprobs": self._top}
        answer = self._endpoint.ask(body, text)
        choice = (answer.get("choices") or [{}])[0]
        told = choice.get("prompt_logprobs") if vllm else (choice.get("logprobs") or {}).get("top_logprobs")
        if not isinstance(told, Sequence) or len(told) < len(text):
            raise SubjectFailed(f"{self.name}: the server gives no log-probabilities of the prompt")
        return [self._row(each) for each in told[len(prompt) : len(text)]]

    def _row(self, told: Any) -> dict[int, float]:
        if not isinstance(told, Mapping):
            raise SubjectFailed(f"{self.name}: the server gives no log-probabilities of the prompt")
        found: dict[int, float] = {}
        for name, value in told.items():
            token = int(name) if str(name).isdigit() and isinstance(value, Mapping) else self._endpoint.named(name)
            number = value.get("logprob") if isinstance(value, Mapping) else value
            if token is None or not 0 <= token < self._vocab_size or not isinstance(number, (int, float)):
                raise SubjectFailed(f"{self.name}: {name!r} names no single token, or has no log-probability")
            found[token] = float(number)
        return dict(heapq.nlargest(self._top, found.items(), key=lambda each: each[1]))


def _check_coarse(params: SamplingParams) -> None:
    """Raises InvalidParams where the law can't be told from the likeliest tokens."""
    plain = replace(params, temperature=1.0, max_new_tokens=None, seed=None, logprobs=None, stop_ids=(), stop=())
    whole = params.top_k is None and params.top_p == 1 and params.min_p == 0
    if params.temperature != 1.0 or plain.has_processors or not whole:
        raise InvalidParams(
            "the likeliest tokens tell the law at temperature 1 without other parameters only: take our own target "
            "as the reference, or let the server tell the whole vocabulary"
        )
