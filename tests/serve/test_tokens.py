"""Single tokens as text and bytes: the bytes of a text's tokens, joined, are the text's."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from draftproof.serve.tokens import TokenTexts
from draftproof.text.tokenizer import Tokenizer

TEXT = "naïve 日本語 🙂 x"


@pytest.fixture
def texts_of(tmp_path):
    """texts_of(backend) -> (tokenizer, its TokenTexts)."""

    def make(backend: Backend) -> tuple[Tokenizer, TokenTexts]:
        backend.add_special_tokens(["<end>"])
        backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
        tokenizer = Tokenizer.from_folder(tmp_path)
        return tokenizer, TokenTexts(tokenizer)

    return make


def byte_level() -> Backend:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: index for index, char in enumerate(alphabet)} | {"Ġx": 256, "æĹ": 257}  # " x", two bytes of 日
    backend = Backend(models.BPE(vocab=vocab, merges=[("Ġ", "x"), ("æ", "Ĺ")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_fallback() -> Backend:
    pieces = ["▁", "n", "a", "▁x", "v", "e", "x", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Backend(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[("▁", "x")], byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    strip = decoders.Strip(" ", 1, 0)
    replace = decoders.Replace("▁", " ")
    backend.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip])
    return backend


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(make, texts_of):
    tokenizer, texts = texts_of(make())
    ids = tokenizer.encode(TEXT)
    assert b"".join(map(texts.raw, ids)).decode() == TEXT
    assert any("\\x" in texts.text(token) for token in ids)  # half characters are escapes
    assert texts.text(ids[-1]) == " x"  # alone, one of the two decoders drops the space


def test_half_characters_are_marked_as_the_completions_route_does(texts_of):
    _tokenizer, texts = texts_of(byte_level())
    assert texts.legacy(257) == "bytes:\\xe6\\x97"
    assert texts.legacy(256) == " x"


def test_special_tokens_have_a_name_and_add_nothing(texts_of):
    tokenizer, texts = texts_of(byte_level())
    (end,) = tokenizer.eos_ids
    assert texts.text(end) == "<end>"
    assert texts.added(end) == b""
    assert texts.raw(9999) == b""


def test_a_long_text_is_read_while_other_threads_run(truth, monkeypatch):
    """`encode` of the library holds the interpreter's lock: a prompt of megabytes stopped every stream for seconds."""
    backend, batches = truth.tokenizer._backend, []

    class Unlocked:
        def encode_batch(self, texts, add_special_tokens):
            batches.append(len(texts))
            return backend.encode_batch(texts, add_special_tokens=add_special_tokens)

    text = "naïve café " * 3000
    monkeypatch.setattr(truth.tokenizer, "_backend", Unlocked())
    assert truth.tokenizer.encode(text) == list(backend.encode(text, add_special_tokens=True).ids)
    assert batches == [1]
