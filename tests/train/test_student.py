"""The loss of a draft model against one computed place by place; students of many architectures; runs that go on."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.errors import CorruptModel, InputError, PairingError, UnsupportedModel
from draftproof.models.student import check_student, new_student, picked
from draftproof.models.student_files import load_student, save_student
from draftproof.train import student as losses
from draftproof.train.sights import ModuleReader, Seen, glance
from draftproof.train.student import Rows, StudentTrainer, remembered, taught
from draftproof.train.trainer import Settings, Text, padded
from draftproof.train.unroll import see

SIZE = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4}
CONFIG = LlamaConfig(**SIZE, max_position_embeddings=128, initializer_range=0.4)


def target_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def target():
    return target_of(CONFIG)


@torch.no_grad()
def by_round(student, target, text, depth):
    """(loss, matches, reached, overlap) of one text: rounds drafted token by token, behind each token of the text."""
    ids = torch.from_numpy(text.tokens.astype(np.int64))
    laws = torch.softmax(target(input_ids=ids[None]).logits[0], -1)
    mine = [
        torch.softmax(student.module(input_ids=ids[None, : place + 1]).logits[0, -1], -1) for place in range(len(ids))
    ]
    judged = range(text.prompt_len - 1, len(ids) - 1)  # places whose next token is of the completion
    loss = np.mean([float(-(laws[place] * mine[place].log()).sum()) for place in judged])
    match, reached, overlaps = np.zeros(depth), np.zeros(depth), [[] for _ in range(depth)]
    for first in judged:
        alive = True
        for step in range(depth):
            place = first + step  # after it draft step + 1 is said, the drafts before it being the text's
            if place not in judged:
                break
            overlaps[step].append(float(torch.minimum(laws[place], mine[place]).sum()))
            right = int(mine[place].argmax()) == int(laws[place].argmax())
            reached[step] += alive
            match[step] += alive and right
            alive = alive and right
    return loss, match, reached, [np.mean(each) for each in overlaps]


def test_the_loss_is_that_of_each_place_and_the_figures_those_of_rounds(target, texts):
    student = new_student(target, 4)
    matched = 0.0
    for text in texts(target, 3):
        tokens, counts = padded([text], 64)
        found = taught(student, see(target, student, tokens, counts), 3)
        loss, match, reached, overlap = by_round(student, target, text, 3)
        assert found.loss.item() == pytest.approx(loss, rel=1e-4)
        assert found.reached.tolist() == reached.tolist()
        np.testing.assert_allclose(found.match.numpy() * reached, match, atol=1e-4)
        np.testing.assert_allclose(found.overlap.numpy(), overlap, atol=1e-4)
        matched += match.sum()
    assert matched > 0


def whole_sight(target, batch):
    """Texts with the whole law, nothing rounded."""
    output, kept = target.get_output_embeddings().weight, []
    for text in batch:
        ids = torch.from_numpy(text.tokens).long()
        _, last = ModuleReader(target, (5,)).read(ids)
        scores, rows = functional.linear(last, output).sort(-1, descending=True)
        kept.append(Seen(ids, text.prompt_len, last[:, :0], rows.int(), torch.softmax(scores, -1)))
    return glance(kept)


def slopes(student, loss):
    student.zero_grad()
    loss.backward()
    return {name: part.grad.clone() for name, part in student.named_parameters()}


def test_the_loss_from_memory_and_its_gradient_are_the_same(target, texts):
    """The one written out against the one left to autograd: the whole law, the whole vocabulary."""
    batch = [texts(target, 1, 10)[0], texts(target, 2, 30)[1]]
    tokens, counts = padded(batch, 64)
    student, output = new_student(target, 3), target.get_output_embeddings().weight
    eager = taught(student, see(target, student, tokens, counts)).loss
    loss = remembered(student, Rows(output, torch.arange(61)).of_step(0, 0), whole_sight(target, batch))
    assert loss.item() == pytest.approx(eager.item(), rel=1e-5)
    wanted, got = slopes(student, eager), slopes(student, loss)
    assert {name.split(".")[0] for name in wanted} == {"layers", "norm"}
    for name, grad in wanted.items():
        torch.testing.assert_close(got[name], grad, rtol=1e-3, atol=1e-6, msg=name)


def test_rows_that_are_drawn_stand_for_those_that_are_not(target):
    """The normaliser's mean over many draws is the whole one; another step draws others, the same step the same."""
    output, hidden = (
        target.get_output_embeddings().weight,
        torch.randn(4, 32, generator=torch.Generator().manual_seed(1)),
    )
    ids = torch.arange(0, 61, 2)
    rows = Rows(output, ids, 10)
    assert torch.equal(rows.frequent, output[ids])
    assert rows.of_step(3, 1).shape == (31 + 10, 33)
    assert torch.equal(rows.of_step(3, 1), rows.of_step(3, 1))
    assert not torch.equal(rows.of_step(3, 1), rows.of_step(3, 2))
    wide = functional.pad(hidden, (0, 1), value=1.0)
    found = torch.stack([(wide @ rows.of_step(0, step).T).exp().sum(-1) for step in range(4000)])
    whole, error = (hidden @ output.T).exp().sum(-1), found.std(0) / 4000**0.5
    assert bool(((found.mean(0) - whole).abs() < 5 * error).all())
    assert bool((error < 0.02 * whole).all())


def test_padding_is_never_learned(target, texts):
    student, (one, other) = new_student(target, 2), (texts(target, 1, 10)[0], texts(target, 2, 30)[1])
    found, sizes = [], []
    for batch in ([one], [other], [one, other]):
        tokens, counts = padded(batch, 64)
        found.append(taught(student, see(target, student, tokens, counts)).loss.item())
        sizes.append(counts.sum().item())
    assert sizes == [10, 30, 40]
    assert found[2] == pytest.approx((10 * found[0] + 30 * found[1]) / 40, rel=1e-5)


@pytest.mark.parametrize("read", [True, False], ids=["read once", "run anew"])
def test_training_makes_drafts_better_and_resumes_to_the_same_bits(target, tmp_path, monkeypatch, read, texts):
    monkeypatch.setattr(losses, "TAUGHT", 40)  # so that some rows are drawn
    data = texts(target, 40, 30)
    settings = Settings(steps=60, batch_tokens=300, max_length=64, learning_rate=1e-2)

    def made(state=None):
        trainer = StudentTrainer(target, new_student(target, 2), data, settings)
        if state is not None:
            trainer.load(state)
        if read:
            trainer.read(ModuleReader(target, (5,)))
            assert trainer.library.of([0])[0].features.shape[1] == 0
            assert int(trainer.library.of([0])[0].likely.max()) < 40
        return trainer

    whole, rows = made(), target.get_input_embeddings().weight.clone()
    before = whole.score(data)
    whole.run()
    after = whole.score(data)
    assert len(after.match) == 3
    assert after.overlap[0] > before.overlap[0] + 0.05
    assert torch.equal(target.get_input_embeddings().weight, rows)
    first = made()
    first.run(23)
    first.save(tmp_path / "state.pt")
    assert not any("embed" in name for name in torch.load(tmp_path / "state.pt")["head"])
    second = made(tmp_path / "state.pt")
    second.run()
    assert second.losses == whole.losses
    for one, other in zip(whole.head.parameters(), second.head.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_text_cut_before_its_completion_is_no_fault(target):
    student, text = new_student(target, 2), Text(np.arange(1, 9, dtype=np.int32), 8)
    tokens, counts = padded([text], 64)
    found = taught(student, see(target, student, tokens, counts))
    assert found.reached.tolist() == [0, 0, 0]
    loss = remembered(
        student,
        Rows(target.get_output_embeddings().weight, torch.arange(61)).of_step(0, 0),
        whole_sight(target, [text]),
    )
    assert loss.item() == 0
    found.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in student.parameters())


def test_layers_are_picked_evenly_first_and_last_among_them():
    assert picked(30, None) == (0, 14, 29)
    assert picked(12, None) == (0, 11)
    assert picked(32, 5) == (0, 8, 16, 23, 31)
    assert picked(3, 2) == (0, 2)
    for num in (1, 30, 31, 0):
        with pytest.raises(InputError, match=f"this one has 30, got {num}"):
            picked(30, num)
    with pytest.raises(InputError, match="this one has 2, got 2"):
        picked(2, None)


LIKE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 61,
}
KINDS = ["full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention"]
PICKABLE = [
    LlamaConfig(**LIKE, num_hidden_layers=5, tie_word_embeddings=True, initializer_range=0.4),
    transformers.Qwen2Config(
        **LIKE, num_hidden_layers=5, layer_types=KINDS, use_sliding_window=True, sliding_window=8, initializer_range=0.4
    ),
    transformers.Gemma2Config(
        **LIKE, num_hidden_layers=5, head_dim=8, layer_types=KINDS, attn_logit_softcapping=None, initializer_range=0.4
    ),
    transformers.GPT2Config(n_embd=32, n_layer=5, n_head=4, vocab_size=61, n_positions=64, initializer_range=0.4),
]


@pytest.mark.parametrize("config", PICKABLE, ids=lambda config: config.model_type)
def test_a_student_is_the_target_without_the_other_layers(config, tmp_path):
    """Its logits are those of the target whose other layers do nothing; its files give it back to the bit."""
    check_student(config, 3)
    target = target_of(copy.deepcopy(config))
    student = new_student(target, 3)
    layers = "h" if config.model_type == "gpt2" else "layers"
    short = copy.deepcopy(target)
    whole = getattr(short.base_model, layers)
    setattr(short.base_model, layers, torch.nn.ModuleList([whole[i] for i in (0, 2, 4)]))
    short.config.num_hidden_layers = 3
    if getattr(config, "layer_types", None):
        short.config.layer_types = [KINDS[i] for i in (0, 2, 4)]
    tokens = torch.arange(24)[None]
    torch.testing.assert_close(student.logits(tokens), short(tokens, use_cache=False).logits)
    assert student.module.get_input_embeddings() is target.get_input_embeddings()
    assert not any(parameter.requires_grad for parameter in target.parameters())
    target.save_pretrained(tmp_path / "target")
    for parameter in student.parameters():
        parameter.data += 1e-3
    save_student(student, tmp_path / "small", tmp_path / "target", "org/t", {"steps": 3})
    again = load_student(tmp_path / "small", tmp_path / "target")
    assert student.dtype == torch.float32
    assert torch.equal(again.logits(tokens), student.logits(tokens))
    assert not list((tmp_path / "small").glob(".*"))
    assert len({file.stat().st_mode for file in (tmp_path / "small").iterdir()}) == 1


def test_rows_in_bfloat16_are_written_in_bfloat16_and_stay_to_the_bit(tmp_path):
    target = target_of(CONFIG).bfloat16().float()
    target.save_pretrained(tmp_path / "target")
    student = new_student(target, 2)
    for parameter in student.parameters():
        parameter.data += 1e-3
    save_student(student, tmp_path / "small", tmp_path / "target", "t", {})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.lm_head.weight.float(), target.lm_head.weight)
    student.load_state_dict(student.as_saved())
    again = load_student(tmp_path / "small", tmp_path / "target")
    assert torch.equal(again.logits(torch.arange(9)[None]), student.logits(torch.arange(9)[None]))


def test_a_folder_without_the_note_is_no_draft_model(target, tmp_path):
    target.save_pretrained(tmp_path / "target")
    save_student(new_student(target, 2), tmp_path / "small", tmp_path / "target", "t", {})
    path = tmp_path / "small" / "config.json"
    values = json.loads(path.read_text())
    for note in (None, 7, {"kind": "eagle3"}, {"layers": 3}, {"target": None}):
        changed = values["draftproof"] | note if isinstance(note, dict) else note
        path.write_text(json.dumps(values | {"draftproof": changed}))
        with pytest.raises(CorruptModel, match="holds no draft model that `draftproof train draft-model` wrote"):
            load_student(tmp_path / "small", tmp_path / "target")
    path.write_text(json.dumps(values))
    assert load_student(tmp_path / "small", tmp_path / "target").config.layers == (0, 4)


def test_a_copy_shares_the_rows_and_nothing_else(target, texts):
    student = new_student(target, 2)
    twin = copy.deepcopy(student)
    assert twin.module.get_input_embeddings() is target.get_input_embeddings()
    twin.layers[0].mlp.up_proj.weight.data += 1
    assert not torch.equal(twin.logits(torch.arange(9)[None]), student.logits(torch.arange(9)[None]))
    other = target_of(LlamaConfig(**SIZE, initializer_range=0.3))
    with pytest.raises(PairingError, match="other embedding or output rows"):
        StudentTrainer(other, twin, texts(target, 2), Settings(steps=1))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (transformers.OPTConfig(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, vocab_size=61), "'opt'"),
        (transformers.MambaConfig(hidden_size=32, num_hidden_layers=4, vocab_size=61), "'mamba'"),
        (
            transformers.DeepseekV3Config(
                num_hidden_layers=5, first_k_dense_replace=2, n_routed_experts=4, hidden_size=32, vocab_size=61
            ),
            "'deepseek_v3' yet: their layers can't be picked",
        ),
    ],
    ids=["opt", "mamba", "deepseek"],
)
def test_a_target_whose_layers_cannot_be_picked_is_refused_by_name(config, words):
    with pytest.raises(UnsupportedModel, match=words):
        check_student(config, 3)
