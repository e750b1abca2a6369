"""Modules from folders, and the first layers of one as a model of their own."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.hf import TorchTarget
from draftproof.models.module import first_layers, load_module

TEXT = list(range(7, 30))


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gemma3")
    tiny_model("gemma3_text", torch.float32).save_pretrained(path)
    return path


def test_whole(folder, tiny_model, stock, tape, capsys):
    model = load_module(folder, dtype=torch.float64)
    assert model.dtype == torch.float64
    truth = stock(tiny_model("gemma3_text", torch.float32).double(), TEXT)
    assert np.abs(tape(TorchTarget(model, num_pages=20, page_size=4)).feed(TEXT) - truth).max() < 1e-5
    assert capsys.readouterr() == ("", "")


def test_cut_equals_shared_first_layers(folder, tape, caplog, capsys):
    cut = TorchTarget(load_module(folder, num_layers=1), num_pages=20, page_size=4)
    whole = load_module(folder)
    shared = TorchTarget(first_layers(whole, 1), num_pages=20, page_size=4)
    a, b = tape(cut).feed(TEXT), tape(shared).feed(TEXT)
    assert np.array_equal(a, b)
    assert len(cut.store.keys) == 1
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


def test_two_targets_share_layers_and_keep_apart(arch, tiny_model, tape):
    model = tiny_model(arch)
    alone = tape(TorchTarget(tiny_model(arch), num_pages=20, page_size=4))
    first = tape(TorchTarget(first_layers(tiny_model(arch), 1), num_pages=20, page_size=4))
    big = tape(TorchTarget(model, num_pages=20, page_size=4))
    small = tape(TorchTarget(first_layers(model, 1), num_pages=20, page_size=4))
    for start in range(0, len(TEXT), 5):
        part = TEXT[start : start + 5]
        assert np.array_equal(small.feed(part), first.feed(part))
        assert np.array_equal(big.feed(part), alone.feed(part))


def test_missing_weights_are_never_random(folder, tmp_path):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CorruptModel, match="up_proj"):
        load_module(tmp_path)
    assert load_module(tmp_path, num_layers=1).config.num_hidden_layers == 1


def test_refused_before_any_weight_is_read(tmp_path, tiny_config):
    tiny_config("gemma2").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="soft-capped"):
        load_module(tmp_path, backend="openvino")
