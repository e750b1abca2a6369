"""An answer of `/v1/completions` -> a `Sample`: which token ids were emitted and, where it is told, how they came.

Token ids come from the first of these that a server gives, and from the same one ever after (`Reader.how`):

    "token_ids"   choices[].token_ids (vLLM)
    "trace"       choices[].tokens[] with id and kind (draftproof; its kinds give the rounds)
    "logprobs"    choices[].logprobs: "token_id:N", or `content[].id`, or texts of single tokens that name one id only
    "text"        the text, encoded again: not always the ids that were sampled, so no law can be tested with it; two
                  servers that are read alike can still be compared

Invariant: a server that stops giving what it gave before, or gives what makes no sense, is a `SubjectFailed` that says
so; ids are never guessed.

Does not know: connections, what was asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.certify.types import Job, Round, Sample, SubjectFailed
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import FinishReason, TokenLogprobs

_MARK = "token_id:"
_ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class Reader:
    """Reads the answers of one server. tokenizer: to read texts; None where the server gives ids."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.how: str | None = None
        self._tokenizer = tokenizer
        self._by_text: dict[str, int | None] | None = None

    def sample(self, answer: Any, job: Job, logprobs: bool) -> Sample:
        """Of the only choice. logprobs: they were asked for."""
        choice = _choice(answer)
        finish = _ENDS.get(str(choice.get("finish_reason")))
        if finish is None:
            raise SubjectFailed(f"the text broke off: finish reason {choice.get('finish_reason')!r}")
        tokens = self._ended(self._tokens(choice), job, finish)
        _check_count(answer, tokens)
        told = _logprobs(choice, tokens) if logprobs else None
        rounds = _rounds([each["kind"] for each in choice["tokens"]]) if self.how == "trace" else None
        return Sample(tuple(tokens), finish, rounds, told, choice.get("text"))

    def _tokens(self, choice: Mapping[str, Any]) -> list[int]:
        found = self._found(choice)
        how = next((name for name, ids in found.items() if ids is not None), None)
        if self.how is None:
            if how is None:
                raise SubjectFailed("the server gives neither token ids nor log-probabilities: give a tokenizer")
            self.how = how
        ids = found.get(self.how)
        if ids is None:
            raise SubjectFailed(f"the server stopped giving token ids by {self.how!r} half-way")
        return ids

    def _found(self, choice: Mapping[str, Any]) -> dict[str, list[int] | None]:
        return {
            "token_ids": _ids(choice.get("token_ids")),
            "trace": _traced(choice.get("tokens")),
            "logprobs": self._by_logprobs(choice.get("logprobs")),
            "text": self._by_encoding(choice.get("text")) if self.how in (None, "text") else None,
        }

    def _by_logprobs(self, value: Any) -> list[int] | None:
        if not isinstance(value, Mapping):
            return None
        content = value.get("content")
        if isinstance(content, Sequence) and all(isinstance(each, Mapping) and "id" in each for each in content):
            return _ids([each["id"] for each in content])
        names = value.get("tokens")
        if not isinstance(names, Sequence) or isinstance(names, str):
            return None
        ids = [self.named(name) for name in names]
        return None if None in ids else _ids(ids)

    def named(self, name: object) -> int | None:
        """The id behind a token's name in log-probabilities; None where it names none, or several."""
        if not isinstance(name, str):
            return None
        if name.startswith(_MARK):
            digits = name.removeprefix(_MARK)
            return int(digits) if digits.isascii() and digits.isdigit() else None
        if self._tokenizer is None:
            return None
        if self._by_text is None:
            self._by_text = _texts(self._tokenizer)
        return self._by_text.get(name)

    def _by_encoding(self, text: Any) -> list[int] | None:
        if self._tokenizer is None or not isinstance(text, str):
            return None
        return list(self._tokenizer.encode(text, special=False))

    def _ended(self, tokens: list[int], job: Job, finish: FinishReason) -> list[int]:
        """With the end id, where a server leaves it out and there is only one that it can be."""
        if finish != "stop" or self.how in ("token_ids", "trace") or job.params.stop:
            return tokens
        if (tokens and tokens[-1] in job.stop_ids) or len(job.stop_ids) != 1:
            return tokens
        return [*tokens, *job.stop_ids]


def _choice(answer: Any) -> Mapping[str, Any]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, Sequence) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise SubjectFailed("the answer is none of /v1/completions: it has no single choice")
    return choices[0]


def _check_count(answer: Mapping[str, Any], tokens: Sequence[int]) -> None:
    """The server's own count, where it gives one; it may leave out the end id."""
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    if isinstance(count, int) and not len(tokens) - 1 <= count <= len(tokens):
        raise SubjectFailed(f"the server counts {count} tokens, and gives {len(tokens)}: its ids can't be told")


def _ids(value: Any) -> list[int] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if any(not isinstance(each, int) or isinstance(each, bool) for each in value):
        raise SubjectFailed("the server gives token ids that are no integers")
    return [int(each) for each in value]


def _traced(value: Any) -> list[int] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if any(not isinstance(each, Mapping) or not {"id", "kind"} <= each.keys() for each in value):
        return None
    return _ids([each["id"] for each in value])


def _rounds(kinds: Sequence[str]) -> tuple[Round, ...]:
    """Rounds of a traced text: each ends with the first token that is not accepted; the last may end earlier.

    A bonus shows that all its drafts were judged; how many more were drafted behind a refusal is not told.
    """
    rounds, accepted = [], 0
    for kind in kinds:
        if kind == "accepted":
            accepted += 1
            continue
        tested = accepted + (kind == "correction")
        rounds.append(Round(accepted + 1, accepted, tested, tested))
        accepted = 0
    return (*rounds, *((Round(accepted, accepted, accepted, accepted),) if accepted else ()))


def _logprobs(choice: Mapping[str, Any], tokens: Sequence[int]) -> tuple[TokenLogprobs, ...]:
    """Raises SubjectFailed where they are not those of the tokens."""
    value = choice.get("logprobs")
    numbers = value.get("token_logprobs") if isinstance(value, Mapping) else None
    if numbers is None and isinstance(value, Mapping) and isinstance(value.get("content"), Sequence):
        numbers = [each.get("logprob") for each in value["content"]]
    if not isinstance(numbers, Sequence) or len(numbers) < len(tokens) - 1:
        raise SubjectFailed("the server stopped giving log-probabilities half-way")
    if any(not isinstance(each, (int, float)) or math.isnan(each) for each in numbers):
        raise SubjectFailed("the server gives log-probabilities that are no numbers")
    return tuple(TokenLogprobs(token, float(number), ()) for token, number in zip(tokens, numbers, strict=False))


def _texts(tokenizer: Tokenizer) -> dict[str, int | None]:
    """Text of a single token -> its id; None for a text that several have."""
    found: dict[str, int | None] = {}
    for piece, token in tokenizer.vocabulary().items():
        text = piece if token in tokenizer.special_ids else tokenizer.decode([token])
        found[text] = None if text in found else token
    return found
