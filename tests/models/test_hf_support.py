"""Refusals by name: from facts of the config, and by the numbers where a config says nothing."""

import pytest
import torch
import transformers

from draftproof.errors import InvalidParams, UnsupportedModel
from draftproof.models.hf import TorchTarget
from draftproof.models.support import check_supported, context_limit, cut_layers

REFUSED = {
    "MambaConfig": "recurrent",
    "Mamba2Config": "recurrent",
    "RwkvConfig": "recurrent",
    "JambaConfig": "recurrent",
    "RecurrentGemmaConfig": "recurrent",
    "Qwen3NextConfig": "recurrent",
    "MiniMaxConfig": "linear_attention",
    "Llama4TextConfig": "chunked_attention",
    "BartConfig": "encoder-decoder",
    "T5Config": "encoder-decoder",
    "ViTConfig": "no causal language model",
    "BloomConfig": "attention interface",
    "FalconConfig": "attention interface",
    "MptConfig": "attention interface",
    "GPTNeoConfig": "attention interface",
    "GptOssConfig": "s_aux",
}


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_refused_by_name(name, reason):
    config = getattr(transformers, name)()
    with pytest.raises(UnsupportedModel, match=f"'{config.model_type}'.*{reason}"):
        check_supported(config)


def test_supported(arch, tiny_config):
    check_supported(tiny_config(arch))
    if arch == "gemma2":
        with pytest.raises(UnsupportedModel, match="soft-capped"):
            check_supported(tiny_config(arch), backend="openvino")
    else:
        check_supported(tiny_config(arch), backend="openvino")


def test_the_openvino_backend_needs_equal_layers():
    for config in (transformers.DeepseekV3Config(), transformers.Gemma4TextConfig()):
        check_supported(config)
        with pytest.raises(UnsupportedModel, match="openvino"):
            check_supported(config, backend="openvino")


def test_lfm2_convolutions():
    config = transformers.Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"])
    with pytest.raises(UnsupportedModel, match="conv"):
        check_supported(config)


def test_context_limit_ends_where_rows_begin_to_depend_on_others(tiny_config):
    assert context_limit(tiny_config("llama")) == 256
    assert context_limit(tiny_config("gpt2")) == 256
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 64}
    config = transformers.LlamaConfig(max_position_embeddings=128, rope_parameters=rope)
    assert context_limit(config) == 64


def test_cut_layers(tiny_config):
    config = cut_layers(tiny_config("gemma3_text"), 1)
    assert (config.num_hidden_layers, config.layer_types) == (1, ["sliding_attention"])
    assert cut_layers(tiny_config("llama"), None).num_hidden_layers == 2
    for number in (0, 3):
        with pytest.raises(InvalidParams, match="1 to 2"):
            cut_layers(tiny_config("llama"), number)


def shift(module, args, output):
    """A token shift, as some recurrent models have: row i takes from row i - 1 without any cache."""
    return output + 0.5 * torch.roll(output, 1, 1) * (torch.arange(output.shape[1])[:, None] > 0)


def test_state_outside_the_attention_is_found_by_numbers(tiny_model):
    model = tiny_model("llama")
    model.model.layers[0].mlp.register_forward_hook(shift)
    with pytest.raises(UnsupportedModel, match=r"'llama'.*two pieces"):
        TorchTarget(model, num_pages=4)


@pytest.mark.parametrize(
    ("option", "value"), [("s_aux", torch.ones(4)), ("position_bias", torch.ones(1)), ("is_causal", False)]
)
def test_an_option_we_do_not_have_is_never_ignored(option, value, tiny_model):
    model = tiny_model("llama")
    attention = model.model.layers[1].self_attn
    attention.register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs | {option: value}), with_kwargs=True)
    with pytest.raises(UnsupportedModel, match=option):
        TorchTarget(model, num_pages=4)


def test_a_window_that_is_not_told_is_refused(tiny_model):
    model = tiny_model("gemma3_text")
    model.model.layers[0].self_attn.sliding_window = None
    with pytest.raises(UnsupportedModel, match="window"):
        TorchTarget(model, num_pages=4)


def test_a_layer_that_runs_twice_is_refused(tiny_model):
    model = tiny_model("llama")
    model.model.layers[1] = model.model.layers[0]
    with pytest.raises(UnsupportedModel, match="more than once"):
        TorchTarget(model, num_pages=4)
