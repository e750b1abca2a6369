"""Our tokenizer equals transformers' AutoTokenizer on the same folder, and broken folders are clear errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from draftproof.errors import CorruptModel, InvalidPrompt, ModelNotFound
from draftproof.text import Tokenizer

TEXTS = [
    "",
    "hello world",
    " leading and trailing ",
    "It's a café , isn't it ?\n\n\ttabs",
    "你好,世界 🙂👩‍🚀 é",
    "<|im_start|>user\nhi<|im_end|><|pad|><|extra|><s></s>",
    "long " * 200,
]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "  Write a haiku.  "}],
    [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "<|im_end|>"},
        {"role": "assistant", "content": "ok"},
    ],
]


@pytest.fixture(scope="module", params=["bpe_folder", "fallback_folder"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, Any]:
    transformers = pytest.importorskip("transformers")
    folder = request.getfixturevalue(request.param)
    return Tokenizer.from_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("special", [True, False])
def test_encodes_like_transformers(pair: tuple[Tokenizer, Any], text: str, special: bool) -> None:
    ours, theirs = pair
    assert ours.encode(text, special=special) == theirs.encode(text, add_special_tokens=special)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("skip", [True, False])
def test_decodes_like_transformers(pair: tuple[Tokenizer, Any], text: str, skip: bool) -> None:
    ours, theirs = pair
    ids = ours.encode(text)
    for cut in (len(ids), len(ids) // 2, 1):
        assert ours.decode(ids[:cut], skip_special=skip) == theirs.decode(ids[:cut], skip_special_tokens=skip)


def test_knows_the_same_tokens(pair: tuple[Tokenizer, Any]) -> None:
    ours, theirs = pair
    assert ours.vocabulary() == theirs.get_vocab()
    assert ours.vocab_size == len(theirs)
    before = ours.encode("h", special=False)  # a space at the very start may be dropped
    alone = theirs.decode(before)
    skipped = {t for t in range(ours.vocab_size) if theirs.decode([*before, t], skip_special_tokens=True) == alone}
    assert ours.special_ids == skipped


def test_limits_saved_in_the_file_do_not_cut_or_pad(bpe_folder: Path, tmp_path: Path) -> None:
    spec = json.loads((bpe_folder / "tokenizer.json").read_text(encoding="utf-8"))
    spec["truncation"] = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    spec["padding"] = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    spec["padding"]["pad_to_multiple_of"] = None
    ours, limited = Tokenizer.from_folder(bpe_folder), _with(bpe_folder, tmp_path, tokenizer__json=spec)
    for text in ("a", "a long text of many more tokens"):
        assert Tokenizer.from_folder(limited).encode(text) == ours.encode(text)


def test_the_older_map_of_special_tokens_is_read(fallback_folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    older = {"bos_token": {"content": "<s>", "lstrip": False}, "pad_token": "<pad>"}
    folder = _with(fallback_folder, tmp_path, special_tokens_map__json=older)
    ours, theirs = Tokenizer.from_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours.vocabulary() == theirs.get_vocab()
    assert ours.encode("hello<pad>") == theirs.encode("hello<pad>")
    assert ours.decode(ours.encode("hello<pad>")) == "hello"


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("prompted", [True, False])
def test_chats_like_transformers(bpe_folder: Path, chat: list[dict[str, str]], prompted: bool) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(bpe_folder))
    expected = theirs.apply_chat_template(chat, add_generation_prompt=prompted, return_dict=False)
    assert Tokenizer.from_folder(bpe_folder).chat(chat, add_generation_prompt=prompted) == expected


def _with(folder: Path, tmp_path: Path, **files: object) -> Path:
    """A copy of a folder with some files replaced; None removes one."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for name, value in files.items():
        path = copy / name.replace("__", ".")
        path.unlink(missing_ok=True)
        if value is not None:
            path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return copy


def test_a_template_that_writes_its_bos_gets_no_second_one(fallback_folder: Path, tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer = Tokenizer.from_folder(_with(fallback_folder, tmp_path, chat_template__jinja=template))
    ids = tokenizer.chat([{"role": "user", "content": "hello"}])
    bos = tokenizer.vocabulary()["<s>"]
    assert ids.count(bos) == 1
    assert ids[0] == bos
    assert tokenizer.encode("hello")[0] == bos


def test_a_template_in_the_config_is_found(fallback_folder: Path, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "hello"}]
    for template in ("hello", named):
        folder = _with(fallback_folder, tmp_path, tokenizer_config__json={"chat_template": template})
        assert Tokenizer.from_folder(folder).chat([{"role": "user", "content": "x"}]) != []
        assert Tokenizer.from_folder(folder).decode(Tokenizer.from_folder(folder).chat(CHATS[0])) == "hello"
        shutil.rmtree(folder)


def test_the_time_is_at_hand_for_templates(fallback_folder: Path, tmp_path: Path) -> None:
    folder = _with(
        fallback_folder, tmp_path, chat_template__jinja="{{ strftime_now('%%') }}{{ add_generation_prompt }}"
    )
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.decode(tokenizer.chat(CHATS[0], add_generation_prompt=False)) == "%False"


def test_a_template_can_reach_nothing_of_the_host(fallback_folder: Path, tmp_path: Path) -> None:
    attack = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    tokenizer = Tokenizer.from_folder(_with(fallback_folder, tmp_path, chat_template__jinja=attack))
    with pytest.raises(InvalidPrompt, match="refused"):
        tokenizer.chat(CHATS[0])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {2, 0}),
        ({"generation_config__json": None}, {0}),
        ({"generation_config__json": {"eos_token_id": None}}, {0}),
        ({"generation_config__json": {"eos_token_id": 7}}, {7}),
        ({"generation_config__json": None, "config__json": {"text_config": {"eos_token_id": [5]}}}, {5}),
        ({"generation_config__json": None, "config__json": None}, {2}),  # the tokenizer's own eos_token
        ({"generation_config__json": None, "config__json": None, "tokenizer_config__json": None}, set()),
    ],
)
def test_where_the_end_ids_come_from(
    bpe_folder: Path, tmp_path: Path, files: dict[str, object], expected: set[int]
) -> None:
    assert Tokenizer.from_folder(_with(bpe_folder, tmp_path, **files)).eos_ids == expected


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"tokenizer__json": None}, ModelNotFound, "no tokenizer.json"),
        ({"tokenizer__json": "{"}, CorruptModel, "tokenizer.json is not a tokenizer"),
        ({"tokenizer__json": {"model": {"type": "BPE"}}}, CorruptModel, "tokenizer.json is not a tokenizer"),
        ({"tokenizer_config__json": "{]"}, CorruptModel, "tokenizer_config.json is not JSON"),
        ({"tokenizer_config__json": [1]}, CorruptModel, "must hold a JSON object"),
        ({"config__json": "", "generation_config__json": None}, CorruptModel, "config.json is not JSON"),
        ({"generation_config__json": {"eos_token_id": "</s>"}}, CorruptModel, "must be token ids"),
        ({"special_tokens_map__json": "3"}, CorruptModel, "must hold a JSON object"),
        ({"generation_config__json": {"eos_token_id": [-1]}}, CorruptModel, "must be token ids"),
        ({"chat_template__jinja": None, "tokenizer_config__json": {"chat_template": 3}}, CorruptModel, "must be text"),
    ],
)
def test_broken_folders_are_one_clear_line(
    bpe_folder: Path, tmp_path: Path, files: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Tokenizer.from_folder(_with(bpe_folder, tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no folder"):
        Tokenizer.from_folder(tmp_path / "nowhere")


def test_a_binary_file_is_corrupt(bpe_folder: Path, tmp_path: Path) -> None:
    folder = _with(bpe_folder, tmp_path)
    (folder / "tokenizer.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptModel, match="can't read"):
        Tokenizer.from_folder(folder)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "non-empty list"),
        ("hello", "non-empty list"),
        ({"role": "user", "content": "x"}, "non-empty list"),
        (["hello"], 'needs a "role"'),
        ([{"content": "x"}], 'needs a "role"'),
        ([{"role": "user"}], "must be text"),
        ([{"role": "bad", "content": "x"}], "no such role: bad"),
        ([{"role": "user", "content": 3}], "must be text"),
    ],
)
def test_messages_of_a_wrong_shape_are_refused(bpe: Tokenizer, messages: Any, message: str) -> None:
    with pytest.raises(InvalidPrompt, match=message):
        bpe.chat(messages)


@pytest.mark.parametrize(
    ("template", "opening"),
    [
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}", "<user>"),
        ("Be kind.\n{% for m in messages %}{{ m.content | trim }}{% endfor %}", "Be kind.\n"),
        ("{{ messages | length }}", None),
    ],
)
def test_what_stands_before_a_users_words(
    fallback_folder: Path, tmp_path: Path, template: str, opening: str | None
) -> None:
    tokenizer = Tokenizer.from_folder(_with(fallback_folder, tmp_path, chat_template__jinja=template))
    assert tokenizer.user_opening() == ([] if opening is None else tokenizer.encode(opening, special=False))
    assert (tokenizer.user_opening() == []) == (opening is None)


def test_no_template_no_chat(fallback: Tokenizer, bpe: Tokenizer) -> None:
    assert bpe.has_chat_template
    assert not fallback.has_chat_template
    with pytest.raises(InvalidPrompt, match="no chat template"):
        fallback.chat(CHATS[0])
    with pytest.raises(InvalidPrompt, match="no chat template"):
        fallback.user_opening()


def test_a_template_that_does_not_compile(fallback_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(_with(fallback_folder, tmp_path, chat_template__jinja="{% if %}"))
    assert tokenizer.encode("hello")
    with pytest.raises(CorruptModel, match="does not compile"):
        tokenizer.chat(CHATS[0])


def test_a_lone_surrogate_is_refused(bpe: Tokenizer) -> None:
    with pytest.raises(InvalidPrompt, match="valid Unicode"):
        bpe.encode("a\ud800b")
