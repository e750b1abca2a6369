"""The fused loss against the eager one, and texts that are read once against texts that are read anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, RopeScaling
from draftproof.train.fused import fused, some_columns
from draftproof.train.sights import Library, ModuleReader, glance, kept_width, seen
from draftproof.train.start import new_head
from draftproof.train.trainer import Settings, Text, Trainer, padded
from draftproof.train.unroll import see, unroll

CONFIG = LlamaConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    tie_word_embeddings=True,
    initializer_range=0.4,
)
IDS = torch.arange(0, 61, 2)


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG).eval().requires_grad_(False)


def head_of(target, seed=1):
    config = EagleConfig.of_target(CONFIG, draft_vocab_size=len(IDS))
    return new_head(config, target, IDS, torch.arange(40).reshape(2, 20), seed)


def texts(count, seed=3):
    rng = np.random.default_rng(seed)
    return [Text(rng.integers(3, 61, 12 + 3 * i % 17).astype(np.int32), 4 + i % 3) for i in range(count)]


def rows_of(target):
    return target.get_input_embeddings().weight, target.get_output_embeddings().weight[IDS]


def looked(target, head, data):
    """The whole law, and the eager loss's own numbers in the place of those rounded for keeping."""
    reader = ModuleReader(target, head.config.feature_layers)
    sight = glance([seen(text, reader, rows_of(target)[1], 64, len(IDS)) for text in data])
    whole = see(target, head, *padded(data, 64))
    for row, text in enumerate(data):
        part = row, slice(len(text.tokens))
        torch.testing.assert_close(sight.features[part], whole.features[part], rtol=1e-2, atol=1e-2)
    sight.features = whole.features
    sight.chances = torch.softmax(whole.scores, -1).gather(-1, sight.likely)
    return sight


def gradients(head, loss):
    head.zero_grad()
    loss.backward()
    return {name: part.grad.clone() for name, part in head.named_parameters()}


@pytest.mark.parametrize("scaling", [None, RopeScaling(4.0, 1.0, 4.0, 16)])
def test_with_every_root_and_the_whole_law_it_is_the_eager_loss(target, scaling):
    head, data = EagleHead(replace(head_of(target).config, rope_scaling=scaling)), texts(3)
    head.load_state_dict(head_of(target).state_dict())
    tokens, counts = padded(data, 64)
    sight = looked(target, head, data)
    assert torch.equal(sight.counts, counts)
    assert torch.equal(sight.tokens, tokens)
    for steps in (1, 4):
        eager = unroll(head, *rows_of(target), see(target, head, tokens, counts), steps, 0.8).loss
        loss = fused(head, rows_of(target), sight, steps, 0.8, some_columns(sight, 1.0, (0, 0)))
        assert loss.item() == pytest.approx(eager.item(), rel=1e-6)
        wanted, got = gradients(head, eager), gradients(head, loss)
        for name, grad in wanted.items():
            torch.testing.assert_close(got[name], grad, rtol=1e-4, atol=1e-6 * float(grad.abs().max() + 1), msg=name)


def test_the_mean_over_all_choices_of_a_root_is_the_loss_over_all_roots(target):
    """Roots that are left out change nothing of the others: with one root a text, place by place."""
    head, data = head_of(target), texts(1)
    sight = looked(target, head, data)
    rows = rows_of(target)
    first = fused(head, rows, sight, 1, 1.0, some_columns(sight, 1.0, (0, 0))).item()
    whole = fused(head, rows, sight, 2, 1.0, some_columns(sight, 1.0, (0, 0))).item() - first
    places = sight.roots[0].tolist()
    assert places == list(range(data[0].prompt_len - 2, len(data[0].tokens) - 2))
    single = [fused(head, rows, sight, 2, 1.0, torch.tensor([[i]])).item() - first for i in range(len(places) - 1)]
    assert np.mean(single) == pytest.approx(whole, rel=1e-4)


def test_columns_are_ascending_and_those_with_a_second_draft_come_first(target):
    sight = looked(target, head_of(target), texts(4))
    columns = some_columns(sight, 0.25, (7, 3))
    assert columns.shape == (4, round(0.25 * sight.roots.shape[1]))
    assert bool((columns.diff() > 0).all())
    assert bool(sight.counts.gather(1, sight.roots.gather(1, columns) + 2).all())
    assert torch.equal(columns, some_columns(sight, 0.25, (7, 3)))
    assert not torch.equal(columns, some_columns(sight, 0.25, (7, 4)))


def test_kept_laws_are_the_likeliest_tokens_renormalised(target):
    head, data = head_of(target), texts(2)
    tokens, counts = padded(data[:1], 64)
    whole = torch.softmax(see(target, head, tokens, counts).scores[0], -1)
    one = seen(data[0], ModuleReader(target, head.config.feature_layers), rows_of(target)[1], 64, 5)
    values, rows = whole.topk(5, -1)
    assert torch.equal(one.likely.long(), rows)
    torch.testing.assert_close(one.chances.float(), values / values.sum(-1, keepdim=True), rtol=2e-3, atol=1e-4)


def test_windows_fit_the_budget_and_share_the_steps_by_their_tokens():
    data, read = texts(40), []

    def seeing(text):
        read.append(text)
        return len(read)

    library = Library(data, seeing, 10, 1000)
    assert [i for window in library.windows for i in window] == list(range(40))
    assert len(library.windows) > 3
    assert all(sum(library.sizes[i] for i in window) <= 100 for window in library.windows)
    shares = library.shares(1000)
    assert sum(num for _, num in shares) == 1000
    for window, num in shares:
        assert num == pytest.approx(1000 * sum(library.sizes[i] for i in window) / sum(library.sizes), abs=1.01)
    library.of([1, 0])
    library.of([0])
    assert read == [data[i] for i in library.windows[0]]
    library.of([library.windows[2][1]])
    assert read[len(library.windows[0]) :] == [data[i] for i in library.windows[2]]
    assert len(Library(data[:3], seeing, 10, 1).windows) == 3


def test_a_kept_text_takes_what_windows_count_with(target):
    head = head_of(target)
    one = seen(texts(1)[0], ModuleReader(target, head.config.feature_layers), rows_of(target)[1], 64, 7)
    parts = (one.tokens, one.features, one.likely, one.chances)
    width = kept_width(head.fc.in_features, 7)
    assert sum(part.numel() * part.element_size() for part in parts) == width * len(one.tokens)


def test_a_run_on_kept_texts_resumes_to_the_same_bits(target, tmp_path):
    data, budget = texts(20), 10 * 15 * kept_width(3 * CONFIG.hidden_size)  # two windows
    settings = Settings(steps=60, batch_tokens=100, max_length=64, unroll=3, learning_rate=3e-3, deepen=0.4, roots=0.5)

    def made(state=None):
        trainer = Trainer(target, head_of(target), data, settings)
        if state is not None:
            trainer.load(state)
        trainer.read(ModuleReader(target, trainer.head.config.feature_layers), budget)
        return trainer

    whole = made()
    before = whole.score(data)
    whole.run()
    after = whole.score(data)
    assert after.overlap[0] > before.overlap[0] + 0.05
    assert after.overlap[2] > before.overlap[2] + 0.02
    first = made()
    first.run(31)
    first.save(tmp_path / "state.pt")
    second = made(tmp_path / "state.pt")
    second.run()
    assert second.losses == whole.losses
    for one, other in zip(whole.head.parameters(), second.head.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_prompt_longer_than_what_is_read_is_learned_from(target):
    """Its batch holds no other text: cut at its end alone, there would be nothing to learn and no gradient."""
    text = Text(np.array([3 + i % 50 for i in range(60)], np.int32), 50)
    run = Trainer(target, head_of(target), [text], Settings(steps=2, max_length=40, unroll=2))
    run.read(ModuleReader(target, run.head.config.feature_layers))
    before = run.head.fc.weight.clone()
    run.run()
    assert not torch.equal(before, run.head.fc.weight)
    assert run.score([text]).texts == 1


def test_a_new_heads_layer_is_the_targets_last_one_where_they_agree(target):
    last, layer = target.model.layers[-1], head_of(target).midlayer
    assert torch.equal(layer.mlp.up_proj.weight, last.mlp.up_proj.weight)
    assert torch.equal(layer.self_attn.k_proj.weight[:, 32:], last.self_attn.k_proj.weight)
    assert not torch.equal(layer.self_attn.k_proj.weight[:, :32], last.self_attn.k_proj.weight)
    biased = AutoModelForCausalLM.from_config(LlamaConfig(**CONFIG.to_dict() | {"attention_bias": True})).eval()
    other = head_of(biased).midlayer
    assert not torch.equal(other.mlp.up_proj.weight, biased.model.layers[-1].mlp.up_proj.weight)
