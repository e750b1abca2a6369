"""Medusa heads in public formats: the same states as the public description gives, and back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from draftproof.errors import CorruptModel, UnsupportedModel
from draftproof.models.head_formats import medusa
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig

V, H, IDS = 40, 12, torch.tensor([1, 2, 5, *range(9, 40, 3)])
TARGET = {"vocab_size": V, "num_hidden_layers": 5, "max_position_embeddings": 64, "hidden_size": H}


def config(num_draft: int = len(IDS)) -> MedusaConfig:
    return MedusaConfig(
        hidden_size=H,
        num_heads=3,
        num_layers=2,
        vocab_size=V,
        draft_vocab_size=num_draft,
        target_layers=5,
        max_len=64,
        tokenizer="ab",
    )


@pytest.fixture(scope="module")
def output() -> torch.Tensor:
    return torch.randn(V, H, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def heads() -> MedusaHeads:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made = MedusaHeads(config()).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(0.3 * torch.randn_like(parameter))
    made.set_draft_ids(IDS)
    return made


def bits(heads: MedusaHeads) -> dict[str, torch.Tensor]:
    return {
        name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in heads.state_dict().items()
    }


def back(values: dict[str, Any], tensors: Any, output: torch.Tensor) -> tuple[MedusaConfig, dict[str, torch.Tensor]]:
    return medusa.to_own(medusa.split(values, tensors, "h"), values, output, TARGET, "h")


@pytest.mark.parametrize("with_rows", [False, True])
def test_fasterdecodings_format_and_back(heads, output, with_rows):
    state = bits(heads)
    values, tensors = medusa.to_medusa(config(), state, "org/name", output if with_rows else None)
    assert (values["medusa_num_heads"], values["medusa_num_layers"]) == (3, 2)
    assert values["base_model_name_or_path"] == "org/name"
    states = torch.randn(4, H, generator=torch.Generator().manual_seed(3)).bfloat16()
    for head in range(3):
        hidden = states
        for block in range(2):
            name = f"{head}.{block}.linear"
            hidden = hidden + functional.silu(hidden @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])
        assert torch.equal(tensors[f"{head}.2.weight"], output.bfloat16()) if with_rows else head < 3
        read = MedusaHeads(config())
        read.load_state_dict({name: tensor.float() for name, tensor in state.items()})
        found, truth = read(states.float(), output[IDS])[:, head], hidden.float() @ output[IDS].T
        assert (found - truth).abs().max() < 0.05 * truth.abs().max()
    again, other = back(values, tensors, output)
    assert again == config()
    assert set(other) == set(state)
    assert all(torch.equal(other[name], state[name]) for name in state)


@pytest.mark.parametrize("cut", [True, False])
def test_vllms_format_and_back(heads, output, cut):
    state, ids = bits(heads), IDS if cut else torch.arange(V)
    state["d2t"] = ids - torch.arange(len(ids))
    values, tensors = medusa.to_vllm(config(len(ids)), state, output)
    assert values["model_type"] == "medusa"
    assert (values["num_heads"], values["num_hidden_layers"]) == (3, 2)
    assert (values["medusa_fc_bias"], values["original_lm_head"]) == (True, True)
    assert values["truncated_vocab_size"] == len(ids)
    assert torch.equal(tensors["blocks.2.layers.1.weight"], state["2.1.linear.weight"])
    assert torch.equal(tensors["lm_head.weight"], output[ids].bfloat16())
    assert ("token_map" in tensors) == cut
    again, other = back(values, tensors, output)
    assert again == config(len(ids))
    assert all(torch.equal(other[name], state[name]) for name in state)


def test_heads_without_biases_get_zeros(heads, output):
    values, tensors = medusa.to_vllm(config(), bits(heads), output)
    fewer = {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}
    _, state = back(values, fewer, output)
    assert not state["1.0.linear.bias"].any()
    assert torch.equal(state["1.0.linear.weight"], tensors["blocks.1.layers.0.weight"])


def test_output_rows_of_their_own_are_kept(heads, output):
    values, tensors = medusa.to_medusa(config(), bits(heads), "org/name", output)
    del tensors["d2t"]
    tensors["1.2.weight"] = tensors["1.2.weight"] * 2
    made, state = back(values, tensors, output)
    assert (made.own_output, made.draft_vocab_size) == (True, V)
    assert all(torch.equal(state[f"{head}.2.weight"], tensors[f"{head}.2.weight"]) for head in range(3))
    for values, public in (medusa.to_medusa(made, state, "org/name"), medusa.to_vllm(made, state, output)):
        again, other = back(values, public, output)
        assert again == made
        assert all(torch.equal(other[name], state[name]) for name in state)
    MedusaHeads(made).load_state_dict({name: tensor.float() for name, tensor in state.items() if name != "d2t"}, False)
    with pytest.raises(UnsupportedModel, match="for the whole vocabulary only"):
        medusa.to_vllm(replace(made, draft_vocab_size=3), state, output)
    with pytest.raises(CorruptModel, match="another vocabulary"):
        back(values, public | {"lm_heads.0.weight": torch.ones(V + 1, H)}, output)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"0.0.linear.weight": None}, r"lacks the tensor 0\.0\.linear\.weight"),
        ({"0.0.linear.weight": torch.ones(3, H)}, "has the shape"),
        ({"1.1.linear.bias": torch.ones(3)}, "has the shape"),
        ({"3.0.linear.weight": torch.ones(H, H)}, "tells medusa_num_heads 3, its tensors are of 4"),
        ({"fc.weight": torch.ones(2)}, "holds fc.weight, which no Medusa head has"),
        ({"0.0.linear.bias": torch.full((H,), torch.inf)}, "no numbers"),
        ({"d2t": torch.tensor([0, -3])}, "no rising ids"),
        ({"0.2.weight": torch.ones(V, H), "1.2.weight": torch.ones(V, H)}, "2 output matrices for 3 heads"),
        ({"d2t": torch.tensor([0, 100])}, "of a target of other sizes|of other sizes"),
    ],
)
def test_tensors_that_are_no_medusa_heads_are_named(heads, output, change, words):
    values, tensors = medusa.to_medusa(config(), bits(heads), "org/name")
    kept = {name: tensor for name, tensor in (tensors | change).items() if tensor is not None}
    with pytest.raises(CorruptModel, match=words):
        back(values, kept, output)
