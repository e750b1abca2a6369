"""The loss of Medusa heads against one computed root by root; runs that stop and go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.errors import UnsupportedModel
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig
from draftproof.train.kinds import KINDS, Target
from draftproof.train.medusa import MedusaTrainer, foresee, new_heads, remembered
from draftproof.train.settings import TrainSettings
from draftproof.train.sights import ModuleReader, Seen, glance
from draftproof.train.trainer import Settings, Text, padded
from draftproof.train.unroll import see

SIZE = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG = LlamaConfig(**SIZE, max_position_embeddings=128, initializer_range=0.4)
IDS = torch.arange(0, 61, 2)


@pytest.fixture(scope="module")
def target():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(CONFIG).eval().requires_grad_(False)


def heads_of(target, *, num_heads=3, noise=0.0):
    heads = new_heads(MedusaConfig.of_target(CONFIG, num_heads, len(IDS)), target, IDS)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for parameter in heads.parameters():
            torch.nn.init.normal_(parameter, std=noise)
    return heads


@torch.no_grad()
def by_root(heads, target, text, decay):
    """(loss, matches, reached, overlap) of one text, a root and a head at a time, from the target's own outputs."""
    ids = torch.from_numpy(text.tokens.astype(np.int64))
    said = target(input_ids=ids[None], output_hidden_states=True)
    states, laws = said.hidden_states[-1][0], torch.softmax(said.logits[0], -1)
    output, steps = target.get_output_embeddings().weight[IDS], len(heads)
    losses, overlaps = [[] for _ in range(steps)], [[] for _ in range(steps)]
    match, reached = np.zeros(steps), np.zeros(steps)
    for root in range(len(ids)):
        alive = True
        for step in range(steps):
            judge = root + 1 + step  # the place whose next token draft step + 1 is
            if judge > len(ids) - 2 or judge + 1 < text.prompt_len:
                alive = False
                continue
            hidden = states[root]
            for block in heads[step]:
                hidden = hidden + functional.silu(block.linear(hidden))
            law = torch.softmax(output @ hidden, -1)
            cut = laws[judge, IDS]
            losses[step].append(float(-(cut / cut.sum() * law.log()).sum()))
            overlaps[step].append(float(torch.minimum(cut, law).sum()))
            right = int(IDS[law.argmax()]) == int(laws[judge].argmax())
            reached[step] += alive
            match[step] += alive and right
            alive = alive and right
    loss = sum(decay**step * np.mean(losses[step]) for step in range(steps))
    return loss, match, reached, [np.mean(each) for each in overlaps]


def test_the_loss_is_that_of_each_root_and_head(target, texts):
    for seed, text in enumerate(texts(target, 3)):
        heads = heads_of(target, noise=0.05 * seed)
        tokens, counts = padded([text], 64)
        found = foresee(heads, target.get_output_embeddings().weight[IDS], see(target, heads, tokens, counts), 3, 0.7)
        loss, match, reached, overlap = by_root(heads, target, text, 0.7)
        assert found.loss.item() == pytest.approx(loss, rel=1e-4)
        assert found.reached.tolist() == reached.tolist()
        np.testing.assert_allclose(found.match.numpy() * reached, match, atol=1e-4)
        np.testing.assert_allclose(found.overlap.numpy(), overlap, atol=1e-4)


def test_the_loss_from_memory_is_the_same(target, texts):
    """With the whole law and nothing rounded; and so is its gradient."""
    output, kept = target.get_output_embeddings().weight[IDS], []
    batch = [texts(target, 1, 10)[0], texts(target, 2, 30)[1]]
    reader = ModuleReader(target, (4,))
    for text in batch:
        ids = torch.from_numpy(text.tokens).long()
        _, last = reader.read(ids)
        scores, rows = functional.linear(last, output).sort(-1, descending=True)
        kept.append(Seen(ids, text.prompt_len, last, rows.int(), torch.softmax(scores, -1)))
    tokens, counts = padded(batch, 64)
    losses, slopes = [], []
    for loss in (
        lambda heads: foresee(heads, output, see(target, heads, tokens, counts), 3).loss,
        lambda heads: remembered(heads, output, glance(kept), 3),
    ):
        heads = heads_of(target, noise=0.05)
        found = loss(heads)
        found.backward()
        losses.append(found.item())
        slopes.append([parameter.grad for parameter in heads.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-6)


def test_a_run_over_texts_that_were_read_once_learns(target, texts):
    data = texts(target, 40, 30)
    run = MedusaTrainer(target, heads_of(target), data, Settings(steps=60, batch_tokens=300, learning_rate=1e-2))
    before = run.score(data)
    run.read(ModuleReader(target, (4,)))
    assert run.library is not None
    assert run.library.of([0])[0].features.shape[1] == 32
    run.run()
    assert all(late > early + 0.03 for late, early in zip(run.score(data).overlap, before.overlap, strict=True))


def test_padding_is_never_learned(target, texts):
    heads = heads_of(target, num_heads=1, noise=0.1)
    one, other = texts(target, 1, 10)[0], texts(target, 2, 30)[1]
    output, losses, sizes = target.get_output_embeddings().weight[IDS], [], []
    for batch in ([one], [other], [one, other]):
        tokens, counts = padded(batch, 64)
        losses.append(foresee(heads, output, see(target, heads, tokens, counts), 1).loss.item())
        sizes.append(counts.sum().item())
    assert sizes == [10, 30, 40]
    assert losses[2] == pytest.approx((10 * losses[0] + 30 * losses[1]) / 40, rel=1e-5)


def test_a_text_too_short_for_a_head_is_no_fault(target):
    text = Text(np.array([1, 2, 3], np.int32), 2)
    heads = heads_of(target)
    tokens, counts = padded([text], 64)
    found = foresee(heads, target.get_output_embeddings().weight[IDS], see(target, heads, tokens, counts), 3)
    assert found.reached.tolist() == [1, 0, 0]
    assert torch.isfinite(found.loss)
    found.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in heads[0].parameters())


def test_training_makes_drafts_better_and_resumes_to_the_same_bits(target, tmp_path, texts):
    data = texts(target, 40, 30)
    settings = Settings(steps=60, batch_tokens=300, max_length=64, learning_rate=1e-2)
    whole = MedusaTrainer(target, heads_of(target), data[:32], settings)
    assert whole.settings.unroll == 3
    before = whole.score(data[:32])
    whole.run()
    after = whole.score(data[:32])
    assert len(after.match) == 3
    assert all(late > early + 0.03 for late, early in zip(after.overlap, before.overlap, strict=True))
    assert whole.losses[-1] < whole.losses[0]
    first = MedusaTrainer(target, heads_of(target), data[:32], settings)
    first.run(23)
    first.save(tmp_path / "state.pt")
    second = MedusaTrainer(target, MedusaHeads(first.head.config), data[:32], settings)
    second.load(tmp_path / "state.pt")
    second.run()
    assert second.losses == whole.losses
    for one, other in zip(whole.head.parameters(), second.head.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_target_that_tells_too_little_is_refused_by_name():
    KINDS["medusa"].check(Target(Path(), CONFIG.to_dict()), TrainSettings(Path()))
    with pytest.raises(UnsupportedModel, match=r"Medusa heads .* type 'gpt2' .*no hidden_size"):
        KINDS["medusa"].check(Target(Path(), {"model_type": "gpt2", "n_embd": 64}), TrainSettings(Path()))
