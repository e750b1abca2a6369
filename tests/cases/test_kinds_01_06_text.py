"""Fault kinds 1 and 6: a run treated as one token at the end of a text; code that takes a delta for a token.

Everything is said by one reference: replay the run one token at a time. However a text was cut into runs, the same
tokens count, the text ends at the same character, and what was streamed before was the same text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from draftproof.text import StopHit, TextStream, Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte, so that the test decides where tokens end; <end> is special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    folder: Path = tmp_path_factory.mktemp("bytes")
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_folder(folder)


def cuts(tokens: Sequence[int]) -> Iterator[list[Sequence[int]]]:
    """Every way to cut a run into pieces."""
    for inner in itertools.product((False, True), repeat=len(tokens) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(inner) if cut), len(tokens)]
        yield [tokens[a:b] for a, b in itertools.pairwise(edges)]


def streamed(
    tokenizer: Tokenizer, pieces: Sequence[Sequence[int]], stop: Sequence[str], min_new_tokens: int = 0
) -> tuple[str, StopHit | None]:
    """Text and stop of one output; what comes behind a stop is pushed all the same and must change nothing."""
    stream, text, hit = TextStream(tokenizer, stop, min_new_tokens), "", None
    for index, piece in enumerate(pieces):
        delta = stream.push(piece, finished=index == len(pieces) - 1)
        assert not (hit and delta.text)
        text, hit = text + delta.text, hit or delta.stop_hit
    return text, hit


@pytest.mark.parametrize(
    ("text", "stop", "min_new_tokens", "expected"),
    [
        ("ab.cd.e", ["."], 0, ("ab", StopHit(".", 3))),  # in the middle of a run
        (".abc", ["."], 0, ("", StopHit(".", 1))),  # its first token
        ("abc.", ["."], 0, ("abc", StopHit(".", 4))),  # its last
        ("ab.cd.e", ["."], 3, ("ab.cd", StopHit(".", 6))),  # too early, then not
        ("aENDb", ["END", "N"], 0, ("aE", StopHit("N", 3))),  # the one that completes first
        ("xabab", ["abab", "bab"], 0, ("x", StopHit("abab", 5))),  # together: the one that starts first
        ("aEN", ["END"], 0, ("aEN", None)),  # begun, never completed: given out at the end
        ("éé.", ["é"], 0, ("", StopHit("é", 2))),  # a character of two tokens
        ("a🙂b", ["🙂"], 0, ("a", StopHit("🙂", 5))),  # of four
    ],
)
def test_a_stop_string_anywhere_inside_a_run(
    tokenizer: Tokenizer, text: str, stop: list[str], min_new_tokens: int, expected: tuple[str, StopHit | None]
) -> None:
    tokens = tokenizer.encode(text)
    for pieces in cuts(tokens):
        assert streamed(tokenizer, pieces, stop, min_new_tokens) == expected


def test_b26_an_end_token_inside_a_run_is_no_text(tokenizer: Tokenizer) -> None:
    end = tokenizer.vocabulary()["<end>"]
    tokens = [*tokenizer.encode("ab"), end]
    for pieces in cuts(tokens):
        assert streamed(tokenizer, pieces, ["zz"]) == ("ab", None)


def test_b27_a_stop_string_and_the_cap_on_one_token(tokenizer: Tokenizer) -> None:
    """The stop string wins, at every way to cut the run: the loop of single tokens sees it at that token."""
    for pieces in cuts(tokenizer.encode("ab.")):
        assert streamed(tokenizer, pieces, ["."]) == ("ab", StopHit(".", 3))
    for pieces in cuts(tokenizer.encode("ab")):  # a cap one token earlier: no stop
        assert streamed(tokenizer, pieces, ["."]) == ("ab", None)


def test_kind_6_a_run_may_be_longer_than_what_it_shows(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, ["STOP"])
    assert stream.push(tokenizer.encode("xS")).text == "x"
    assert stream.push(tokenizer.encode("TO")).text == ""
    assert stream.push(tokenizer.encode("X🙂STOy")[:4]).text == "STOX"  # and three of the four bytes wait
    assert stream.push(tokenizer.encode("X🙂STOy")[4:], finished=True).text == "🙂STOy"
