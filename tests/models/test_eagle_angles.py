"""Rotary angles of an EAGLE head: those of transformers for what its configuration says, or a refusal by name."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.eagle import EagleHead, rotary, stretched
from draftproof.models.eagle_config import EagleConfig, RopeScaling, read_config
from draftproof.models.head_files import load_head, save_head

SCALINGS = {
    "Llama 3.1": (128, 500_000.0, RopeScaling(8.0, 1.0, 4.0, 8192)),
    "Llama 3.2": (64, 500_000.0, RopeScaling(32.0, 1.0, 4.0, 8192)),
    "toy": (16, 10_000.0, RopeScaling(8.0, 1.0, 4.0, 64)),
    "odd": (24, 5_000.0, RopeScaling(3.0, 0.7, 5.5, 100)),
}


def llama(dim, theta, scaling):
    told = {"rope_type": "default"} if scaling is None else scaling.to_json()
    return LlamaConfig(head_dim=dim, rope_parameters={"rope_theta": theta} | told, max_position_embeddings=1 << 17)


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_are_those_of_transformers_to_the_bit(name):
    dim, theta, scaling = SCALINGS[name]
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    truth, factor = ROPE_INIT_FUNCTIONS["llama3"](llama(dim, theta, scaling))
    assert factor == 1
    ours = stretched(plain, scaling)
    assert torch.equal(ours, truth)
    kinds = [(ours == plain).sum(), (ours == plain / scaling.factor).sum()]
    assert min(kinds) > 0  # short waves as they were, long ones stretched
    assert sum(kinds) < len(plain), "no wave between the two"


@pytest.mark.parametrize("stretch", [False, True])
@pytest.mark.parametrize("name", SCALINGS)
def test_angles_are_those_of_transformers_to_the_bit(name, stretch):
    dim, theta, scaling = SCALINGS[name]
    scaling = scaling if stretch else None
    positions = torch.tensor([[0, 1, 7, 100, 8191, 100_000]])
    cos, sin = rotary(positions, dim, theta, scaling)
    truth = LlamaRotaryEmbedding(llama(dim, theta, scaling))(torch.zeros(1), positions)
    assert torch.equal(cos[:, :, 0], truth[0])
    assert torch.equal(sin[:, :, 0], truth[1])


def config(scaling):
    told = LlamaConfig(vocab_size=31, hidden_size=32, intermediate_size=48, num_attention_heads=2, num_hidden_layers=3)
    values = EagleConfig.of_target(told, None, 8).to_json()
    values.pop("kind")
    return EagleConfig(**values | {"feature_layers": (1, 2), "rope_scaling": scaling})


def test_a_head_keeps_its_angles_in_its_folder(tmp_path):
    for name, scaling in (("plain", None), ("stretched", RopeScaling(8.0, 1.0, 4.0, 8192))):
        head = EagleHead(config(scaling))
        head.set_draft_ids(torch.arange(8))
        save_head(head, tmp_path / name)
        assert read_config(tmp_path / name) == head.config
        assert load_head(tmp_path / name).config == head.config
        told = json.loads((tmp_path / name / "config.json").read_text())
        assert told.get("rope_scaling") == (None if scaling is None else scaling.to_json())


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"rope_type": "yarn"}, UnsupportedModel, "angles of type 'yarn'"),
        ({"factor": -1.0}, CorruptModel, "must be above 0"),
        ({"factor": float("nan")}, CorruptModel, "must be above 0"),
        ({"high_freq_factor": 1.0}, CorruptModel, "must be the larger one"),
        ({"factor": "x"}, CorruptModel, "can't be read"),
        ({"original_max_position_embeddings": None}, CorruptModel, "can't be read"),
    ],
)
def test_angles_that_can_not_be_run_are_refused_by_name(tmp_path, change, kind, words):
    save_head(EagleHead(config(RopeScaling(8.0, 1.0, 4.0, 8192))), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["rope_scaling"] |= change
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(kind, match=words):
        read_config(tmp_path)
