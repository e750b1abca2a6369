"""Token ids -> text, a few at a time, without ever decoding the whole again.

A tokenizer's decode is not a sum over tokens: a character may span tokens, a first space may be dropped. So the tokens
since the last character boundary but one (the *window*) are decoded together, and what goes beyond the part already
known is new. Only what no later token can change is given out:

- an end that decodes to U+FFFD may be half a character and waits (UTF-8 leaves at most one such mark open);
- byte-fallback tokenizers turn a whole run of byte tokens into U+FFFD, one a byte, when any of it is no UTF-8; such a
  run waits until it ends. Its whole characters so far are `open`: not final, but what is there if the output is cut.

Invariant: everything `push` returned, then `finish`, joined, is `tokenizer.decode` of all tokens.

Does not know: stop strings, requests.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from draftproof.text.tokenizer import Tokenizer

_MARK = "\N{REPLACEMENT CHARACTER}"
_LONG = 16  # tokens in a window without a boundary: this is no character any more, but bytes that are no UTF-8
_KEPT = 4  # tokens of such a window that are kept: no sequence of UTF-8 is longer than 4 bytes


class Detokenizer:
    """Incremental decode of one output, special tokens left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._fresh = 0  # window[:fresh] lies before the last boundary: kept for its context only
        self._known = 0  # characters of the window's text already given out
        self._run = _ByteRun()

    @property
    def open(self) -> str:
        """Whole characters after the text given out that a later token may still take back."""
        return self._run.text

    @property
    def newly_open(self) -> str:
        """Of `open`, what the last push completed: tokens must be pushed one by one for this."""
        return self._run.newest

    def push(self, tokens: Sequence[int]) -> str:
        """The text that became final with these tokens."""
        skipped, size = self._tokenizer.special_ids, self._tokenizer.vocab_size
        plain = [token for token in tokens if token not in skipped and token < size]
        self._run.newest = ""
        if not self._tokenizer.byte_ids:
            return self._decode_on(plain)
        return "".join(map(self._push_one, plain))

    def finish(self) -> str:
        """What was held back, as the decode of the whole has it at the end."""
        self._run = _ByteRun()
        text = self._tokenizer.decode(self._window)[self._known :]
        self._window, self._fresh, self._known = [], 0, 0
        return text

    def _push_one(self, token: int) -> str:
        byte = self._tokenizer.byte_ids.get(token)
        if byte is not None:
            self._window.append(token)
            self._run.push(byte)
            return ""
        self._run = _ByteRun()
        return self._decode_on([token])

    def _decode_on(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return ""
        self._window.extend(tokens)
        text = self._tokenizer.decode(self._window)
        open_end = self._is_open(text)
        delta = text[self._known : len(text) - open_end]
        self._known += len(delta)
        if not open_end:
            self._shorten(self._fresh)
            self._fresh = len(self._window)
        elif len(self._window) - self._fresh > _LONG:
            self._shorten(len(self._window) - _KEPT)
            self._fresh = 0
        return delta

    def _shorten(self, first: int) -> None:
        """Drops window[:first]; a window must decode to something, or it is no context for what follows."""
        rest = self._window[first:]
        text = self._tokenizer.decode(rest)
        if not text:
            return
        self._window = rest
        self._known = len(text) - self._is_open(text)

    def _is_open(self, text: str) -> bool:
        """True where the last mark may become a character: with byte fallback it can't once its run has ended."""
        return not self._tokenizer.byte_ids and text.endswith(_MARK)


class _ByteRun:
    """The text of byte tokens in a row: `text` is its whole characters, "" for good once a byte is no UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._characters: list[str] = []
        self._valid = True
        self.newest = ""

    @property
    def text(self) -> str:
        return "".join(self._characters)

    def push(self, byte: int) -> None:
        self.newest = ""
        if not self._valid:
            return
        try:
            self.newest = self._decoder.decode(bytes([byte]))
        except UnicodeDecodeError:
            self._valid = False
            self._characters.clear()
        else:
            self._characters.append(self.newest)
