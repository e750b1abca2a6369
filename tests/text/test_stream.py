"""The stream equals a slow loop that decodes everything anew after each token, on both kinds of tokenizers.

The reference below knows nothing of windows, automata or runs: after token k it has the whole decode of k tokens, takes
away what later tokens could change, and looks for occurrences that were not there after token k - 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.text import StopHit, TextStream, Tokenizer

MARK = "\N{REPLACEMENT CHARACTER}"
EXAMPLES = settings(max_examples=250, deadline=None)


def _whole_characters(run: bytes) -> str | None:
    """Text of the whole characters in a run of bytes, None where it holds a byte that is no UTF-8."""
    for cut in range(min(4, len(run) + 1)):
        try:
            text = run[: len(run) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        tail = run[len(run) - cut :]
        # an open end must be the beginning of some character
        continuations = (
            tail + bytes(rest) for n in (1, 2, 3) for rest in itertools.product((0x80, 0x90, 0xBF), repeat=n)
        )
        if not tail or any(_decodes(more) for more in continuations):
            return text
    return None


def _decodes(data: bytes) -> bool:
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def seen_after(tokenizer: Tokenizer, tokens: Sequence[int], finished: bool) -> tuple[str, str]:
    """(what is final, whole characters behind it that may be taken back) after these tokens, by decoding them all."""
    if finished:
        return tokenizer.decode(tokens), ""
    plain = [token for token in tokens if token not in tokenizer.special_ids and token < tokenizer.vocab_size]
    if tokenizer.byte_ids:
        start = len(plain)
        while start and plain[start - 1] in tokenizer.byte_ids:
            start -= 1
        final = tokenizer.decode(plain[:start])
        text = _whole_characters(bytes(tokenizer.byte_ids[token] for token in plain[start:]))
        return final, text or ""
    return tokenizer.decode(plain).removesuffix(MARK), ""


def held(text: str, stops: Sequence[str]) -> int:
    """The longest end of a text that is a proper beginning of a stop string."""
    lengths = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(lengths, default=0)


def occurrences(text: str, stops: Sequence[str]) -> set[tuple[int, int, int]]:
    """(start, end, index of the stop string) of each occurrence."""
    return {
        (start, start + len(stop), index)
        for index, stop in enumerate(stops)
        for start in range(len(text))
        if text.startswith(stop, start)
    }


def plain_loop(
    tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str], min_new_tokens: int
) -> tuple[str, StopHit | None, list[str]]:
    """The text, the stop, and what may be out after each token."""
    known: set[tuple[int, int, int]] = set()
    certain, before = set(known), ""
    out: list[str] = []
    for count in range(1, len(tokens) + 1):
        final, extra = seen_after(tokenizer, tokens[:count], count == len(tokens))
        found = occurrences(final + extra, stops)
        if not (final + extra).startswith(before):  # what was open came out otherwise
            known = certain
        new = found - known
        if new and count > min_new_tokens:
            start, _, index = min(new)
            return (final + extra)[:start], StopHit(stops[index], count), out
        certain, known, before = known | occurrences(final, stops), known | found, final + extra
        out.append(final[: len(final) - held(final, stops)] if count < len(tokens) else final)
    return tokenizer.decode(tokens), None, out


def run_stream(
    tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str], min_new_tokens: int, cuts: Sequence[int]
) -> tuple[str, StopHit | None, list[tuple[int, str]]]:
    """The joined deltas, the stop, and (tokens pushed, text out) after each push but the last."""
    stream, text, out = TextStream(tokenizer, stops, min_new_tokens), "", []
    edges = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    for begin, end in itertools.pairwise(edges):
        delta = stream.push(tokens[begin:end], finished=end == len(tokens))
        text += delta.text
        if delta.stop_hit:
            assert stream.push([5], finished=True).text == ""  # nothing comes after the end
            return text, delta.stop_hit, out
        out.append((end, text))
    return text, None, out


def check(
    tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str], min_new_tokens: int, cuts: Sequence[int]
) -> None:
    text, hit, steps = plain_loop(tokenizer, tokens, stops, min_new_tokens)
    got, got_hit, out = run_stream(tokenizer, tokens, stops, min_new_tokens, cuts)
    assert (got, got_hit) == (text, hit)
    for count, shown in out:
        assert shown == steps[count - 1]  # as early as possible, and never half a character or a begun stop string
    if hit is None and min_new_tokens == 0:
        assert not any(stop in text for stop in stops)


PIECES = ["hello", " world", "STOP", "é", "你好", "🙂", "👩‍🚀", "\n\n", "a", " ", MARK, "ST", "OP", "ll"]
STOPS = [
    "STOP",
    "TO",
    "OP",
    "é",
    "好",
    "🙂",
    "\n\n",
    "ll",
    "lo w",
    MARK,
    MARK * 2,
    "a",
    "aa",
    "aab",
    "hello world",
    "\U0001f680",
]


def _byte_tokens(tokenizer: Tokenizer, data: bytes) -> list[int]:
    if tokenizer.byte_ids:
        by_byte = {byte: token for token, byte in tokenizer.byte_ids.items()}
        return [by_byte[byte] for byte in data]
    vocabulary = tokenizer.vocabulary()
    return [vocabulary[_letter(byte)] for byte in data]


def _letter(byte: int) -> str:
    """GPT-2's printable stand-in of a byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))


@st.composite
def token_lists(draw: st.DrawFn, tokenizer: Tokenizer) -> list[int]:
    """Texts in the tokenizer's own tokens, in single bytes, as garbage bytes, or tokens at random."""
    tokens: list[int] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["own", "bytes", "garbage", "random"]))
        text = draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)))
        if kind == "own":
            tokens += tokenizer.encode(text, special=False)
        elif kind == "bytes":
            tokens += _byte_tokens(tokenizer, text.encode("utf-8", "replace"))
        elif kind == "garbage":
            tokens += _byte_tokens(tokenizer, draw(st.binary(max_size=6)))
        else:
            tokens += draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=3))
    return tokens


@pytest.mark.parametrize("name", ["bpe", "fallback"])
def test_equals_the_plain_loop(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)

    @EXAMPLES
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        tokens = data.draw(token_lists(tokenizer))
        text = tokenizer.decode(tokens)
        inside = st.tuples(st.integers(0, max(0, len(text) - 1)), st.integers(1, 5)).map(
            lambda s: text[s[0] : s[0] + s[1]]
        )
        stop = st.one_of(st.sampled_from(STOPS), inside.filter(bool)) if text else st.sampled_from(STOPS)
        stops = data.draw(st.lists(stop, max_size=3))
        cuts = data.draw(st.lists(st.integers(1, max(1, len(tokens))), max_size=len(tokens)))
        check(tokenizer, tokens, stops, data.draw(st.sampled_from([0, 0, 1, 2, 5])), cuts)

    holds()


def by_piece(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    """The tokens of several texts, each tokenised alone."""
    return [token for piece in pieces for token in tokenizer.encode(piece, special=False)]


def test_half_a_character_waits_for_its_other_half(bpe: Tokenizer) -> None:
    stream = TextStream(bpe)
    shown = [stream.push([token]).text for token in _byte_tokens(bpe, "a🙂é".encode())]
    assert shown == ["a", "", "", "", "🙂", "", "é"]


def test_bytes_that_are_no_text_come_out_at_the_end(bpe: Tokenizer, fallback: Tokenizer) -> None:
    tokens = _byte_tokens(bpe, b"a\xf0\x9f")
    stream = TextStream(bpe)
    assert [stream.push(tokens).text, stream.push([], finished=True).text] == ["a", MARK]
    tokens = by_piece(fallback, "hello") + _byte_tokens(fallback, b"A\xff")
    assert TextStream(fallback).push(tokens, finished=True).text == "hello" + 2 * MARK


def test_a_begun_stop_string_waits_and_is_given_out_when_it_is_none(bpe: Tokenizer) -> None:
    stream = TextStream(bpe, ["STOP"])
    shown = [stream.push([token]).text for token in _byte_tokens(bpe, b"aSTSTOx")]
    assert shown == ["a", "", "", "ST", "", "", "STOx"]


def test_the_stop_is_found_at_its_token_inside_a_run(bpe: Tokenizer) -> None:
    tokens = _byte_tokens(bpe, b"ab STOP cd STOP")
    delta = TextStream(bpe, ["STOP"]).push(tokens, finished=True)
    assert delta.text == "ab "
    assert delta.stop_hit == StopHit("STOP", 7)


def test_the_earliest_token_wins_then_the_earliest_start(bpe: Tokenizer) -> None:
    tokens = _byte_tokens(bpe, b"xabcd")
    assert TextStream(bpe, ["abcd", "c"]).push(tokens).stop_hit == StopHit("c", 4)
    assert TextStream(bpe, ["bcd", "abcd", "d"]).push(tokens) == _delta("x", "abcd", 5)
    assert TextStream(bpe, ["cd", "bcd"]).push(tokens) == _delta("xa", "bcd", 5)


def _delta(text: str, stop: str, num_tokens: int) -> object:
    from draftproof.text import TextDelta

    return TextDelta(text, StopHit(stop, num_tokens))


def test_stops_within_the_least_number_of_tokens_do_not_count(bpe: Tokenizer) -> None:
    tokens = _byte_tokens(bpe, b"a.b.c")
    assert TextStream(bpe, ["."], 1).push(tokens) == _delta("a", ".", 2)
    assert TextStream(bpe, ["."], 2).push(tokens) == _delta("a.b", ".", 4)
    assert TextStream(bpe, ["."], 3).push(tokens) == _delta("a.b", ".", 4)
    assert TextStream(bpe, ["."], 4).push(tokens, finished=True).text == "a.b.c"
    # one that began among them, and ends behind them, counts
    assert TextStream(bpe, [".b"], 2).push(tokens) == _delta("a", ".b", 3)


def test_a_stop_string_inside_an_open_run_of_byte_tokens(fallback: Tokenizer) -> None:
    tokens = _byte_tokens(fallback, "x你好y".encode())
    assert TextStream(fallback, ["你"]).push(tokens, finished=True) == _delta("x", "你", 4)
    ignored_then_found = TextStream(fallback, ["你", "y"], 4).push(tokens, finished=True)
    assert ignored_then_found == _delta("x你好", "y", 8)
    assert TextStream(fallback, ["y"]).push(_byte_tokens(fallback, b"\xffy"), finished=True).stop_hit is None


def test_special_tokens_count_but_have_no_text(bpe: Tokenizer) -> None:
    end = bpe.vocabulary()["<|im_end|>"]
    tokens = [end, *_byte_tokens(bpe, b"ST"), end, *_byte_tokens(bpe, b"OP")]
    assert TextStream(bpe, ["STOP"]).push(tokens, finished=True) == _delta("", "STOP", 6)


@pytest.mark.parametrize("stops", [(), ("STOP", "zz")])
@pytest.mark.parametrize("kind", ["text", "garbage", "marks", "special", "unknown", "bytes"])
def test_cost_is_linear(
    bpe: Tokenizer, fallback: Tokenizer, monkeypatch: pytest.MonkeyPatch, kind: str, stops: tuple[str, ...]
) -> None:
    tokenizer = fallback if kind == "bytes" else bpe
    tokens = {
        "text": by_piece(bpe, "The quick brown fox é 🙂 STO ") * 60,
        "garbage": _byte_tokens(bpe, b"\x80\xff\xe2") * 300,
        "marks": _byte_tokens(bpe, MARK.encode()) * 300,
        "special": [*_byte_tokens(bpe, b"a"), *[bpe.vocabulary()["<|im_end|>"]] * 1000],
        "unknown": [*_byte_tokens(bpe, b"a"), *[bpe.vocab_size] * 1000],
        "bytes": _byte_tokens(fallback, "你".encode()) * 300,
    }[kind]
    work = 0
    decode = tokenizer.decode

    def counted(ids: Sequence[int], **options: bool) -> str:
        nonlocal work
        work += len(ids)
        return decode(ids, **options)

    monkeypatch.setattr(tokenizer, "decode", counted)
    stream = TextStream(tokenizer, stops)
    text = "".join(stream.push([token]).text for token in tokens) + stream.push([], finished=True).text
    assert text == decode(tokens)
    assert work < 25 * len(tokens)


@pytest.mark.parametrize("num_bytes", range(10, 40))
def test_a_character_after_many_bytes_that_are_no_text(bpe: Tokenizer, num_bytes: int) -> None:
    tokens = _byte_tokens(bpe, b"\xff" * num_bytes + "🙂é🙂a".encode())
    stream = TextStream(bpe)
    text = "".join(stream.push([token]).text for token in tokens) + stream.push([], finished=True).text
    assert text == MARK * num_bytes + "🙂é🙂a"


def test_the_mark_as_a_token_of_its_own_does_not_wait(fallback: Tokenizer) -> None:
    stream = TextStream(fallback)
    tokens = [fallback.vocabulary()[piece] for piece in ("h", MARK, "o")]
    assert [stream.push([token]).text for token in tokens] == ["h", MARK, "o"]


def test_a_token_without_text_is_no_context(empty_piece: Tokenizer) -> None:
    tokens = [empty_piece.vocabulary()[piece] for piece in ("h", "", "▁", "h", "", "", "▁", "▁h")]
    stream = TextStream(empty_piece)
    assert "".join(stream.push([token]).text for token in tokens) == empty_piece.decode(tokens) == "h h  h"
