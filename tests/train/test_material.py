"""Texts of another run, taken over."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from draftproof.errors import CorruptModel, InputError
from draftproof.train.material import PART, Material, written
from draftproof.train.prompts import HELD_OUT
from draftproof.train.questions import Asked

ANY = SimpleNamespace(chat=True, takes=lambda _: True)


def work(folder, parts, held=True):
    folder.mkdir()
    for number in range(parts):
        record = {"bucket": "chat", "prompt": [1, 2], "tokens": [number, 4, 5, 6, 7], "text": "t"}
        (folder / f"texts-{number:05d}.json").write_text(json.dumps([record]))
    if held:
        (folder / "held-out.json").write_text(json.dumps([record | {"bucket": "text"}]))
    return folder


def test_texts_of_another_run_are_copied_and_stay_when_it_is_gone(tmp_path):
    theirs = work(tmp_path / "theirs", 3)
    (theirs / "texts-notes.json").write_text("mine")
    ours = tmp_path / "ours"
    ours.mkdir()
    material = Material(ours, [], 0, 8, ANY)
    assert material.take(theirs, 100) == 3
    for file in theirs.iterdir():
        file.unlink()
    assert [text.tokens.tolist() for text in material.texts(3)] == [[1, 2, n, 4, 5, 6, 7] for n in range(3)]
    assert material.held_out()[0].bucket == "text"
    assert not (ours / "texts-notes.json").exists()


def test_a_folder_without_texts_is_refused(tmp_path):
    (tmp_path / "ours").mkdir()
    material = Material(tmp_path / "ours", [], 0, 8, ANY)
    for theirs in (tmp_path / "none", work(tmp_path / "no-held", 2, held=False)):
        with pytest.raises(InputError, match="holds no texts of another run"):
            material.take(theirs, 100)
    broken = work(tmp_path / "broken", 2)
    (broken / "texts-00001.json").write_text("[")
    with pytest.raises(CorruptModel, match=r"texts-00001.json can't be read"):
        material.take(broken, 100)


class Writer:
    """Answers every prompt; to the opening of a user's turn it says the next of `turns`."""

    tokenizer = SimpleNamespace(user_opening=lambda: [7, 8])

    def __init__(self, turns):
        self.turns, self.asked, self.seeds = turns, [], []

    def generate(self, prompts, params, *, chat=None):
        if chat is False:
            assert prompts == [[7, 8]] * len(prompts)
            self.seeds.append([each.seed for each in params])
            said = [self.turns[i % len(self.turns)] for i in range(len(prompts))]
        else:
            self.asked.append(list(prompts))
            said = [("stop", "An answer. It ends here.")] * len(prompts)
        return [
            SimpleNamespace(prompt_token_ids=[1, 2], token_ids=[3, 4, 5, 6], text=text, finish_reason=reason)
            for reason, text in said
        ]


GIVEN = [Asked(f"given {i}", "chat") for i in range(300)]
TURNS = [("stop", f" Is {i} a good number to begin with? ") for i in range(20)]


def test_the_target_makes_up_prompts_and_what_is_no_prompt_is_left_out(tmp_path):
    bad = [("length", "It never ends and"), ("stop", "Hi"), ("stop", "x" * 401), ("stop", HELD_OUT[0]), TURNS[0]]
    writer = Writer(TURNS + bad)
    Material(tmp_path, GIVEN, 3, 8, ANY, make_up=True).write_part(writer)
    [asked] = writer.asked
    assert asked[:20] == [turn.strip() for _, turn in TURNS]
    assert asked[20:] == [each.prompt for each in GIVEN[20 : PART - 24]]


def test_made_up_prompts_never_take_more_than_half_of_a_part(tmp_path):
    writer = Writer([("stop", f"Is {i} a good number to begin with?") for i in range(96)])
    Material(tmp_path, GIVEN, 3, 8, ANY, make_up=True).write_part(writer)
    assert [prompt.startswith("Is ") for prompt in writer.asked[0]] == [True] * 52 + [False] * 52


def test_a_part_is_the_same_again_and_the_next_makes_up_others(tmp_path):
    parts, seeds = [], []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        material, writer = Material(tmp_path / name, GIVEN, 3, 8, ANY, make_up=True), Writer(TURNS)
        material.write_part(writer)
        material.write_part(writer)
        parts.append([(tmp_path / name / f"texts-0000{i}.json").read_bytes() for i in range(2)])
        seeds.append(writer.seeds)
    assert parts[0] == parts[1]
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


def test_users_prompts_are_asked_alone(tmp_path):
    writer = Writer(TURNS)
    Material(tmp_path, GIVEN, 3, 8, ANY).write_part(writer)
    assert not writer.seeds
    assert writer.asked[0] == [each.prompt for each in GIVEN[: PART - 24]]


def test_a_template_that_does_not_say_where_users_begin_leaves_the_shipped_prompts(tmp_path):
    writer = Writer(TURNS)
    writer.tokenizer = SimpleNamespace(user_opening=list)
    Material(tmp_path, GIVEN, 3, 8, ANY, make_up=True).write_part(writer)
    assert not writer.seeds
    assert len(writer.asked[0]) == PART - 24


def test_a_target_without_a_chat_template_is_asked_as_it_is(tmp_path):
    writer, chats = Writer(TURNS), []
    generate = writer.generate
    writer.generate = lambda prompts, params, *, chat=None: (chats.append(chat), generate(prompts, params))[1]
    bare = SimpleNamespace(chat=False, takes=lambda _: True)
    Material(tmp_path, GIVEN, 3, 8, bare, make_up=True).write_part(writer)
    Material(tmp_path, GIVEN, 3, 8, bare, make_up=True).write_held_out(writer, [])
    assert chats == [False] * 3
    assert not writer.seeds


def test_prompts_that_do_not_fit_are_not_asked(tmp_path):
    writer = Writer(TURNS)
    small = SimpleNamespace(chat=True, takes=lambda prompt: len(prompt) < 30)
    material = Material(tmp_path, [Asked("short", "chat")], 3, 8, small, make_up=True)
    for _ in range(2):
        material.write_part(writer)
    material.write_held_out(writer, [])
    assert all(len(prompt) < 30 for asked in writer.asked for prompt in asked)


def test_texts_of_another_model_are_refused(tmp_path):
    theirs = work(tmp_path / "theirs", 2)
    assert len(written(theirs, 8, "ours")) == 3  # nothing says whose they are
    with pytest.raises(InputError, match="token id 7, the model has 7: the texts are another model's"):
        written(theirs, 7)
    (theirs / "run.json").write_text(json.dumps({"target": "theirs"}))
    assert len(written(theirs, 8, "theirs")) == 3
    with pytest.raises(InputError, match="are another model's"):
        written(theirs, 8, "ours")


def test_a_gap_in_the_texts_of_another_run_is_refused(tmp_path):
    theirs = work(tmp_path / "theirs", 3)
    (theirs / "texts-00001.json").unlink()
    with pytest.raises(InputError, match=r"lacks texts-00001\.json, and has later parts"):
        written(theirs, 100)


@pytest.mark.parametrize("record", [{}, 3, {"prompt": [1]}, {"prompt": [1], "tokens": ["a"], "bucket": "", "text": ""}])
def test_a_part_that_holds_something_else_is_said(tmp_path, record):
    (tmp_path / "texts-00000.json").write_text(json.dumps([record]))
    with pytest.raises(CorruptModel, match=r"texts-00000\.json can't be read: delete it"):
        Material(tmp_path, [], 0, 8, ANY).texts(1)


def test_answers_that_say_nothing_are_said(tmp_path):
    record = {"bucket": "chat", "prompt": [1, 2], "tokens": [0], "text": ""}
    for name in ("texts-00000.json", "held-out.json"):
        (tmp_path / name).write_text(json.dumps([record, record]))
    material = Material(tmp_path, [], 0, 8, ANY)
    for look in (lambda: material.texts(1), material.held_out):
        with pytest.raises(InputError, match="all 2 answers of the target have at most 3 tokens"):
            look()
