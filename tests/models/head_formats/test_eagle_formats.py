"""EAGLE-3 heads in the formats of others: the same logits as the public descriptions give, and back bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftproof.errors import CorruptModel, InputError, ModelNotFound, PairingError, UnsupportedModel
from draftproof.models import convert
from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, check_target
from draftproof.models.folder import read_config as target_config
from draftproof.models.head_files import load_head, save_head
from draftproof.models.head_formats.eagle import open_head
from draftproof.models.head_formats.folder import PUBLIC, find_weights, write_folder
from draftproof.models.head_formats.rows import target_rows
from draftproof.models.head_formats.transfer import Target, to_own, to_public
from draftproof.models.head_source import resolve_head

V, H, LAYERS = 61, 64, 8
IDS = torch.tensor([0, 2, 3, 7, *range(11, 60, 4)])
FORMS = ("speculators", "eagle3")
STRETCHED: dict[str, Any] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
STRETCHED |= {"original_max_position_embeddings": 16}


def make_target(folder: Path, *, tied: bool) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = LlamaConfig(
            vocab_size=V,
            hidden_size=H,
            intermediate_size=96,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.2,
            rope_theta=5000.0,
            tie_word_embeddings=tied,
        )
        model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(folder, module)"""
    folder = tmp_path_factory.mktemp("target")
    return folder, make_target(folder, tied=False)


def make_head(config: EagleConfig) -> EagleHead:
    """Random, with norms that are not ones."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        head = EagleHead(config).eval()
        with torch.no_grad():
            for name, parameter in head.named_parameters():
                parameter.copy_(0.1 * torch.randn_like(parameter) + ("norm" in name))
    head.set_draft_ids(IDS)
    return head


@pytest.fixture(scope="module")
def own(target: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head in draftproof's own format."""
    folder = tmp_path_factory.mktemp("own")
    save_head(
        make_head(EagleConfig.of_target(target[1].config, (1, 4, 7), len(IDS))), folder, {"card": {"data": ["a", 1]}}
    )
    return folder


def written(own: Path, target: tuple[Path, Any], form: str, out: Path, **more: Any) -> Path:
    head = open_head(own, target_config(target[0]))
    values, state = to_public(head, form, target_rows(target[0]), Target("org/name", ("LlamaForCausalLM",)), **more)
    write_folder(out, values, state, metadata=PUBLIC)
    return out


def read_layers(values: dict[str, Any], form: str) -> list[int]:
    """After how many layers of the target the states are taken, by the format's own convention."""
    if form == "speculators":
        told = values["eagle_aux_hidden_state_layer_ids"]
    else:
        outputs = values.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
        told = outputs and [layer + 1 for layer in outputs]
    return sorted(told or (2, LAYERS // 2, LAYERS - 3))


class Reference:
    """The public description of an EAGLE-3 head, in plain torch over nothing but the files of its folder."""

    def __init__(self, folder: Path, form: str, module: Any) -> None:
        self.values = json.loads((folder / "config.json").read_text())
        self.t = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.layer = self.values["transformer_layer_config"] if form == "speculators" else self.values
        self.prefix = "layers.0." if form == "speculators" else "midlayer."
        self.after, self.module = read_layers(self.values, form), module
        self.before_residual = self.values.get("norm_before_residual", False)

    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, 3 H]: what goes into each of these layers of the target."""
        seen: dict[int, torch.Tensor] = {}
        hooks = []
        for index, layer in enumerate(self.module.model.layers):

            def look(_: Any, args: Any, index: int = index) -> None:
                seen[index] = args[0][0].double()

            hooks.append(layer.register_forward_pre_hook(look))
        self.module(input_ids=tokens[None], use_cache=False)
        for hook in hooks:
            hook.remove()
        return torch.cat([seen[layer] for layer in self.after], -1)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self.t[name] * x / (x.pow(2).mean(-1, keepdim=True) + self.layer["rms_norm_eps"]).sqrt()

    def turned(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[T, heads, D]: pairs (i, i + D/2) turned by position * theta ** (-2i / D)."""
        half = x.shape[-1] // 2
        angles = positions[:, None] * self.layer["rope_theta"] ** (-torch.arange(half).double() / half)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.t[f"{self.prefix}{name}.weight"].T

    def logits(self, tokens: torch.Tensor, num_own: int) -> torch.Tensor:
        """[T - 1, Vd] over the rows of a text; the last `num_own` of them take the head's own output."""
        states, rows = self.states(tokens), []
        table = self.t.get("embed_tokens.weight", self.module.get_input_embeddings().weight.double())
        dim, kv = self.layer["head_dim"], self.layer["num_key_value_heads"]
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        hidden = torch.zeros(H, dtype=torch.float64)
        for place in range(len(tokens) - 1):
            if place < len(tokens) - 1 - num_own:
                hidden = self.t["fc.weight"] @ states[place]
            normed = self.norm(hidden, f"{self.prefix}hidden_norm.weight")
            embedded = self.norm(table[tokens[place + 1]], f"{self.prefix}input_layernorm.weight")
            joined, position = torch.cat([embedded, normed])[None], torch.tensor([place])
            query = self.turned(self.linear(joined, "self_attn.q_proj").view(1, -1, dim), position)[0]
            keys.append(self.turned(self.linear(joined, "self_attn.k_proj").view(1, kv, dim), position)[0])
            values.append(self.linear(joined, "self_attn.v_proj").view(kv, dim))
            heads = []
            for head in range(len(query)):
                group = head // (len(query) // kv)
                scores = torch.stack([query[head] @ key[group] for key in keys]) / dim**0.5
                heads.append(sum(w * v[group] for w, v in zip(scores.softmax(0), values, strict=True)))
            mixed = self.linear(torch.cat(heads), "self_attn.o_proj")
            hidden = (normed if self.before_residual else hidden) + mixed
            inner = self.norm(hidden, f"{self.prefix}post_attention_layernorm.weight")
            gated = functional.silu(self.linear(inner, "mlp.gate_proj")) * self.linear(inner, "mlp.up_proj")
            hidden = hidden + self.linear(gated, "mlp.down_proj")
            rows.append(self.t["lm_head.weight"] @ self.norm(hidden, "norm.weight"))
        return torch.stack(rows)


class Grown:
    """Attention over all rows so far."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self.keys.append(key.repeat_interleave(2, 1)[0])
        self.values.append(value.repeat_interleave(2, 1)[0])
        keys, values = torch.stack(self.keys), torch.stack(self.values)
        weights = torch.softmax(torch.einsum("hd,lhd->hl", query[0], keys) * query.shape[-1] ** -0.5, -1)
        return torch.einsum("hl,lhd->hd", weights, values)[None]


@torch.no_grad()
def ours(folder: Path, target: tuple[Path, Any], tokens: torch.Tensor, num_own: int) -> torch.Tensor:
    """As `Reference.logits`, of the head that draftproof reads."""
    head, module = load_head(folder, target_config(target[0])), target[1]
    config, attend, rows = head.config, Grown(), []
    seen = module(input_ids=tokens[None], output_hidden_states=True, use_cache=False).hidden_states
    states = torch.cat([seen[layer][0] for layer in config.feature_layers], -1)
    table = head.embed_tokens if config.own_embedding else module.get_input_embeddings()
    output = head.lm_head.weight if config.own_output else module.get_output_embeddings().weight[head.draft_ids]
    hidden = torch.zeros(1, H)
    for place in range(len(tokens) - 1):
        hidden = head.fc(states[place])[None] if place < len(tokens) - 1 - num_own else hidden
        hidden = head(table(tokens[place + 1])[None], hidden, torch.tensor([place]), attend)
        rows.append(functional.linear(head.norm(hidden), output)[0])
    return torch.stack(rows)


TOKENS = torch.tensor([5, 17, 3, 60, 3, 3, 41, 8, 22])


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_computes_the_same_by_the_public_description(own, target, form, tmp_path):
    folder = written(own, target, form, tmp_path / "out")
    with torch.no_grad():
        truth = Reference(folder, form, target[1]).logits(TOKENS, 3)
    scale = truth.abs().max()
    read = ours(folder, target, TOKENS, 3)
    assert (read - truth).abs().max() < 1e-5 * scale
    # the head itself has the target's rows in float32, the public one in bfloat16: 2 ** -8 of a row at most
    assert (ours(own, target, TOKENS, 3) - truth).abs().max() < 2e-2 * scale


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("embedding", [False, True])
def test_there_and_back_is_the_same_to_the_bit(own, form, tied, embedding, tmp_path):
    make_target(tmp_path / "target", tied=tied)
    given = (tmp_path / "target", None)
    folder = written(own, given, form, tmp_path / "out", embedding=embedding)
    head = open_head(folder, target_config(given[0]))
    assert (head.config.own_output, head.config.own_embedding) == (True, embedding)
    values, state = to_own(head, target_rows(given[0]), None)
    write_folder(tmp_path / "back", values, state)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (own / name).read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_from_one_public_format_to_the_other_and_back(own, target, form, tmp_path):
    other = FORMS[1 - FORMS.index(form)]
    one = written(own, target, form, tmp_path / "one")
    two = written(one, target, other, tmp_path / "two")
    three = written(two, target, form, tmp_path / "three")
    for name in ("config.json", "model.safetensors"):
        assert (three / name).read_bytes() == (one / name).read_bytes()


def test_names_tables_and_layer_ids_are_those_of_the_formats(own, target, tmp_path):
    ours_state = load_file(own / "model.safetensors")
    output = target[1].get_output_embeddings().weight.detach()
    for form, prefix in (("speculators", "layers.0."), ("eagle3", "midlayer.")):
        folder = written(own, target, form, tmp_path / form)
        values, state = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        renamed = {name.replace("midlayer.", prefix) for name in ours_state}
        assert set(state) == renamed | {"lm_head.weight", "t2d"}
        assert torch.equal(state["lm_head.weight"], output[IDS].bfloat16())
        assert state["t2d"].dtype == torch.bool
        assert state["t2d"].nonzero()[:, 0].tolist() == IDS.tolist()
        assert (state["d2t"] + torch.arange(len(IDS))).tolist() == IDS.tolist()
        assert values["eagle_aux_hidden_state_layer_ids"] == [1, 4, 7]  # vLLM: after so many layers
        assert values["draft_vocab_size"] == len(IDS)
    assert values["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 3, 6]  # SGLang: output of these
    assert values["architectures"] == ["LlamaForCausalLMEagle3"]
    values = json.loads((tmp_path / "speculators" / "config.json").read_text())
    assert values["speculators_config"]["verifier"] == {
        "name_or_path": "org/name",
        "architectures": ["LlamaForCausalLM"],
    }
    assert values["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert values["norm_before_residual"] is False


def foreign(folder: Path, form: str, *, before_residual: bool = False, ids: Any = None, **more: Any) -> Path:
    """A head somebody else trained: rows of its own, float16, states in the default places."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        shapes = {
            "input_layernorm": (H,),
            "hidden_norm": (H,),
            "post_attention_layernorm": (H,),
            "self_attn.q_proj": (64, 2 * H),
            "self_attn.k_proj": (32, 2 * H),
            "self_attn.v_proj": (32, 2 * H),
            "self_attn.o_proj": (H, 64),
            "mlp.gate_proj": (80, H),
            "mlp.up_proj": (80, H),
            "mlp.down_proj": (H, 80),
        }
        prefix = "layers.0." if form == "speculators" else "midlayer."
        shapes = {f"{prefix}{name}.weight": shape for name, shape in shapes.items()}
        shapes |= {"fc.weight": (H, 3 * H), "norm.weight": (H,), "lm_head.weight": (len(IDS), H)}
        shapes |= {"embed_tokens.weight": (V, H)} if form == "speculators" else {}
        state = {name: (0.15 * torch.randn(shape) + ("norm" in name)).half() for name, shape in shapes.items()}
    state["d2t"] = IDS - torch.arange(len(IDS))
    state["t2d"] = torch.isin(torch.arange(V), IDS)
    layer = {"model_type": "llama", "hidden_size": H, "intermediate_size": 80, "num_hidden_layers": 1}
    layer |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6}
    layer |= {"rope_theta": 10000.0, "max_position_embeddings": 64, "vocab_size": V, "hidden_act": "silu"}
    if form == "speculators":
        values: dict[str, Any] = {"speculators_model_type": "eagle3", "transformer_layer_config": layer}
        values |= {"norm_before_residual": before_residual, "eagle_aux_hidden_state_layer_ids": ids}
    else:
        values = layer | {"architectures": ["LlamaForCausalLMEagle3"]}
        values |= {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}} if ids else {}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values | {"draft_vocab_size": len(IDS)} | more))
    save_file(state, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("form", "before_residual", "ids", "layers"),
    [
        ("speculators", False, [6, 1, 3], (1, 3, 6)),
        ("speculators", True, None, (2, 4, 5)),
        ("eagle3", False, [0, 2, 5], (1, 3, 6)),
        ("eagle3", False, None, (2, 4, 5)),
    ],
)
def test_a_head_of_others_computes_here_what_it_computes_there(target, tmp_path, form, before_residual, ids, layers):
    folder = foreign(tmp_path / "h", form, before_residual=before_residual, ids=ids)
    found = resolve_head(folder, "any", target_config(target[0])).config
    assert found.feature_layers == layers
    assert (found.own_output, found.own_embedding) == (True, form == "speculators")
    reference = Reference(folder, form, target[1])
    with torch.no_grad():
        truth = reference.logits(TOKENS, 2)
    assert (ours(folder, target, TOKENS, 2) - truth).abs().max() < 1e-5 * truth.abs().max()


class Stretched(Reference):
    """The same with angles of type llama3, by transformers' own function; told in either version's words."""

    def turned(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        told = self.layer.get("rope_scaling") or self.layer["rope_parameters"]
        config = LlamaConfig(head_dim=x.shape[-1], rope_parameters={"rope_theta": 10000.0} | told)
        frequencies, factor = ROPE_INIT_FUNCTIONS["llama3"](config)
        assert factor == 1
        angles = positions[:, None] * frequencies.double()
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@pytest.mark.parametrize("words", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("form", FORMS)
def test_stretched_angles_compute_here_what_they_compute_there(target, tmp_path, form, words):
    folder = foreign(tmp_path / "h", form)
    plain = ours(folder, target, TOKENS, 2)
    values = json.loads((folder / "config.json").read_text())
    layer = values if form == "eagle3" else values["transformer_layer_config"]
    layer[words] = STRETCHED | ({"rope_theta": 10000.0} if words == "rope_parameters" else {})
    (folder / "config.json").write_text(json.dumps(values))
    with torch.no_grad():
        truth = Stretched(folder, form, target[1]).logits(TOKENS, 2)
    assert (ours(folder, target, TOKENS, 2) - truth).abs().max() < 1e-5 * truth.abs().max()
    assert (plain - truth).abs().max() > 1e-2 * truth.abs().max()
    values, state = to_own(open_head(folder, target_config(target[0])), target_rows(target[0]), None)
    write_folder(tmp_path / "own", values, state)
    assert torch.equal(ours(tmp_path / "own", target, TOKENS, 2), ours(folder, target, TOKENS, 2))
    again = written(tmp_path / "own", target, form, tmp_path / "again")
    with torch.no_grad():
        assert torch.equal(Stretched(again, form, target[1]).logits(TOKENS, 2), truth)


def test_a_head_of_others_taken_over_keeps_its_rows_and_its_bits(target, tmp_path):
    folder = foreign(tmp_path / "h", "speculators", before_residual=True)
    values, state = to_own(open_head(folder, target_config(target[0])), target_rows(target[0]), "ab" * 16)
    write_folder(tmp_path / "own", values, state)
    assert state["fc.weight"].dtype == torch.float16
    assert (values["own_output"], values["own_embedding"], values["norm_before_residual"]) == (True, True, True)
    assert (values["tokenizer"], values["taken_from"]) == ("ab" * 16, "speculators")
    assert torch.equal(ours(tmp_path / "own", target, TOKENS, 2), ours(folder, target, TOKENS, 2))
    with pytest.raises(UnsupportedModel, match="norm_before_residual can't be written for SGLang"):
        written(tmp_path / "own", target, "eagle3", tmp_path / "no")
    again = written(tmp_path / "own", target, "speculators", tmp_path / "again")
    one, two = load_file(folder / "model.safetensors"), load_file(again / "model.safetensors")
    assert set(one) == set(two)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_graph_is_built_of_a_heads_own_rows(own, target, tmp_path):
    head = load_head(foreign(tmp_path / "h", "speculators"), target_config(target[0]))
    flat = convert._FlatHead(head, target[1])
    assert flat.output is head.lm_head
    assert flat.embedding is head.embed_tokens
    flat = convert._FlatHead(load_head(own), target[1])
    assert torch.equal(flat.output.weight, target[1].get_output_embeddings().weight[IDS])
    assert flat.embedding is target[1].get_input_embeddings()


def test_a_pickle_of_tensors_and_a_split_file_are_read_like_any(target, tmp_path):
    folder = foreign(tmp_path / "h", "eagle3")
    truth = ours(folder, target, TOKENS, 2)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert torch.equal(ours(folder, target, TOKENS, 2), truth)
    (folder / "pytorch_model.bin").unlink()
    names = sorted(state)
    for part, chosen in (("a", names[:5]), ("b", names[5:])):
        save_file({name: state[name] for name in chosen}, folder / f"{part}.safetensors")
    places = {name: "a.safetensors" if name in names[:5] else "b.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(ours(folder, target, TOKENS, 2), truth)
    (folder / "b.safetensors").unlink()
    with pytest.raises(CorruptModel, match=r"names b\.safetensors, which is not there"):
        open_head(folder, target_config(target[0]))


class Evil:
    """What a pickle can do."""

    def __reduce__(self):
        return (print, ("run",))


def test_a_pickle_that_would_run_code_is_not_opened(target, tmp_path, capsys):
    folder = foreign(tmp_path / "h", "eagle3")
    (folder / "model.safetensors").unlink()
    torch.save({"fc.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(CorruptModel, match="could run code; get the head as safetensors"):
        open_head(folder, target_config(target[0]))
    torch.save([torch.ones(2)], folder / "pytorch_model.bin")
    with pytest.raises(CorruptModel, match="does not hold named tensors"):
        open_head(folder, target_config(target[0]))
    (folder / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(CorruptModel):
        open_head(folder, target_config(target[0]))
    assert capsys.readouterr().out == ""


LAYER_ERRORS = [
    ({"model_type": "qwen3"}, UnsupportedModel, "model_type 'qwen3'"),
    ({"num_hidden_layers": 2}, UnsupportedModel, "num_hidden_layers 2"),
    ({"hidden_act": "gelu"}, UnsupportedModel, "hidden_act 'gelu'"),
    ({"attention_bias": True}, UnsupportedModel, "attention_bias True"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, UnsupportedModel, "rope_scaling of type 'yarn'"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, CorruptModel, "does not tell low_freq_factor"),
    ({"rope_scaling": STRETCHED | {"factor": 0}}, CorruptModel, "factor 0, which is not a number above 0"),
    ({"rope_scaling": STRETCHED | {"low_freq_factor": 4.0}}, CorruptModel, "must be the larger one"),
    ({"rope_scaling": STRETCHED, "rope_parameters": {"rope_type": "default"}}, CorruptModel, "several kinds of rotary"),
    ({"rope_parameters": {"rope_theta": 5.0}}, CorruptModel, "several bases of rotary angles"),
    ({"hidden_size": None}, CorruptModel, "does not tell hidden_size"),
    ({"hidden_size": "64"}, CorruptModel, "which is not a whole number"),
    ({"intermediate_size": 81}, CorruptModel, r"mlp.*has the shape \[64, 80\], its config.json asks for \[64, 81\]"),
    ({"vocab_size": 62}, CorruptModel, "t2d has the shape|embed_tokens"),
]
ERRORS = [
    ({"speculators_model_type": "dflash"}, UnsupportedModel, "of the kind 'dflash'"),
    ({"norm_before_fc": True}, UnsupportedModel, "norm_before_fc True"),
    ({"target_hidden_size": 128}, UnsupportedModel, "target_hidden_size 128"),
    ({"norm_before_residual": None}, CorruptModel, "does not tell norm_before_residual"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 4, 8]}, UnsupportedModel, "before the last norm"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 1, 4]}, UnsupportedModel, "must be different ones"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 4]}, CorruptModel, "fc.weight has the shape"),
    ({"eagle_aux_hidden_state_layer_ids": "1"}, CorruptModel, "not a list of whole numbers"),
    ({"draft_vocab_size": 16}, CorruptModel, "has the shape"),
    ({"transformer_layer_config": []}, CorruptModel, "not an object"),
]


@pytest.mark.parametrize(("change", "kind", "words"), LAYER_ERRORS)
@pytest.mark.parametrize("form", FORMS)
def test_a_layer_that_can_not_be_run_is_refused_by_name(target, tmp_path, form, change, kind, words):
    folder = foreign(tmp_path / "h", form)
    values = json.loads((folder / "config.json").read_text())
    (values if form == "eagle3" else values["transformer_layer_config"]).update(change)
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(kind, match=words):
        open_head(folder, target_config(target[0]))


@pytest.mark.parametrize(("change", "kind", "words"), ERRORS)
def test_a_speculator_that_can_not_be_run_is_refused_by_name(target, tmp_path, change, kind, words):
    folder = foreign(tmp_path / "h", "speculators", **change)
    with pytest.raises(kind, match=words):
        open_head(folder, target_config(target[0]))


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"tie_word_embeddings": True}, UnsupportedModel, "tie_word_embeddings True"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, UnsupportedModel, "use_aux_hidden_state False"),
        (
            {
                "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]},
            },
            CorruptModel,
            "they name different layers",
        ),
    ],
)
def test_a_checkpoint_that_can_not_be_run_is_refused_by_name(target, tmp_path, change, kind, words):
    folder = foreign(tmp_path / "h", "eagle3", **change)
    with pytest.raises(kind, match=words):
        open_head(folder, target_config(target[0]))


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"fc.weight": None}, CorruptModel, "lacks 1 tensors of the head .*fc.weight"),
        ({"lm_head.weight": None}, CorruptModel, "lacks the tensor lm_head.weight"),
        ({"d2t": None}, CorruptModel, "lacks 1 tensors.*d2t"),
        ({"midlayer.self_attn.q_norm.weight": torch.ones(16)}, UnsupportedModel, "q_norm"),
        ({"layers.0.hidden_norm.weight": torch.ones(H)}, CorruptModel, "twice"),
        ({"norm.weight": torch.ones(H + 1)}, CorruptModel, "norm.weight has the shape"),
        ({"norm.weight": torch.full((H,), torch.nan)}, CorruptModel, "no numbers"),
        ({"d2t": torch.zeros(len(IDS), dtype=torch.int64) + V}, CorruptModel, "no rising ids"),
        ({"t2d": torch.ones(V, dtype=torch.bool)}, CorruptModel, "name different tokens"),
    ],
)
def test_tensors_that_are_not_the_heads_are_named(target, tmp_path, change, kind, words):
    folder = foreign(tmp_path / "h", "eagle3")
    state = load_file(folder / "model.safetensors") | change
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, folder / "model.safetensors")
    with pytest.raises(kind, match=words):
        load_head(folder, target_config(target[0]))


def test_damaged_files_are_one_clear_error(target, tmp_path):
    folder = foreign(tmp_path / "h", "eagle3")
    whole = (folder / "model.safetensors").read_bytes()
    for cut in (4, 200, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:cut])
        with pytest.raises(CorruptModel, match="can't be read: get the draft head again") as error:
            open_head(folder, target_config(target[0]))
        assert "\n" not in str(error.value)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"none of model.safetensors, pytorch_model.bin"):
        open_head(folder, target_config(target[0]))
    for text in ("{", "[1]", "[" * 100_000):
        (folder / "config.json").write_text(text)
        with pytest.raises(CorruptModel, match="can't be read"):
            open_head(folder)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(ModelNotFound, match="no draft head that draftproof knows"):
        open_head(folder)
    with pytest.raises(ModelNotFound, match=r"there is no config.json"):
        open_head(tmp_path)


def test_another_target_is_refused_with_the_difference(own, target, tmp_path):
    config = target_config(target[0])
    for form in FORMS:
        head = open_head(written(own, target, form, tmp_path / form), config)
        check_target(head.config, config)
        for change, words in (
            ({"hidden_size": 96}, "hidden size of 64, this one has 96"),
            ({"num_hidden_layers": 9}, "8 layers, this one has 9"),
            ({"vocab_size": 62}, "vocabulary of 61, this one has 62"),
        ):
            with pytest.raises(PairingError, match=words):
                check_target(open_head(tmp_path / form, config | change).config, config | change)
    bare = foreign(tmp_path / "bare", "eagle3")
    with pytest.raises(InputError, match="how many layers its target has: give the target"):
        open_head(bare)
    with pytest.raises(UnsupportedModel, match="'gemma2' can't be taken over: the target scales its embedding"):
        open_head(bare, config | {"model_type": "gemma2"})
    with pytest.raises(UnsupportedModel, match="embedding_multiplier"):
        open_head(bare, config | {"embedding_multiplier": 12.0})


def test_layers_that_other_engines_do_not_read_are_not_written(target, tmp_path):
    for layers in ((1, 4), (4, 1, 7)):
        folder = tmp_path / f"own{len(layers)}"
        save_head(make_head(EagleConfig.of_target(target[1].config, layers, len(IDS))), folder)
        with pytest.raises(UnsupportedModel, match="other engines read 3 different ones, in rising order"):
            written(folder, target, "speculators", tmp_path / "no")


def test_a_folder_that_can_not_be_written_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="can't write the draft head"):
        write_folder(tmp_path / "file" / "h", {}, {"a": torch.ones(1)})


def test_rows_of_a_target_are_found_by_name(target, tmp_path):
    rows = target_rows(target[0])
    assert torch.equal(rows.embedding, target[1].get_input_embeddings().weight)
    assert torch.equal(rows.output, target[1].get_output_embeddings().weight)
    tied = make_target(tmp_path / "tied", tied=True)
    rows = target_rows(tmp_path / "tied")
    assert rows.output is rows.embedding
    assert torch.equal(rows.output, tied.get_output_embeddings().weight)
    save_file({"wte.weight": torch.ones(3, 2)}, tmp_path / "tied" / "model.safetensors")
    with pytest.raises(UnsupportedModel, match="not found by name"):
        target_rows(tmp_path / "tied")


def test_only_some_tensors_are_read_when_only_some_are_asked_for(own):
    weights = find_weights(own)
    assert set(weights.only(["d2t"]).load()) == {"d2t"}
    assert set(weights.load()) == set(weights.shapes)
