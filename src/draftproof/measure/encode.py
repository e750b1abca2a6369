"""Samples -> token ids: the prompt as the engine would be given it, the completion as the model would have written it.

A completion is tokenised *behind its prompt*: the whole conversation goes through the chat template (or the whole text
through the tokenizer), and what follows the prompt's own ids is the completion, up to and including the first id that
ends a text. So the boundary is where decoding had it, and no token of the template's tail is scored. Where the joint
ids do not begin with the prompt's (a merge across the boundary, a template that rewrites old turns), the completion's
text is tokenised on its own behind a line break.

Invariant: ids of prompt and completion lie in the vocabulary and fit into `room`; an answer that was cut has no end id.
Does not know: files, engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftproof.engine import prompts as prompting
from draftproof.errors import InvalidPrompt
from draftproof.measure.chatlog import Sample
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Ids

_BREAK = "\n"
Room = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One prompt to measure. number: among the usable ones, from 0; line: in the data file, from 1."""

    number: int
    line: int
    bucket: str
    tokens: Ids  # [P]
    completion: Ids | None = None  # [T], in a log


class Encoder:
    """One tokenizer and what fits.

    room(tokens of the prompt, of the completion or None) raises PromptTooLong. most: tokens of a completion that are
    scored, its first ones; None is all.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, chat: bool | None, room: Room, most: int | None) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._chat, self._room, self._most = chat, room, most

    def prompt(self, number: int, sample: Sample, scored: bool) -> Prompt:
        """Ids of a sample, of its completion too where it is `scored`.

        Raises InvalidPrompt or PromptTooLong for one that can't be measured.
        """
        messages = self._messages(sample)
        given = sample.prompt if messages is None else messages
        tokens = prompting.encode(given, self._tokenizer, self._vocab_size, None)
        if not scored:
            self._room(len(tokens), None)
            return Prompt(number, sample.line, sample.bucket, tokens)
        if sample.completion is None:
            raise InvalidPrompt("no completion to score")
        answer = self._answer(tokens.tolist(), sample, messages)[: self._most]
        if not answer or not sample.completion:  # an end of turn alone is no text to score
            raise InvalidPrompt("the completion is empty")
        self._room(len(tokens), len(answer))
        return Prompt(number, sample.line, sample.bucket, tokens, self._checked(answer))

    def _messages(self, sample: Sample) -> list[Mapping[str, Any]] | None:
        """The conversation, or None where the prompt is plain text."""
        if isinstance(sample.prompt, str):
            wrapped = self._tokenizer.has_chat_template if self._chat is None else self._chat
            return [{"role": "user", "content": sample.prompt}] if wrapped else None
        if self._chat is False:
            raise InvalidPrompt("messages are put together by the model's chat template: drop --no-chat")
        return list(sample.prompt)

    def _answer(self, prompt: list[int], sample: Sample, messages: list[Mapping[str, Any]] | None) -> list[int]:
        completion, tokenizer = sample.completion, self._tokenizer
        assert completion is not None
        if messages is None:
            joint = tokenizer.encode(f"{sample.prompt}{completion.text}")
            ids = _behind(prompt, joint)
            return self._ended(self._alone(completion.text) if ids is None else ids, completion.ended)
        turn = {"role": "assistant", "content": completion.text}
        joint = tokenizer.chat([*messages, turn], add_generation_prompt=False)
        ids = _behind(prompt, joint)
        if ids is None:
            ids = self._rest(prompt, joint)
        if ids is None:
            ids = self._alone(completion.text)
        return self._ended(ids, completion.ended is not False)

    def _rest(self, prompt: list[int], joint: list[int]) -> list[int] | None:
        """Ids of the text behind the prompt's text; None where the conversation's text does not begin with that."""
        decode = self._tokenizer.decode
        before, whole = decode(prompt, skip_special=False), decode(joint, skip_special=False)
        return self._alone(whole[len(before) :]) if whole.startswith(before) else None

    def _alone(self, text: str) -> list[int]:
        """Ids of a text that something stands before: no BOS, no space that only beginnings get."""
        encode = self._tokenizer.encode
        before, joint = encode(_BREAK, special=False), encode(_BREAK + text, special=False)
        ids = _behind(before, joint)
        return encode(text, special=False) if ids is None else ids

    def _ended(self, ids: list[int], ends: bool | None) -> list[int]:
        """The ids up to the first end id; an answer that ended has one: its own, or the only one the model knows."""
        eos = self._tokenizer.eos_ids
        place = next((index for index, token in enumerate(ids) if token in eos), None)
        kept = ids if place is None else ids[:place]
        if not ends:
            return kept
        if place is not None:
            return ids[: place + 1]
        return [*kept, *eos] if len(eos) == 1 else kept

    def _checked(self, ids: list[int]) -> Ids:
        outside = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if outside is not None:
            raise InvalidPrompt(f"the completion's token id {outside} is outside the vocabulary of {self._vocab_size}")
        return np.array(ids, np.int32)


def _behind(prompt: list[int], joint: list[int]) -> list[int] | None:
    """What of `joint` follows the prompt; None where it does not begin with it."""
    return joint[len(prompt) :] if joint[: len(prompt)] == prompt else None
