"""`draftproof generate`: what is printed where, the JSON object, and what reaches the library."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import options
from draftproof.cli.main import parser
from draftproof.types import SamplingParams

Command = Callable[..., Any]


def test_text_on_stdout_counts_on_stderr(command: Command, fake: Any) -> None:
    ran = command("generate", "Why?")
    assert ran.code == 0
    assert ran.out == "The sky is blue.\n"
    assert "5 tokens (length), 40.0 tokens/s, first after 0.10 s" in ran.err
    assert "2.50 tokens per target pass, acceptance 75 % (3 accepted / 4 tested)" in ran.err
    assert "accepted by position: 100 %  100 %  100 %" in ran.err
    assert "plain" not in ran.err
    assert fake.closed


def test_quiet_prints_the_text_only(command: Command, fake: Any) -> None:
    ran = command("generate", "Why?", "--quiet", "--compare")
    assert (ran.out, ran.err) == ("The sky is blue.\n", "")


def test_nothing_tested_is_no_rate(command: Command, fake: Any) -> None:
    fake.tested = 0
    assert "acceptance - (0 accepted / 0 tested)" in command("generate", "Why?").err
    assert command("generate", "Why?", "--json").json["speculation"]["acceptance"] is None


def test_json_is_one_object(command: Command, fake: Any) -> None:
    ran = command("generate", "Why?", "--json", "--seed", "3")
    value = ran.json
    assert ran.err == ""
    assert value["text"] == "The sky is blue."
    assert value["token_ids"] == [0, 1, 2, 3, 4]
    assert value["finish_reason"] == "length"
    assert value["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
    assert value["seed"] == 3
    expected = {
        "drafter": "suffix",
        "rule": "follow",
        "gamma": 4,
        "rounds": 2,
        "drafted": 4,
        "tested": 4,
        "accepted": 3,
        "acceptance": 0.75,
        "acceptance_by_position": [1.0, 1.0, 1.0],
        "tokens_per_round": 2.5,
    }
    assert expected.items() <= value["speculation"].items()
    assert {"load_s": 1.5, "ttft_s": 0.1, "decode_tokens_per_second": 40.0}.items() <= value["timing"].items()
    assert not {"plain", "speedup", "identical", "first_difference", "logprobs"} & set(value)


def test_json_with_logprobs_has_no_infinity(command: Command, fake: Any) -> None:
    entries = command("generate", "Why?", "--json", "--logprobs", "2").json["logprobs"]
    assert len(entries) == 5
    first = {"token": 0, "logprob": -0.5, "top": [{"token": 0, "logprob": -0.5}, {"token": 5, "logprob": None}]}
    assert entries[0] == first


def test_compare_identical(command: Command, fake: Any) -> None:
    ran = command("generate", "Why?", "--compare")
    assert ran.out == "The sky is blue.\n"
    assert "plain decoding: 20.0 tokens/s; speed-up 2.00x" in ran.err
    assert "text: identical, token for token" in ran.err
    value = command("generate", "Why?", "--compare", "--json").json
    assert value["plain"]["token_ids"] == [0, 1, 2, 3, 4]
    assert value["plain"]["text"] == "The sky is blue."
    assert value["plain"]["timing"]["decode_tokens_per_second"] == 20.0
    assert (value["speedup"], value["identical"], value["first_difference"]) == (2.0, True, None)


def test_compare_runs_plain_decoding_with_the_same_seed(command: Command, fake: Any) -> None:
    command("generate", "Why?", "--compare", "--temperature", "0.8")
    (prompt, with_drafts), (plain_prompt, plain) = fake.asked[-2:]
    assert prompt == plain_prompt
    assert with_drafts.max_draft_tokens is None
    assert plain.max_draft_tokens == 0
    assert with_drafts.seed is not None
    assert plain.seed == with_drafts.seed
    assert plain.temperature == 0.8


def test_compare_shows_the_first_difference(command: Command, fake: Any) -> None:
    fake.speculative = [0, 1, 2, 5, 4]
    place = {"position": 3, "plain_token": 3, "token": 5, "plain_logit": 3.375, "logit": 5.375}
    value = command("generate", "Why?", "--compare", "--json").json
    assert value["identical"] is False
    assert value["first_difference"] == place
    err = command("generate", "Why?", "--compare").err
    assert "differs from token 3 on: plain 3 (logit 3.375), speculative 5 (logit 5.375)" in err
    assert "keeps the law" not in err
    assert "keeps the law" in command("generate", "Why?", "--compare", "--rule", "reject", "--temperature", "1").err


@pytest.mark.parametrize(
    ("plain", "speculative", "expected"),
    [
        ([0, 1], [0, 1, 2], {"position": 2, "plain_token": None, "token": 2, "plain_logit": None, "logit": 2.25}),
        ([0, 1, 2], [0, 1], {"position": 2, "plain_token": 2, "token": None, "plain_logit": 2.25, "logit": None}),
    ],
)
def test_one_text_ends_before_the_other(
    command: Command, fake: Any, plain: list[int], speculative: list[int], expected: dict[str, Any]
) -> None:
    fake.plain, fake.speculative = plain, speculative
    assert command("generate", "Why?", "--compare", "--json").json["first_difference"] == expected


def test_a_request_given_up_is_exit_code_1(command: Command, fake: Any) -> None:
    fake.error = "a forward gave NaN"
    ran = command("generate", "Why?", "--json")
    assert (ran.code, ran.out, ran.err) == (1, "", "draftproof: error: a forward gave NaN\n")


def test_every_option_reaches_the_library(command: Command, fake: Any) -> None:
    sampling = (
        "--temperature 0.7 --top-k 5 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.2 "
        "--frequency-penalty 0.3 --logit-bias 4=-2.5 --logit-bias 5=-inf --bad-word foo --bad-word bar --stop END "
        "--stop STOP --stop-id 3 --ignore-eos --min-new-tokens 2 --max-new-tokens 9 --seed 7 --rule coupled "
        "--logprobs 1"
    )
    engine = (
        "--model m --weights int8 --backend torch --numerics fast --drafter model --draft-model d "
        "--draft-weights bfloat16 --exit-layer 3 --gamma 5 --tree 2,1 --kv-memory 1MiB --threads 2 --cache-dir c"
    )
    assert command("generate", "Why?", "--json", *sampling.split(), *engine.split()).code == 0
    assert fake.asked[0][1] == SamplingParams(
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={4: -2.5, 5: float("-inf")},
        bad_words=["foo", "bar"],
        stop=["END", "STOP"],
        stop_ids=[3],
        ignore_eos=True,
        min_new_tokens=2,
        max_new_tokens=9,
        seed=7,
        rule="coupled",
        logprobs=1,
    )
    given = vars(fake.arguments)
    wanted = {
        "model": "m",
        "weights": "int8",
        "backend": "torch",
        "numerics": "fast",
        "drafter": "model",
        "draft_model": "d",
        "draft_weights": "bfloat16",
        "tree": "2,1",
        "exit_layer": 3,
        "gamma": 5,
        "kv_memory": 1 << 20,
        "threads": 2,
        "cache_dir": "c",
    }
    assert wanted.items() <= given.items()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--drafter eagle --tree wide", 'a tree is "auto", "dynamic", widths like "3,2,1" or places'),
        ("--drafter cascade --tree 2,0", "at least one child a level, got (2, 0)"),
        ("--drafter suffix --tree auto", "drop --tree, or use --drafter eagle, medusa or cascade"),
        ("--drafter suffix --draft-weights int8", "drop --draft-weights, or use --drafter model, early_exit or"),
        ("--drafter early_exit --draft-weights int9", "draft_weights must be one of auto, float32"),
        ("--drafter early_exit --draft-weights int4", "draft_weights int4: no kernel here computes"),
    ],
)
def test_drafting_that_cannot_be_is_refused_before_a_model_is_loaded(
    command: Command, argv: str, says: str, tmp_path: Path
) -> None:
    ran = command("generate", "x", *argv.split(), "--cache-dir", str(tmp_path))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert says in ran.err
    assert not list(tmp_path.iterdir())


def test_help_explains_the_shapes_of_trees(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("generate", "serve", "certify", "demo"):
        with pytest.raises(SystemExit):
            command(name, "--help")
        said = " ".join(capsys.readouterr().out.split())
        assert "--tree SHAPE" in said
        assert "children by depth (3,2,1: three first tokens, two after each, one after each of these)" in said
        assert "--draft-weights W" in said


def test_the_engine_options_are_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    from draftproof.cli import options
    from draftproof.cli.main import parser

    seen: dict[str, Any] = {}
    monkeypatch.setattr(options, "LLM", lambda model, **given: seen.update(given, model=model))
    args = parser().parse_args(["generate", "x", "--gamma", "5", "--cache-dir", "c", "--drafter", "ngram"])
    options.load(args, print)
    assert seen["model"] == "demo"
    assert {"gamma": 5, "cache_dir": "c", "drafter": "ngram", "progress": print}.items() <= seen.items()
    assert set(options.ENGINE_OPTIONS) <= set(seen)


@pytest.mark.parametrize(
    ("argv", "has_template", "expected"),
    [
        ([], True, [{"role": "user", "content": "Why?"}]),
        ([], False, "Why?"),
        (["--no-chat"], True, "Why?"),
        (["--chat"], False, [{"role": "user", "content": "Why?"}]),
        (["--system", "S"], False, [{"role": "system", "content": "S"}, {"role": "user", "content": "Why?"}]),
    ],
)
def test_when_a_prompt_is_a_chat(
    command: Command, fake: Any, argv: list[str], has_template: bool, expected: Any
) -> None:
    fake.tokenizer.has_chat_template = has_template
    command("generate", "Why?", *argv)
    assert fake.asked[0][0] == expected


def test_prompts_from_files_lose_one_line_end(
    command: Command, fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("  two\nlines\n\n", encoding="utf-8")
    command("generate", "--no-chat", "--prompt-file", str(file))
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    command("generate", "--no-chat", "-")
    assert [prompt for prompt, _ in fake.asked] == ["  two\nlines\n", "from a pipe"]


@pytest.mark.parametrize(("more", "one_text"), [([], True), (["--compare"], False)])
def test_what_later_texts_gain_from_is_left_out_for_one_text(
    command: Command, fake: Any, more: list[str], one_text: bool
) -> None:
    command("generate", "Why?", *more)
    assert fake.one_text == one_text


@pytest.mark.parametrize("one_text", [True, False])
def test_one_text_leaves_its_weights_where_they_are(monkeypatch: pytest.MonkeyPatch, one_text: bool) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(options, "LLM", lambda model, **given: seen.update(given))
    options.load(parser().parse_args(["generate", "x"]), lambda _: None, one_text=one_text)
    assert seen["huge_pages"] is not one_text
