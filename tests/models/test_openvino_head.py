"""A converted EAGLE head against the same head in torch; and heads that are refused, with the reason."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.errors import CorruptModel, ModelNotFound, PairingError, UnsupportedModel
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, check_target, check_teachable, read_config, vocabulary_hash
from draftproof.models.head_files import load_head, save_head
from draftproof.models.head_source import resolve_head
from draftproof.types import Slots

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = {"vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG = LlamaConfig(**SIZE, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3)
IDS = torch.arange(1, 61, 3)


@pytest.fixture(scope="module")
def parts():
    """(head, target's module) with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = AutoModelForCausalLM.from_config(CONFIG).eval()
        head = EagleHead(EagleConfig.of_target(CONFIG, draft_vocab_size=len(IDS))).eval()
    head.set_draft_ids(IDS)
    return head, model


@pytest.fixture(scope="module")
def converted(parts, tmp_path_factory, converted_head):
    return converted_head(*parts, tmp_path_factory.mktemp("head"))


class Grown:
    """Attention over all rows so far."""

    def __init__(self):
        self.keys, self.values = [], []

    def __call__(self, query, key, value):
        self.keys.append(key.repeat_interleave(2, 1)[0])
        self.values.append(value.repeat_interleave(2, 1)[0])
        keys, values = torch.stack(self.keys), torch.stack(self.values)
        weights = torch.softmax(torch.einsum("hd,lhd->hl", query[0], keys) * query.shape[-1] ** -0.5, -1)
        return torch.einsum("hl,lhd->hd", weights, values)[None]


@torch.no_grad()
def in_torch(parts, tokens, states, num_own):
    """Logits [T, Vd] of a text whose last rows take the head's own output."""
    (head, model), attend, rows = parts, Grown(), []
    output, hidden = model.get_output_embeddings().weight[IDS], None
    for place, token in enumerate(tokens.tolist()):
        own = place >= len(tokens) - num_own
        fused = hidden if own else head.fc(torch.from_numpy(states[place]))[None]
        embedded = model.get_input_embeddings()(torch.tensor([token]))
        hidden = head(embedded, fused, torch.tensor([place]), attend)
        rows.append(functional.linear(head.norm(hidden), output)[0].numpy())
    return np.array(rows)


@pytest.mark.parametrize("pieces", [(9,), (4, 5), (1, 1, 7)])
def test_a_converted_head_says_what_the_head_says(parts, converted, pieces):
    rng = np.random.default_rng(len(pieces))
    tokens = rng.integers(0, 61, 12).astype(np.int32)
    states = rng.standard_normal((12, converted.feature_width)).astype(np.float32)
    truth = in_torch(parts, tokens, states, 3)
    table, place, own = np.array([3, 1], np.int32), 0, None
    for size in pieces:
        part = Rows(tokens[place : place + size], size, Slots(table, place, size))
        logits, own = converted.draft(flat_batch([part], 1), states[place : place + size], None)
        place += size
        np.testing.assert_allclose(logits.row(0), truth[place - 1], atol=2e-4)
    while place < 12:
        logits, own = converted.draft(
            flat_batch([Rows(tokens[place : place + 1], 1, Slots(table, place, 1))], 1), None, own
        )
        np.testing.assert_allclose(logits.row(0), truth[place], atol=2e-4)
        place += 1


def test_a_warm_up_of_a_head_changes_nothing(parts, converted):
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 61, 6).astype(np.int32)
    states = rng.standard_normal((6, converted.feature_width)).astype(np.float32)
    table = np.array([2], np.int32)
    converted.draft(flat_batch([Rows(tokens[:4], 4, Slots(table, 0, 4))], 1), states[:4], None)
    converted.warm_up()
    logits, _ = converted.draft(flat_batch([Rows(tokens[4:], 2, Slots(table, 4, 2))], 1), states[4:], None)
    np.testing.assert_allclose(logits.row(0), in_torch(parts, tokens, states, 0)[-1], atol=2e-4)


def test_sequences_of_one_forward_keep_to_themselves(parts, converted):
    rng = np.random.default_rng(9)
    texts = [rng.integers(0, 61, size).astype(np.int32) for size in (5, 1, 8)]
    states = [rng.standard_normal((len(text), converted.feature_width)).astype(np.float32) for text in texts]
    rows = [Rows(t, len(t), Slots(np.array([i], np.int32), 0, len(t))) for i, t in enumerate(texts)]
    logits, _ = converted.draft(flat_batch(rows, 1), np.concatenate(states), None)
    for index, (text, state) in enumerate(zip(texts, states, strict=True)):
        np.testing.assert_allclose(logits.row(index), in_torch(parts, text, state, 0)[-1], atol=2e-4)


def test_a_head_comes_back_from_its_folder(parts, tmp_path):
    head, _ = parts
    save_head(head, tmp_path / "h", {"card": {"data": "none"}})
    again = load_head(tmp_path / "h")
    assert again.config == head.config
    assert again.draft_ids.tolist() == IDS.tolist()
    for name, tensor in head.state_dict().items():
        other = again.state_dict()[name]
        assert torch.equal(tensor.bfloat16().float() if tensor.is_floating_point() else tensor, other)
    assert json.loads((tmp_path / "h" / "config.json").read_text())["card"] == {"data": "none"}


TARGET = {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 61}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 96}, "hidden size of 64, this one has 96"),
        ({"num_hidden_layers": 5}, "4 layers, this one has 5"),
        ({"vocab_size": 62}, "vocabulary of 61, this one has 62"),
        ({"vocab_size": None}, "vocabulary of 61, this one has None"),
    ],
)
def test_a_head_of_another_target_is_refused_with_the_difference(parts, change, words):
    check_target(parts[0].config, TARGET)
    with pytest.raises(PairingError, match=words):
        check_target(parts[0].config, TARGET | change)


def test_a_head_of_another_tokenizer_is_refused(parts):
    words = {f"t{i}": i for i in range(61)}
    values = parts[0].config.to_json() | {"tokenizer": vocabulary_hash(words)}
    values["feature_layers"] = tuple(values.pop("feature_layers"))
    config = EagleConfig(**{name: value for name, value in values.items() if name != "kind"})
    check_target(config, TARGET, words)
    swapped = words | {"t3": 4, "t4": 3}
    with pytest.raises(PairingError, match="another tokenizer"):
        check_target(config, TARGET, swapped)


def test_folders_that_hold_no_head(parts, tmp_path):
    with pytest.raises(ModelNotFound, match="holds no draft head"):
        read_config(tmp_path)
    with pytest.raises(ModelNotFound, match="no draft head '/nowhere'"):
        resolve_head("/nowhere", "demo")
    with pytest.raises(ModelNotFound, match="no draft head ships for this model"):
        resolve_head(None, "other")
    save_head(parts[0], tmp_path)
    whole = (tmp_path / "config.json").read_text()
    for bad in ("{", "[]", "{}", whole.replace("eagle3", "medusa"), whole.replace('"hidden_size"', '"size"')):
        (tmp_path / "config.json").write_text(bad)
        with pytest.raises(CorruptModel):
            read_config(tmp_path)
    (tmp_path / "config.json").write_text(whole.replace('"hidden_size": 64', '"hidden_size": 32'))
    with pytest.raises(CorruptModel, match=r"is not the head its config\.json describes"):
        load_head(tmp_path)
    (tmp_path / "config.json").write_text(whole)
    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    with pytest.raises(CorruptModel):
        load_head(tmp_path)


def test_the_shipped_head_is_whole():
    found = resolve_head(None, "demo")
    head = load_head(found.folder)
    assert sum(tensor.numel() for tensor in head.parameters()) < 6_000_000
    assert found.config.tokenizer is not None


def test_a_target_that_no_head_can_be_built_for_is_refused_by_name():
    check_teachable(CONFIG.to_dict())
    with pytest.raises(UnsupportedModel, match="models of type 'gpt2'"):
        check_teachable({"model_type": "gpt2", "n_embd": 64})


def test_an_embedding_of_which_one_row_is_read_is_no_cost(parts, converted):
    """Draft lengths go by the bytes that a forward goes through (float32 here, as it was saved)."""
    head, _ = parts
    read = sum(part.numel() for name, part in head.named_parameters() if "norm" not in name) + len(IDS) * 64
    assert converted.weight_bytes == pytest.approx(4 * read, rel=0.05)
