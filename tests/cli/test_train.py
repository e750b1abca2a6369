"""`train`: what is asked for, what is shown, and each way it refuses before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from draftproof.train import job

Command = Callable[..., Any]
SIZES = {"hidden_size": 16, "num_hidden_layers": 6, "num_attention_heads": 2, "vocab_size": 20}
SCORE = {"texts": 2, "acceptance": [0.5, 0.25, 0.125], "overlap": [0.5, 0.5, 0.5], "tokens_per_round": 1.6406}
REPORT = {"out": "small", "steps": 7, "texts": 120, "before": {"chat": SCORE}, "held_out": {"chat": SCORE}}


def model(folder: Path, config: Any) -> Path:
    """A tiny model with a tokenizer of letters."""
    words = {chr(97 + i): i for i in range(20)}
    folder.mkdir()
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model(tmp_path_factory.mktemp("m") / "llama", transformers.LlamaConfig(**SIZES, intermediate_size=24))


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.OPTConfig(**SIZES, ffn_dim=24, word_embed_proj_dim=16)
    return model(tmp_path_factory.mktemp("m") / "opt", config)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs that do nothing: each as (settings, kind, progress), with the report that comes out."""
    made: list[Any] = []

    class Fake:
        written = True

        def __init__(self, settings: Any, say: Any, kind: Any) -> None:
            made.append((settings, kind.name, say))

        def run(self, _: Any) -> dict[str, Any]:
            made[-1][2]("writing texts")
            return REPORT | {"written": Fake.written}

    monkeypatch.setattr(job, "Job", Fake)
    made.append(Fake)
    return made


def test_what_is_asked_for_reaches_the_run_and_its_figures_are_shown(command: Command, jobs: list[Any]) -> None:
    ran = command(
        "train", "draft-model", "--out", "small", "--layers", "4", "--minutes", "5", "--learning-rate", "3e-3"
    )
    settings, kind, _ = jobs[-1]
    assert (kind, settings.layers, settings.minutes, settings.learning_rate) == ("draft-model", 4, 5.0, 3e-3)
    assert ran.code == 0
    assert "writing texts" in ran.err
    head, now = (line.split() for line in ran.out.splitlines() if "1st" in line or " now " in line)
    assert head == ["held", "out", "when", "1st", "2nd", "3rd", "tokens", "per", "round"]
    assert now == ["chat", "now", "0.50", "0.25", "0.12", "1.64"]
    assert "7 steps on 120 texts; small" in ran.out
    quiet = command("train", "medusa", "--out", "m", "--draft-vocab", "99", "--quiet", "--json")
    assert (jobs[-1][0].draft_vocab, jobs[-1][0].layers, jobs[-1][1]) == (99, None, "medusa")
    assert quiet.json["held_out"] == {"chat": SCORE}
    assert quiet.err == ""
    command("train", "eagle", "--out", "e")
    assert (jobs[-1][0].identity["draft_vocab"], jobs[-1][0].rate) == (8192, 1e-3)
    command("train", "eagle", "--out", "e", "--init", "head")
    assert jobs[-1][0].rate == 2e-4, "a trained head unlearns at the rate of a new one"
    command("train", "eagle", "--out", "e", "--init", "head", "--learning-rate", "1e-4")
    assert jobs[-1][0].rate == 1e-4


def test_what_the_gate_refused_is_exit_code_1(command: Command, jobs: list[Any]) -> None:
    jobs[0].written = False
    ran = command("train", "draft-model", "--out", "small")
    assert ran.code == 1
    assert "the new one is worse than what is in small, which stays" in ran.err


def test_refusals_are_one_line_and_nothing_is_written(command: Command, llama: Path, opt: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "small"
    prompts.write_text('{"prompt": "a b"}\n{"prompt": 7}\n')
    given = ("--model", str(llama))
    cases: dict[str, list[str]] = {
        "at least 2 layers (the target's first and last) and fewer than the target: this one has 6, got 6": [
            "draft-model",
            *given,
            "--layers",
            "6",
        ],
        "models of type 'opt' have no single list of layers": ["draft-model", "--model", str(opt)],
        f"line 2 of {prompts}": ["draft-model", *given, "--data", str(prompts)],
        "--draft-vocab is of heads": ["draft-model", *given, "--draft-vocab", "99"],
        "--layers is of draft models": ["eagle", *given, "--layers", "2"],
        "holds no draft model that `draftproof train draft-model` wrote": ["draft-model", *given, "--init", str(llama)],
        f"{tmp_path} holds no draft model": ["draft-model", *given, "--init", str(tmp_path)],
        "--minutes must be": ["draft-model", *given, "--minutes", "0"],
        "invalid choice: 'draft'": ["draft", *given],
    }
    for said, argv in cases.items():
        refused = command("train", *argv, "--out", str(out), "--cache-dir", str(tmp_path / "cache"))
        assert (refused.code, refused.out) == (2, ""), argv
        assert len(refused.err.splitlines()) == 1, refused.err
        assert said in refused.err
        assert not out.exists()


def test_a_bad_line_leaves_the_last_checkpoint(command: Command, llama: Path, tmp_path: Path) -> None:
    prompts, work = tmp_path / "prompts.jsonl", tmp_path / "small" / "work"
    prompts.write_text('{"prompt": "a b"}\n{"prompt": "c\n')
    work.mkdir(parents=True)
    (work / "state.pt").write_bytes(b"hours of work")
    argv = ["--model", str(llama), "--data", str(prompts), "--out", str(work.parent)]
    refused = command("train", "draft-model", *argv)
    assert refused.code == 2
    assert f"line 2 of {prompts}" in refused.err
    assert [(file.name, file.read_bytes()) for file in work.iterdir()] == [("state.pt", b"hours of work")]


def test_an_empty_name_is_not_the_folder_one_is_in(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = command("train", "eagle", "--out", "")
    assert refused.code == 2
    assert "must name a folder" in refused.err
    assert not list(tmp_path.iterdir())


def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: Command) -> None:
    with pytest.raises(SystemExit):
        command("train", "--help")
    assert "draftproof train draft-model --layers 4 --out ./small" in capsys.readouterr().out
