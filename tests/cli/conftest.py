"""A language model made of a list of words: enough of `LLM` for the commands, with no model behind it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from draftproof.cli import options
from draftproof.cli.main import main
from draftproof.engine.outputs import Output, Speculation, StreamChunk, Timing
from draftproof.types import SamplingParams, TokenLogprobs

WORDS = ["The ", "sky ", "is ", "blue", ".", "!"]


class FakeTokenizer:
    """Ids are indices of WORDS."""

    has_chat_template = True

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(WORDS[token] for token in ids)


@dataclass
class FakeLLM:
    """Says `speculative` with drafts and `plain` without; remembers what it was asked."""

    plain: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    speculative: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    tested: int = 4
    error: str | None = None
    interrupt: bool = False
    drift: float = 0.0
    numerics: str = "invariant"
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    asked: list[tuple[Any, SamplingParams]] = field(default_factory=list)
    arguments: argparse.Namespace | None = None
    closed: bool = False
    one_text: bool | None = None

    @property
    def info(self) -> dict[str, Any]:
        return {
            "model": "fake",
            "weights": "int8",
            "backend": "none",
            "numerics": self.numerics,
            "drafter": "suffix",
            "gamma": 4,
        }

    def _output(self, params: SamplingParams) -> Output:
        drafts = params.max_draft_tokens != 0
        tokens = self.speculative if drafts else self.plain
        accepted = min(3, self.tested) if drafts else 0
        tested = self.tested if drafts else 0
        logprob = -0.5 - (self.drift if drafts else 0.0)
        logprobs = [TokenLogprobs(t, logprob, ((t, logprob), (5, float("-inf")))) for t in tokens]
        return Output(
            text=self.tokenizer.decode(tokens),
            token_ids=list(tokens),
            prompt_token_ids=[5, 5],
            finish_reason="error" if self.error else "length",
            logprobs=logprobs if params.logprobs is not None else None,
            speculation=Speculation(
                drafter="suffix",
                rule=params.resolved_rule,
                rounds=2,
                drafting_rounds=1,
                drafted=4,
                tested=tested,
                accepted=accepted,
                acceptance=accepted / tested if tested else None,
                draft_acceptance_rate=0.75,
                acceptance_by_position=(1.0, 1.0, 1.0) if accepted else (),
                tokens_per_round=len(tokens) / 2,
            ),
            timing=Timing(1.5, 0.1, 0.2, 40.0 if drafts else 20.0),
            seed=params.seed or 0,
            error=self.error,
        )

    def generate(
        self, prompts: Any, params: SamplingParams | Sequence[SamplingParams], *, chat: bool | None = None
    ) -> list[Output]:
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        self.asked += zip(prompts, each, strict=True)
        return [self._output(one) for one in each]

    def stream(self, prompt: Any, params: SamplingParams, *, chat: bool | None = None) -> Iterator[StreamChunk]:
        self.asked.append((prompt, params))
        output = self._output(params)
        yield StreamChunk(self.tokenizer.decode(output.token_ids[:2]), tuple(output.token_ids[:2]), 1)
        if self.interrupt:
            raise KeyboardInterrupt
        yield StreamChunk(self.tokenizer.decode(output.token_ids[2:]), tuple(output.token_ids[2:]), 2, output)

    def logits_at(self, prompt_token_ids: Sequence[int], token_ids: Sequence[int], position: int) -> Any:
        assert list(prompt_token_ids) == [5, 5]
        return np.arange(len(WORDS), dtype=np.float32) + position / 8

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    """The model that every command loads."""
    llm = FakeLLM()

    def load(args: argparse.Namespace, progress: Callable[[str], None], *, one_text: bool = False) -> FakeLLM:
        progress("loading")
        llm.arguments, llm.one_text = args, one_text
        return llm

    monkeypatch.setattr(options, "load", load)
    return llm


@dataclass
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs `draftproof` with these arguments in this process."""

    def run(*argv: str) -> Ran:
        code = main(list(argv))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
