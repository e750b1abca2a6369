"""Converted Medusa heads against the same heads in torch; and heads that are refused, with the reason."""

from __future__ import annotations

import json

import numpy as np
import openvino as ov
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.errors import CorruptModel, ModelNotFound, PairingError
from draftproof.models import convert, convert_medusa
from draftproof.models.eagle_config import check_target, vocabulary_hash
from draftproof.models.head_files import load_medusa, save_head
from draftproof.models.head_source import resolve_medusa
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig, read_medusa_config
from draftproof.models.openvino_medusa import OpenVINOMedusa

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = {"vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIG = LlamaConfig(**SIZE, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3)
IDS = torch.arange(1, 61, 3)
TARGET = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 61}


def made(own_output=False):
    """(heads, target's module) with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = AutoModelForCausalLM.from_config(CONFIG).eval()
        config = MedusaConfig(64, 3, 2, 61, len(IDS), 2, 128, own_output=own_output)
        heads = MedusaHeads(config).eval()
        for parameter in heads.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    heads.set_draft_ids(IDS)
    return heads, model


@pytest.fixture(scope="module", params=[False, True], ids=["shared rows", "own rows"])
def parts(request):
    return made(request.param)


def written(parts, folder, weights="float32"):
    graph, layers = convert_medusa.build(*parts)
    assert layers == []
    ov.save_model(convert.compress(graph, weights), folder / "graph.xml", compress_to_fp16=False)
    np.save(folder / "draft_ids.npy", IDS.numpy().astype(np.int32))
    return OpenVINOMedusa(folder, parts[0].config, threads=1)


@torch.no_grad()
def in_torch(parts, states):
    heads, model = parts
    return heads(torch.from_numpy(states), model.get_output_embeddings().weight[IDS]).numpy()


def test_converted_heads_say_what_the_heads_say(parts, tmp_path):
    heads, rng = written(parts, tmp_path), np.random.default_rng(1)
    assert heads.draft_ids.tolist() == IDS.tolist()
    for count in (1, 2, 3, 5, 8, 1):
        states = rng.standard_normal((count, 64)).astype(np.float32)
        said = heads.guess(states)
        assert said.shape == (count, 3, len(IDS))
        np.testing.assert_allclose(said, in_torch(parts, states), atol=2e-4)


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_row_does_not_depend_on_those_beside_it(tmp_path, weights):
    heads, rng = written(made(), tmp_path, weights), np.random.default_rng(2)
    states = rng.standard_normal((17, 64)).astype(np.float32)
    alone = np.concatenate([heads.guess(states[i : i + 1]).copy() for i in range(17)])
    for size in (2, 3, 7, 17):
        assert np.array_equal(heads.guess(states[:size]), alone[:size])


def test_fresh_heads_say_what_the_target_says():
    """The state is the one behind the last norm: the target's own output rows make its logits of it."""
    _, model = made()
    heads = MedusaHeads(MedusaConfig.of_target(CONFIG, 3, len(IDS)))
    heads.set_draft_ids(IDS)
    assert heads.config.feature_layers == (2,)
    with torch.no_grad():
        output = model(input_ids=torch.arange(9)[None], output_hidden_states=True)
        said = heads(output.hidden_states[heads.config.feature_layers[0]], model.get_output_embeddings().weight[IDS])
    for number in range(3):
        torch.testing.assert_close(said[:, :, number], output.logits[..., IDS], atol=1e-4, rtol=1e-4)


def test_names_are_those_of_public_checkpoints():
    assert set(made(own_output=True)[0].state_dict()) == {
        "d2t",
        *(f"{k}.{block}.linear.{part}" for k in range(3) for block in range(2) for part in ("weight", "bias")),
        *(f"{k}.2.weight" for k in range(3)),
    }
    heads = made()[0]
    states = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    by_hand = states
    for block in range(2):
        linear = functional.linear(by_hand, heads[1][block].linear.weight, heads[1][block].linear.bias)
        by_hand = by_hand + functional.silu(linear)
    assert torch.equal(heads.logits(1, states, torch.eye(64)), by_hand)


def test_heads_come_back_from_their_folder(parts, tmp_path):
    heads, _ = parts
    save_head(heads, tmp_path, {"card": {"data": "none"}})
    again = load_medusa(tmp_path)
    assert again.config == heads.config
    assert again.draft_ids.tolist() == IDS.tolist()
    for name, tensor in heads.state_dict().items():
        other = again.state_dict()[name]
        assert torch.equal(tensor.bfloat16().float() if tensor.is_floating_point() else tensor, other)
    assert resolve_medusa(tmp_path).config == heads.config
    assert convert_medusa.load(tmp_path) is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 96}, "hidden size of 64, this one has 96"),
        ({"num_hidden_layers": 5}, "2 layers, this one has 5"),
        ({"vocab_size": 62}, "vocabulary of 61, this one has 62"),
    ],
)
def test_heads_of_another_target_are_refused_with_the_difference(change, words):
    config = MedusaConfig(64, 3, 1, 61, 20, 2, 128, vocabulary_hash({"a": 0}))
    check_target(config, TARGET, {"a": 0})
    with pytest.raises(PairingError, match=words):
        check_target(config, TARGET | change)
    with pytest.raises(PairingError, match="another tokenizer"):
        check_target(config, TARGET, {"b": 0})


def test_folders_that_hold_no_heads(tmp_path):
    with pytest.raises(ModelNotFound, match="holds no Medusa heads"):
        read_medusa_config(tmp_path)
    with pytest.raises(ModelNotFound, match="no Medusa heads '/nowhere'"):
        resolve_medusa("/nowhere")
    with pytest.raises(ModelNotFound, match="no Medusa heads ship"):
        resolve_medusa(None)
    assert convert_medusa.load(tmp_path) is None
    save_head(made()[0], tmp_path)
    whole = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(whole.replace('"medusa"', '"eagle3"'))
    with pytest.raises(CorruptModel, match=r"is not of Medusa heads \(its kind is 'eagle3'"):
        read_medusa_config(tmp_path)
    for bad in ("{", "[]", "{}", whole.replace('"num_heads"', '"heads"'), whole.replace(": 3,", ": 0,")):
        (tmp_path / "config.json").write_text(bad)
        with pytest.raises(CorruptModel):
            read_medusa_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(json.loads(whole) | {"hidden_size": 32}))
    with pytest.raises(CorruptModel, match=r"is not the head its config\.json describes"):
        load_medusa(tmp_path)
    (tmp_path / "config.json").write_text(whole)
    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    with pytest.raises(CorruptModel):
        load_medusa(tmp_path)
