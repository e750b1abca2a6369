"""The training loss against the head as it drafts: one root at a time, with a cache that grows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig
from draftproof.train.start import new_head
from draftproof.train.texts import shortened
from draftproof.train.trainer import Settings, Text, Trainer, padded, rate
from draftproof.train.unroll import see, unroll

SIZE = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG = LlamaConfig(
    **SIZE, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.4
)
IDS = torch.arange(0, 61, 2)


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG).eval().requires_grad_(False)


def head_of(target, seed=1):
    config = EagleConfig.of_target(CONFIG, draft_vocab_size=len(IDS))
    return new_head(config, target, IDS, torch.arange(40).reshape(2, 20), seed)


def texts(target, count, length=24):
    rng = torch.Generator().manual_seed(3)
    prompts = torch.randint(3, 61, (count, 5), generator=rng)
    found = target.generate(prompts, do_sample=False, max_new_tokens=length, pad_token_id=0, eos_token_id=None)
    return [Text(line.numpy().astype(np.int32), 5) for line in found]


class Cache:
    """Attention of one text, row by row: what was seen is what was appended."""

    def __init__(self, keys=(), values=()):
        self.keys, self.values = list(keys), list(values)

    def __call__(self, query, key, value):  # [1, heads, D]
        self.keys.append(key.repeat_interleave(2, 1)[0])
        self.values.append(value.repeat_interleave(2, 1)[0])
        keys, values = torch.stack(self.keys), torch.stack(self.values)  # [L, heads, D]
        weights = torch.softmax(torch.einsum("hd,lhd->hl", query[0], keys) * query.shape[-1] ** -0.5, -1)
        return torch.einsum("hl,lhd->hd", weights, values)[None]


@torch.no_grad()
def drafted(head, target, text, root, steps):
    """float[steps, Vd]: the head's log-laws along the text from one root, as a drafter would feed it."""
    ids = torch.from_numpy(text.tokens.astype(np.int64))
    states = target(input_ids=ids[None], output_hidden_states=True).hidden_states
    fused = head.fc(torch.cat([states[layer][0] for layer in head.config.feature_layers], -1))
    embedding, output = target.get_input_embeddings().weight, target.get_output_embeddings().weight[IDS]
    cache, laws = Cache(), []
    for place in range(root + 1):
        hidden = head(embedding[ids[place + 1]][None], fused[place][None], torch.tensor([place]), cache)
    for step in range(steps):
        laws.append(torch.log_softmax(functional.linear(head.norm(hidden), output), -1)[0])
        place = root + 1 + step
        if place + 1 < len(ids):
            hidden = head(embedding[ids[place + 1]][None], hidden, torch.tensor([place]), cache)
    return torch.stack(laws)


def test_each_step_is_what_the_head_says_when_it_drafts(target):
    """Cross-entropies of the loss, root by root, from laws computed one row at a time."""
    head, text = head_of(target), texts(target, 1)[0]
    tokens, counts = padded([text], 64)
    sight = see(target, head, tokens, counts)
    steps = 3
    found = unroll(head, target.get_input_embeddings().weight, target.get_output_embeddings().weight[IDS], sight, steps)
    total, match, reached = 0.0, np.zeros(steps), np.zeros(steps)
    laws = torch.softmax(sight.scores[0], -1)
    for step in range(steps):
        roots = [t for t in range(len(text.tokens) - 2 - step) if counts[0, t + 1]]
        losses = []
        for root in roots:
            log_q = drafted(head, target, text, root, step + 1)
            losses.append(-(laws[root + 1 + step] * log_q[step]).sum())
            right = [int(IDS[log_q[j].argmax()]) == int(sight.best[0, root + 1 + j]) for j in range(step + 1)]
            if all(counts[0, root + 1 + j] for j in range(step + 1)) and all(right[:-1]):
                reached[step] += 1
                match[step] += right[-1]
        total = total + 0.9**step * torch.stack(losses).mean()
    assert abs(found.loss.item() - total.item()) < 1e-4 * abs(total.item())
    assert found.reached.tolist() == reached.tolist()
    np.testing.assert_allclose(found.match.numpy() * reached, match, atol=1e-4)


def test_overlap_is_one_minus_total_variation(target):
    """A head that says what the target says, over all ids, overlaps wholly."""
    head, text = head_of(target), texts(target, 1)[0]
    tokens, counts = padded([text], 64)
    sight = see(target, head, tokens, counts)
    found = unroll(head, target.get_input_embeddings().weight, target.get_output_embeddings().weight[IDS], sight, 1)
    laws = torch.exp(sight.scores[0])
    roots = [t for t in range(len(text.tokens) - 2) if counts[0, t + 1]]
    expected = np.mean([
        torch.minimum(laws[t + 1], drafted(head, target, text, t, 1)[0].exp()).sum().item() for t in roots
    ])  # fmt: skip
    assert abs(float(found.overlap[0]) - expected) < 1e-5


def test_training_makes_drafts_better_and_resumes_to_the_same_bits(target, tmp_path):
    data = texts(target, 40, 30)
    settings = Settings(steps=80, batch_tokens=300, max_length=64, unroll=2, learning_rate=3e-3)
    whole = Trainer(target, head_of(target), data[:32], settings)
    before = whole.score(data[:32])
    whole.run()
    after = whole.score(data[:32])
    assert after.overlap[0] > before.overlap[0] + 0.05
    assert whole.losses[-1] < whole.losses[0]
    first = Trainer(target, head_of(target), data[:32], settings)
    first.run(33)
    first.save(tmp_path / "state.pt")
    second = Trainer(target, EagleHead(first.head.config), data[:32], settings)
    second.load(tmp_path / "state.pt")
    second.run()
    assert second.losses == whole.losses
    for one, other in zip(whole.head.parameters(), second.head.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_full_disk_leaves_the_last_checkpoint(target, tmp_path, monkeypatch):
    trainer = Trainer(target, head_of(target), texts(target, 4), Settings(steps=2, batch_tokens=200))
    trainer.save(tmp_path / "state.pt")
    before = (tmp_path / "state.pt").read_bytes()

    def full(*_):
        (tmp_path / "state.pt.part").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        trainer.save(tmp_path / "state.pt")
    assert (tmp_path / "state.pt").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_the_learning_rate_rises_and_falls():
    settings = Settings(steps=100, warmup=0.1, final=0.05)
    rates = [rate(step, settings) for step in range(101)]
    assert rates[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert all(one >= other for one, other in itertools.pairwise(rates[10:]))
    assert rates[100] == pytest.approx(0.05)


def test_padding_is_never_learned(target):
    """The loss of two texts together is the mean of their losses, weighted by their tokens."""
    head, (one, other) = head_of(target), (texts(target, 1, 10)[0], texts(target, 2, 30)[1])
    losses, sizes = [], []
    for batch in ([one], [other], [one, other]):
        trainer = Trainer(target, head, batch, Settings(steps=1, batch_tokens=1000, unroll=1))
        tokens, counts = padded(batch, 64)
        losses.append(trainer._unrolled(see(target, head, tokens, counts)).loss.item())
        sizes.append(counts.sum().item())
    assert sizes == [10, 30, 40]
    assert losses[2] == pytest.approx((10 * losses[0] + 30 * losses[1]) / 40, rel=1e-5)


@pytest.mark.parametrize(("prompt", "answer"), [(600, 40), (500, 224), (300, 224), (8, 900), (2000, 1), (3, 1200)])
def test_a_text_that_is_too_long_keeps_half_of_its_completion(prompt, answer):
    """Or all that fit: a prompt as long as what is read must not leave a text that teaches nothing."""
    tokens = np.arange(prompt + answer, dtype=np.int32)
    cut = shortened(Text(tokens, prompt, "b"), 512)
    assert len(cut.tokens) == 512
    assert cut.bucket == "b"
    first = int(cut.tokens[cut.prompt_len])
    assert first == prompt  # its completion begins where the whole one does
    assert cut.tokens.tolist() == list(range(first - cut.prompt_len, first - cut.prompt_len + 512))
    assert cut.prompt_len >= 1
    assert 512 - cut.prompt_len >= min((answer + 1) // 2, 511)
    whole = Text(tokens[:512], 5)
    assert shortened(whole, 512) is whole
