"""Prompts and completions as token ids: the boundary lies where decoding has it, the end where the model ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from draftproof.errors import InvalidPrompt, PromptTooLong
from draftproof.measure.chatlog import Completion, Sample
from draftproof.measure.encode import Encoder
from draftproof.text.tokenizer import Tokenizer

USER = {"role": "user", "content": "Hi"}
END, OPEN, SAYS = 256, 257, 258  # ids of <end>, <u>, <a> in the toy folder


def encoder_of(folder: Path, chat: bool | None = None, most: int | None = None, room: Any = None) -> Encoder:
    tokenizer = Tokenizer.from_folder(folder)
    return Encoder(tokenizer, tokenizer.vocab_size, chat, room or (lambda prompt, completion: None), most)


def sample(prompt: Any, completion: Completion | None = None) -> Sample:
    return Sample(3, prompt if isinstance(prompt, str) else tuple(prompt), completion, "b")


def text_of(folder: Path, ids: Any) -> str:
    return Tokenizer.from_folder(folder).decode(ids.tolist(), skip_special=False)


def test_a_plain_prompt_becomes_the_user_s_turn_where_there_is_a_template(model_folder: Path) -> None:
    made = encoder_of(model_folder).prompt(0, sample("Hi"), False)
    assert text_of(model_folder, made.tokens) == "<u>Hi<end>\n<a>"
    assert (made.number, made.line, made.bucket, made.completion) == (0, 3, "b", None)
    assert text_of(model_folder, encoder_of(model_folder, chat=False).prompt(0, sample("Hi"), False).tokens) == "Hi"


@pytest.mark.parametrize("prompt", ["Hi", [USER]])
def test_a_completion_ends_with_the_template_s_own_end(model_folder: Path, prompt: Any) -> None:
    made = encoder_of(model_folder).prompt(0, sample(prompt, Completion("Yes.")), True)
    assert made.completion is not None
    assert made.completion.tolist()[-1] == END
    assert text_of(model_folder, made.completion) == "Yes.<end>"  # and not the template's line break behind it


def test_an_answer_that_was_cut_has_no_end(model_folder: Path) -> None:
    made = encoder_of(model_folder).prompt(0, sample([USER], Completion("Yes.", False)), True)
    assert made.completion is not None
    assert text_of(model_folder, made.completion) == "Yes."


def test_an_empty_answer_of_a_model_is_its_end(model_folder: Path) -> None:
    made = encoder_of(model_folder).prompt(0, sample([USER], Completion("")), True)
    assert made.completion is not None
    assert made.completion.tolist() == [END]
    with pytest.raises(InvalidPrompt, match="the completion is empty"):
        encoder_of(model_folder).prompt(0, sample([USER], Completion("", False)), True)


@pytest.mark.parametrize(("ended", "tail"), [(None, ""), (False, ""), (True, "<end>")])
def test_plain_text_ends_only_where_it_is_known_to_have_ended(model_folder: Path, ended: Any, tail: str) -> None:
    made = encoder_of(model_folder, chat=False).prompt(0, sample("Hi", Completion(" there", ended)), True)
    assert made.completion is not None
    assert text_of(model_folder, made.completion) == " there" + tail


def test_a_cap_scores_the_first_tokens(model_folder: Path) -> None:
    made = encoder_of(model_folder, most=2).prompt(0, sample([USER], Completion("Yes.")), True)
    assert made.completion is not None
    assert text_of(model_folder, made.completion) == "Ye"


def make_folder(folder: Path, backend: Backend, template: str | None = None) -> Path:
    folder.mkdir()
    backend.add_special_tokens(["<end>"])
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>"} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text("{}")
    return folder


def test_a_merge_across_the_boundary_does_not_move_it(tmp_path: Path) -> None:
    vocab = {"x": 0, "a": 1, "b": 2, "ab": 3, "\n": 4}
    folder = make_folder(tmp_path / "m", Backend(models.BPE(vocab=vocab, merges=[("a", "b")])))
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.encode("xab") == [0, 3]
    made = encoder_of(folder).prompt(0, sample("xa", Completion("bab")), True)
    assert made.tokens.tolist() == [0, 1]
    assert made.completion is not None
    assert made.completion.tolist() == [2, 3]


def test_no_space_is_put_before_a_completion(tmp_path: Path) -> None:
    """As sentencepiece puts one before every text: of the joint text, and of a completion tokenised on its own."""
    backend = Backend(models.BPE(vocab={"▁": 0, "a": 1, "b": 2, "\n": 3, "ab": 4}, merges=[("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    folder = make_folder(tmp_path / "m", backend)
    for prompt, completion, ids in (("b", "a", [1]), ("a", "ba", [2, 1])):
        made = encoder_of(folder).prompt(0, sample(prompt, Completion(completion)), True)
        assert made.completion is not None
        assert made.completion.tolist() == ids


_LAST_TURN_ONLY = (
    "{% if add_generation_prompt %}{% for m in messages %}{{ m['content'] }}{% endfor %}<a>"
    "{% else %}{{ messages[-1]['content'] }}<end>{% endif %}"
)
_ANOTHER_PROMPT_FOR_TRAINING = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<a><u>{% else %}<end>{% endif %}"
)


@pytest.mark.parametrize("template", [_LAST_TURN_ONLY, _ANOTHER_PROMPT_FOR_TRAINING])
def test_a_template_that_rewrites_the_conversation_leaves_the_answer_s_own_text(
    toy: Any, tmp_path: Path, template: str
) -> None:
    folder = toy.make_folder(tmp_path / "m", template)
    made = encoder_of(folder).prompt(0, sample([USER], Completion("Yes.")), True)
    assert made.completion is not None
    assert text_of(folder, made.completion) == "Yes.<end>"


@pytest.mark.parametrize(
    ("prompt", "chat", "message"),
    [
        ([USER], False, "drop --no-chat"),
        ("\ud800", False, "not valid Unicode"),
        ([{"role": "user", "content": "\ud800"}], None, "valid Unicode"),
        ([USER], None, "no completion to score"),
    ],
)
def test_what_can_t_be_encoded_says_why(model_folder: Path, prompt: Any, chat: bool | None, message: str) -> None:
    with pytest.raises(InvalidPrompt, match=message):
        encoder_of(model_folder, chat).prompt(0, sample(prompt), True)


def test_messages_without_a_template_are_refused(toy: Any, tmp_path: Path) -> None:
    folder = toy.make_folder(tmp_path / "m", None)
    with pytest.raises(InvalidPrompt, match="no chat template"):
        encoder_of(folder).prompt(0, sample([USER]), False)


def test_room_is_asked_for_both_lengths(model_folder: Path) -> None:
    asked = []

    def room(prompt: int, completion: int | None) -> None:
        asked.append((prompt, completion))
        if prompt + (completion or 0) > 10:
            raise PromptTooLong("too long")

    encoder = encoder_of(model_folder, False, room=room)
    encoder.prompt(0, sample("12345"), False)
    encoder.prompt(0, sample("12345", Completion("12345")), True)
    with pytest.raises(PromptTooLong):
        encoder.prompt(0, sample("12345", Completion("123456")), True)
    assert asked == [(5, None), (5, 5), (5, 6)]


def test_special_tokens_of_the_toy(model_folder: Path) -> None:
    """The ids that the tests above rely on."""
    assert [Tokenizer.from_folder(model_folder).encode(mark)[0] for mark in ("<end>", "<u>", "<a>")] == [
        END,
        OPEN,
        SAYS,
    ]
