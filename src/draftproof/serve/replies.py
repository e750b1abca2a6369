"""Outputs and updates -> the objects of the OpenAI API, whole and in chunks, for both routes.

Invariant: the texts of the chunks of a choice, joined, are the text of the whole answer; so are its log-probabilities
and its traced tokens. A choice's finish reason is "stop" or "length", or "shutdown" where the server ended it. The
pieces of a trace, joined, are the text too, but for what a stop string cut.

Does not know: how texts are made, connections.
"""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.engine.outputs import Output
from draftproof.serve.asking import Wanted
from draftproof.serve.jobs import Update
from draftproof.serve.tokens import TokenTexts
from draftproof.text.detokenize import Detokenizer
from draftproof.types import TokenLogprobs

_DECODER = codecs.getincrementaldecoder("utf-8")
_LOWEST = -9999.0  # in place of minus infinity, which JSON does not have


@dataclass(slots=True)
class _Choice:
    """What has been said of one choice so far."""

    begun: bool = False
    length: int = 0  # characters of its tokens, for text offsets
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _DECODER("replace"))
    pieces: Detokenizer | None = None  # of a trace


@dataclass(slots=True)
class Reply:
    """One answer as it is written."""

    wanted: Wanted
    tokens: TokenTexts
    model: str
    fingerprint: str
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    _choices: dict[int, _Choice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.id = ("chatcmpl-" if self.wanted.is_chat else "cmpl-") + uuid.uuid4().hex

    # -- whole ---------------------------------------------------------------------------------------------------------

    def whole(self, outputs: Sequence[Output], updates: Sequence[Update], told: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece. outputs: of all choices, by index. updates: all of them, in order."""
        own: dict[int, list[Update]] = {index: [] for index in range(len(outputs))}
        for update in updates:
            own[update.job.index].append(update)
        choices = [self._whole_choice(index, output, own[index]) for index, output in enumerate(outputs)]
        return {**self._head("chat.completion"), "choices": choices, **self._tail(outputs, told)}

    def _whole_choice(self, index: int, output: Output, updates: Sequence[Update]) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index}
        if self.wanted.is_chat:
            choice["message"] = {"role": "assistant", "content": output.text, "refusal": None}
        else:
            choice["text"] = self._echo(index) + output.text
        logprobs = output.logprobs or ()
        choice["logprobs"] = self._logprobs(index, logprobs) if self.wanted.params.logprobs is not None else None
        choice["finish_reason"] = finish_reason(output)
        if self.wanted.trace:
            choice["tokens"] = [token for update in updates for token in self._trace(update)]
        return choice

    # -- in chunks -----------------------------------------------------------------------------------------------------

    def chunk(self, update: Update, told: dict[str, Any] | None) -> dict[str, Any] | None:
        """One step of one choice; None where there is nothing to say yet. told: with the very last one."""
        index, output = update.job.index, update.chunk.output
        choice = self._choices.setdefault(index, _Choice())
        reports = self.wanted.params.logprobs is not None or self.wanted.trace
        if not update.chunk.text and output is None and not (reports and update.chunk.token_ids) and choice.begun:
            return None
        said: dict[str, Any] = {"index": index}
        if self.wanted.is_chat:
            said["delta"] = {"content": update.chunk.text}
            if not choice.begun:
                said["delta"] = {"role": "assistant", "content": update.chunk.text, "refusal": None}
        else:
            said["text"] = update.chunk.text if choice.begun else self._echo(index) + update.chunk.text
        choice.begun = True
        asked = self.wanted.params.logprobs is not None
        said["logprobs"] = self._logprobs(index, update.logprobs) if asked else None
        said["finish_reason"] = None if output is None else finish_reason(output)
        if self.wanted.trace:
            said["tokens"] = self._trace(update)
        chunk = {**self._head("chat.completion.chunk"), "choices": [said]}
        return chunk if told is None else {**chunk, "metrics": {"speculative_decoding": told}}

    def last_chunk(self, outputs: Sequence[Output], told: dict[str, Any]) -> dict[str, Any]:
        """The chunk without choices that carries the usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], **self._tail(outputs, told)}

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind if self.wanted.is_chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def _tail(self, outputs: Sequence[Output], told: dict[str, Any]) -> dict[str, Any]:
        prompt = sum(len(ids) for ids in self.wanted.prompts)
        completion = sum(len(output.token_ids) for output in outputs)
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
        usage["total_tokens"] = prompt + completion
        cached = sum(output.cached_tokens for output in outputs[:: self.wanted.num_choices])  # of a prompt's first text
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return {"usage": {**usage, "speculative_decoding": told}, "metrics": {"speculative_decoding": told}}

    def _echo(self, index: int) -> str:
        return self.wanted.echoes[index // self.wanted.num_choices] if self.wanted.echoes else ""

    def _trace(self, update: Update) -> list[dict[str, Any]]:
        """Each token of a step: where it came from, and what it adds to the text."""
        choice = self._choices.setdefault(update.job.index, _Choice())
        choice.pieces = choice.pieces or Detokenizer(self.tokens.tokenizer)
        accepted, told = update.chunk.num_accepted, []
        for at, token in enumerate(update.chunk.token_ids):
            kind = "accepted" if at < accepted else update.source
            told.append({"id": token, "text": choice.pieces.push([token]), "kind": kind})
        if update.chunk.output is not None and told:
            told[-1]["text"] = str(told[-1]["text"]) + choice.pieces.finish()
        return told

    def _logprobs(self, index: int, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        if self.wanted.is_chat:
            return {"content": [self._entry(entry) for entry in entries], "refusal": None}
        text, choice = self.tokens.legacy, self._choices.setdefault(index, _Choice())
        offsets = []
        for entry in entries:
            offsets.append(choice.length)
            choice.length += len(choice.decoder.decode(self.tokens.added(entry.token)))
        return {
            "tokens": [text(entry.token) for entry in entries],
            "token_logprobs": [_number(entry.logprob) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The best tokens and the emitted one."""
        best = {self.tokens.legacy(token): _number(value) for token, value in entry.top}
        return {**best, self.tokens.legacy(entry.token): _number(entry.logprob)}

    def _entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        top = [self._scored(token, value) for token, value in entry.top]
        return {**self._scored(entry.token, entry.logprob), "top_logprobs": top}

    def _scored(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self.tokens.text(token), "logprob": _number(logprob), "bytes": list(self.tokens.raw(token))}


def finish_reason(output: Output) -> str:
    """As clients know it; what neither they nor the text ended was ended by the server's shutdown."""
    return "shutdown" if output.finish_reason == "cancelled" else str(output.finish_reason)


def _number(value: float) -> float:
    return max(value, _LOWEST)
