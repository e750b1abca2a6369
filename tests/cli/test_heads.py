"""`heads`: there and back over a tiny model, what is shown, and each way it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, vocabulary_hash
from draftproof.models.head_files import save_head
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig

Command = Callable[..., Any]
WORDS = {chr(97 + i): i for i in range(20)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with a tokenizer of letters."""
    folder = tmp_path_factory.mktemp("model")
    tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="a")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=64, eos_token_id=1, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """eagle/ and medusa/ in draftproof's own format."""
    folder, config = tmp_path_factory.mktemp("heads"), transformers.AutoConfig.from_pretrained(model)
    tokenizer = vocabulary_hash(WORDS)
    for name, made in (
        ("eagle", EagleHead(EagleConfig(**_fields(EagleConfig.of_target(config, None, 8), tokenizer)))),
        ("medusa", MedusaHeads(MedusaConfig(**_fields(MedusaConfig.of_target(config, 2, 8), tokenizer)))),
    ):
        made.set_draft_ids(torch.arange(1, 17, 2))
        save_head(made, folder / name, {"card": {"texts": 3}})
    return folder


def _fields(config: Any, tokenizer: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__slots__} | {"tokenizer": tokenizer}


@pytest.mark.parametrize(
    ("kind", "form", "said"),
    [
        ("eagle", "speculators", "vllm serve org/t --speculative-config"),
        ("eagle", "eagle3", "--speculative-algorithm EAGLE3"),
        ("medusa", "medusa", None),
        ("medusa", "vllm-medusa", "vllm serve org/t --speculative-config"),
    ],
)
@pytest.mark.parametrize("rows", [[], ["--with-rows"]])
def test_there_and_back_to_the_bit(
    command: Command, model: Path, heads: Path, tmp_path: Path, kind: str, form: str, said: str | None, rows: list[str]
) -> None:
    own, out, again = str(heads / kind), str(tmp_path / "out"), str(tmp_path / "again")
    given = ("--model", str(model))
    value = command(
        "heads", "export", own, "--to", form, *given, "--target-name", "org/t", "--out", out, "--json", *rows
    )
    assert value.code == 0, value.err
    assert value.json["format"] == form
    assert said is None if value.json["command"] is None else said in value.json["command"]
    shown = command("heads", "show", out, *given, "--json").json
    assert (shown["format"], shown["draft_vocab_size"], shown["target"]) == (form, 8, str(model))
    taken = command("heads", "import", out, *given, "--out", again)
    assert taken.code == 0, taken.err
    assert f"written: {again} (draftproof" in taken.out
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (heads / kind / "model.safetensors").read_bytes()
    if kind == "eagle":
        assert "embedding: the target's; output rows: the target's" in taken.out
        assert (tmp_path / "again" / "config.json").read_bytes() == (heads / kind / "config.json").read_bytes()


def test_the_shipped_head_is_shown_without_a_model(command: Command) -> None:
    from draftproof.models.head_source import resolve_head

    shown = command("heads", "show", str(resolve_head(None, "demo").folder))
    assert shown.code == 0
    assert "feature_layers        3, 15, 29\n" in shown.out
    assert "draft_vocab_size      8192\n" in shown.out


def test_nothing_is_written_over_unless_told(command: Command, model: Path, heads: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("years of work")
    argv = ["heads", "export", str(heads / "eagle"), "--to", "eagle3", "--model", str(model), "--out"]
    refused = command(*argv, str(out))
    assert refused.code == 2
    assert refused.err == (
        f"draftproof: error: {out} holds something already: give --force to write over it, or another folder\n"
    )
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    assert command(*argv, str(out), "--force").code == 0
    assert {path.name for path in out.iterdir()} == {"notes.txt", "config.json", "model.safetensors"}
    assert "is a file" in command(*argv, str(out / "notes.txt"), "--force").err


def test_refusals_are_one_line_and_exit_code_2(command: Command, model: Path, heads: Path, tmp_path: Path) -> None:
    eagle, given, out = str(heads / "eagle"), ("--model", str(model)), ("--out", str(tmp_path / "out"))
    other = tmp_path / "other"
    other.mkdir()
    config = json.loads((model / "config.json").read_text())
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (other / name).write_bytes((model / name).read_bytes())
    (other / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 7}))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((heads / "eagle" / "config.json").read_text())
    (broken / "model.safetensors").write_bytes((heads / "eagle" / "model.safetensors").read_bytes()[:-1])
    cases: dict[str, list[str]] = {
        "6 layers, this one has 7": ["show", eagle, "--model", str(other)],
        "give --model": ["export", eagle, "--to", "eagle3", *out],
        "--model": ["import", eagle, *out],
        "invalid choice: 'gguf'": ["export", eagle, "--to", "gguf", *given, *out],
        "its kind has speculators and eagle3": ["export", eagle, "--to", "medusa", *given, *out],
        "its kind has medusa and vllm-medusa": ["export", str(heads / "medusa"), "--to", "eagle3", *given, *out],
        "no draft head '/nowhere'": ["import", "/nowhere", *given, *out],
        "there is no config.json in it": ["show", str(tmp_path)],
        "can't be read: get the draft head again": ["show", str(broken)],
        "no draft head that draftproof knows": ["show", str(model)],
        "at least 1, got 0": ["export", eagle, "--to", "eagle3", *given, *out, "--draft-tokens", "0"],
        "WHAT": [],
    }
    for said, argv in cases.items():
        refused = command("heads", *argv)
        assert (refused.code, refused.out) == (2, ""), argv
        assert len(refused.err.splitlines()) == 1, refused.err
        assert said in refused.err
    assert not (tmp_path / "out").exists()


def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: Command) -> None:
    for argv in ([], ["export"]):
        with pytest.raises(SystemExit):
            command("heads", *argv, "--help")
        assert "examples:\n  draftproof heads show" in capsys.readouterr().out


def test_the_command_line_is_read_without_torch() -> None:
    import subprocess
    import sys

    code = "import sys, draftproof.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
