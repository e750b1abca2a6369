"""Text <-> token ids of one model, over the `tokenizers` library alone.

transformers reads the same files but takes seconds to import, which a command that starts in two can't afford. What it
adds to tokenizer.json is done here, and held equal by a test: special tokens that only the config names, no truncation,
no padding, the chat template. Whether a text gets a BOS is tokenizer.json's word alone, as it is there.

Invariant: `encode`, `decode` and `chat` give what transformers' AutoTokenizer gives for the same folder.

Does not know: the model, streams (`TextStream`), where folders come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from draftproof.errors import CorruptModel, InvalidPrompt
from draftproof.text.chat import render_chat
from draftproof.text.files import TokenizerFiles, read_tokenizer_files

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LONG = 1 << 14  # characters; from here on by the call that holds no interpreter lock: a server's other threads go on
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _content(entry: object) -> str | None:
    """The text of a token in a config: a string, or an object with "content"."""
    if isinstance(entry, Mapping):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None


def _extra(config: Mapping[str, Any]) -> Iterator[object]:
    """Special tokens without a role of their own, under the names that versions of transformers gave them."""
    for key in ("additional_special_tokens", "extra_special_tokens"):
        entries = config.get(key) or ()
        yield from entries.values() if isinstance(entries, Mapping) else entries


def _has_decoder(spec: object, kind: str) -> bool:
    """True where a decoder of this type is in the (perhaps nested) decoder of a tokenizer.json."""
    if isinstance(spec, Mapping):
        return spec.get("type") == kind or any(_has_decoder(part, kind) for part in spec.values())
    return isinstance(spec, list) and any(_has_decoder(part, kind) for part in spec)


class Tokenizer:
    """One model's tokenizer; immutable, safe to share between threads.

    vocab_size: the highest token id plus one (a model may have more rows, for padding).
    eos_ids: the ids that end a text by the model's own configuration; empty where it names none.
    special_ids: the ids that `decode` leaves out by default.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        try:
            self._backend = Backend.from_str(files.tokenizer_json)
        except Exception as error:  # the library raises a bare Exception for every fault of the file
            path = files.folder / "tokenizer.json"
            raise CorruptModel(f"{path} is not a tokenizer ({error}): get the model again") from error
        self._backend.no_truncation()
        self._backend.no_padding()
        self._template = files.chat_template
        self._names = {name: text for name in _NAMED if (text := _content(files.config.get(name))) is not None}
        self._add_config_tokens(files.config)
        self._vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._vocabulary.values(), default=-1) + 1
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        self.eos_ids = files.eos_ids if files.eos_ids is not None else self._own_eos()
        self.byte_ids = self._byte_tokens()

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """Reads a model folder. Raises ModelNotFound or CorruptModel."""
        return cls(read_tokenizer_files(path))

    @property
    def has_chat_template(self) -> bool:
        """True where `chat` can be used."""
        return self._template is not None

    def vocabulary(self) -> dict[str, int]:
        """A copy of the whole vocabulary: token -> id."""
        return dict(self._vocabulary)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds what the tokenizer puts around a text (a BOS token, say)."""
        try:
            if len(text) < _LONG:
                return list(self._backend.encode(text, add_special_tokens=special).ids)
            return list(self._backend.encode_batch([text], add_special_tokens=special)[0].ids)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidPrompt(f"the text can't be tokenised ({error}): it must be valid Unicode text") from error

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of ids. Bytes that are no UTF-8 come out as U+FFFD; an id without a token as nothing."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def chat(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> list[int]:
        """Ids of a conversation of {"role", "content"} messages under the model's chat template.

        The template writes its own BOS, so none is added. Raises InvalidPrompt without a template, and for messages
        that the template refuses.
        """
        return self.encode(self._rendered(messages, add_generation_prompt), special=False)

    def user_opening(self) -> list[int]:
        """Ids of what the chat template writes before a user's first words; [] where that can't be told.

        Raises InvalidPrompt without a template.
        """
        words = "draftproof-user-words"
        before, found, _ = self._rendered([{"role": "user", "content": words}], True).partition(words)
        return self.encode(before, special=False) if found else []

    def _rendered(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        if self._template is None:
            raise InvalidPrompt("this model has no chat template: give the prompt as text (--no-chat)")
        return render_chat(self._template, messages, self._names, add_generation_prompt=add_generation_prompt)

    def _add_config_tokens(self, config: Mapping[str, Any]) -> None:
        """Makes special what the config calls special; tokenizer.json need not say so."""
        known = {entry.content for entry in self._backend.get_added_tokens_decoder().values() if entry.special}
        listed = config.get("added_tokens_decoder")
        if isinstance(listed, Mapping):
            entries = [entry for entry in listed.values() if isinstance(entry, Mapping) and entry.get("special")]
            self._add_special(entries, known)
        self._add_special([*(config.get(name) for name in _NAMED), *_extra(config)], known)

    def _add_special(self, entries: Iterable[object], known: set[str]) -> None:
        for entry in entries:
            text = _content(entry)
            if text is None or text in known:
                continue
            flags = entry if isinstance(entry, Mapping) else {}
            sides = {side: bool(flags.get(side, False)) for side in ("lstrip", "rstrip", "single_word")}
            self._backend.add_special_tokens([AddedToken(text, special=True, normalized=False, **sides)])
            known.add(text)

    def _own_eos(self) -> frozenset[int]:
        text = self._names.get("eos_token")
        token = None if text is None else self._backend.token_to_id(text)
        return frozenset() if token is None else frozenset({token})

    def _byte_tokens(self) -> Mapping[int, int]:
        """Token id -> byte of a byte-fallback tokenizer, {} for every other kind."""
        decoder = self._backend.decoder
        if decoder is None or not _has_decoder(json.loads(decoder.__getstate__()), "ByteFallback"):
            return {}
        matches = ((token, _BYTE.fullmatch(text)) for text, token in self._vocabulary.items())
        return {token: int(match[1], 16) for token, match in matches if match}
