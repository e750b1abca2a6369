"""What a run asks: refused with its line before anything is written, and never both trained on and judged by."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.errors import InputError, InvalidPrompt
from draftproof.train.questions import ROOM, Asked, Fit, asked_of_file, digest, fitting, split


class Letters:
    """A tokenizer of a token a letter; its chat template adds four and refuses systems."""

    has_chat_template = True

    def encode(self, text):
        return [ord(letter) % 50 for letter in text]

    def chat(self, messages):
        if any(message["role"] == "system" for message in messages):
            raise InvalidPrompt("the template refuses a system")
        return [0] * 4 + self.encode("".join(message["content"] for message in messages))


FIT = Fit(Letters(), 50, 64)


def test_the_first_line_that_cannot_be_asked_is_named(tmp_path):
    data = tmp_path / "data.jsonl"
    bad = {
        "takes 104 tokens of the model's 64, and an answer needs 16": {"prompt": "a" * 100},
        "not valid Unicode": {"prompt": "\ud800 hi"},
        "the template refuses a system": {"messages": [{"role": "system", "content": "x"}]},
    }
    for words, record in bad.items():
        data.write_text("\n".join(map(json.dumps, [{"prompt": "good"}, {"prompt": "fine"}, record])))
        with pytest.raises(InputError) as refused:
            fitting(asked_of_file(data, None), FIT, data, print)
        assert f"line 3 of {data}: " in str(refused.value)
        assert words in str(refused.value)


def test_the_longest_prompt_that_leaves_room_is_asked():
    assert FIT.takes("a" * (64 - ROOM - 4))
    assert not FIT.takes("a" * (64 - ROOM - 3))


def test_shipped_prompts_that_do_not_fit_are_left_out_and_counted():
    said = []
    asked = [Asked("a" * length, "chat") for length in (10, 99, 20)]
    assert fitting(asked, FIT, None, said.append) == [asked[0], asked[2]]
    assert said == ["1 of 3 shipped prompts are left out: too long for this model"]
    with pytest.raises(InputError, match=r"no shipped prompt can be asked .*: give --data"):
        fitting([asked[1]], FIT, None, said.append)


def test_without_a_chat_template_strings_are_asked_and_messages_refused():
    letters = Letters()
    letters.has_chat_template = False
    bare = Fit(letters, 50, 64)
    assert not bare.chat
    bare.check("a" * (64 - ROOM))
    with pytest.raises(InputError, match="no chat template, so messages can't be asked"):
        bare.check([{"role": "user", "content": "a"}])


def test_a_bucket_field_that_no_line_has_is_refused(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a", "task": "x"}')
    assert asked_of_file(data, "task")[0].bucket == "x"
    with pytest.raises(InputError, match=r"no line of .* has the bucket field 'tsk'"):
        asked_of_file(data, "tsk")


@given(
    prompts=st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abc")), max_size=120),
    seed=st.integers(0, 3),
)
def test_no_prompt_is_on_both_sides_and_none_is_lost(prompts, seed):
    asked = [Asked(f"prompt {number}", bucket) for number, bucket in prompts]
    data, held = split(asked, seed)
    assert not {each.prompt for each in data} & {each.prompt for each in held}
    assert {each.prompt for each in data} | {each.prompt for each in held} == {each.prompt for each in asked}
    assert len({each.prompt for each in held}) <= 32 + 3


def test_every_bucket_is_judged_whatever_the_order():
    asked = [Asked(f"prompt {number}", "ab"[number % 2]) for number in range(30)]
    assert {each.bucket for each in split(asked, 0)[1]} == {"a", "b"}
    assert split(asked, 0) == split(asked, 0)
    assert split(asked, 0) != split(asked, 1)
    assert split(asked[:19], 0) == (asked[:19], [])
    many = [Asked(f"prompt {number}", "one") for number in range(5000)]
    assert len(split(many, 0)[1]) == 32


def test_a_digest_is_of_what_is_asked_and_takes_what_json_cannot_hold():
    when = SimpleNamespace(day=3)
    one = [Asked([{"role": "user", "content": "a", "at": when}], "chat")]
    assert digest(one) == digest([Asked(one[0].prompt, "chat", line=7)])
    assert digest(one) != digest([Asked(one[0].prompt, "other")])
