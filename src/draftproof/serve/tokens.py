"""Single tokens as text and bytes, for log-probabilities: what each adds to a text, also where it is half a character.

A tokenizer decodes whole texts; alone, a token may lose its leading space (metaspace pieces) or come out as U+FFFD (a
part of a character). So the bytes of byte-level pieces and of byte-fallback tokens are read from the vocabulary.

Invariant: the bytes of the tokens of a text, joined, are the UTF-8 of the text, special tokens left out, for the usual
kinds of tokenizer; what is no UTF-8 is written as escapes like \\xe2\\x82.

Does not know: laws, answers.
"""

from __future__ import annotations

from functools import lru_cache

from draftproof.text.tokenizer import Tokenizer

_MARK = "\N{REPLACEMENT CHARACTER}"
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


@lru_cache(maxsize=1)
def _alphabet() -> dict[str, int]:
    """Character -> byte of byte-level pieces: printable bytes stand for themselves, others follow from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in own}
    others = [byte for byte in range(256) if byte not in set(own)]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


class TokenTexts:
    """Texts and bytes of single tokens of one tokenizer, kept as they are asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._pieces = {token: piece for piece, token in tokenizer.vocabulary().items()}
        self._known: dict[int, bytes] = {}

    def raw(self, token: int) -> bytes:
        """What the token adds to a text; the name of a special token; nothing for an id without a token."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._bytes(token)
        return known

    def added(self, token: int) -> bytes:
        """The same, and nothing for a special token."""
        return b"" if token in self.tokenizer.special_ids else self.raw(token)

    def text(self, token: int) -> str:
        """The same as text, escapes where it is no UTF-8."""
        return self.raw(token).decode("utf-8", "backslashreplace")

    def legacy(self, token: int) -> str:
        """The same as the completions route names it: half characters are marked "bytes:"."""
        raw = self.raw(token)
        text = raw.decode("utf-8", "backslashreplace")
        return text if text.encode("utf-8") == raw else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def _bytes(self, token: int) -> bytes:
        tokenizer, piece = self.tokenizer, self._pieces.get(token, "")
        if token in tokenizer.byte_ids:
            return bytes([tokenizer.byte_ids[token]])
        if token in tokenizer.special_ids:
            return piece.encode("utf-8", "replace")
        text = tokenizer.decode([token])
        if _MARK in text and _MARK not in piece and all(char in _alphabet() for char in piece):
            return bytes(_alphabet()[char] for char in piece)
        if piece.startswith(_SPACE) and not text.startswith(" "):
            text = " " + text
        return text.encode("utf-8", "replace")
