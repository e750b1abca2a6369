"""B13: batch-width rounding must neither be taken for a logic fault nor hide one. The torch target, real forwards."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.hf import TorchTarget
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Request, SamplingParams, Slots

NUM_PROMPTS, NUM_NEW, VOCAB = 40, 32, 61


def tiny(dtype, numerics="fast", num_pages=400):
    """TINY: a 2-layer random transformer."""
    with torch.random.fork_rng():
        torch.manual_seed(13)
        size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 128}
        config = LlamaConfig(vocab_size=VOCAB, num_attention_heads=4, num_key_value_heads=2, **size)
        config.initializer_range = 0.3
        return TorchTarget(LlamaForCausalLM(config).to(dtype), num_pages=num_pages, page_size=8, numerics=numerics)


def prompts():
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCAB, rng.integers(2, 12)).astype(np.int32) for _ in range(NUM_PROMPTS)]


def texts(target, gamma, drafter, batch):
    """The new tokens of every prompt, `batch` sequences at a time."""
    ledger = PageLedger(target.num_pages, target.page_size)
    limits = Limits(max_len=target.max_len, max_sequences=batch)
    scheduler = BatchScheduler(ledger, limits, FixedGamma(gamma))
    engine = Engine(target, drafter, scheduler, ledger, PhiloxNoise())
    found = [[] for _ in range(NUM_PROMPTS)]
    for number, prompt in enumerate(prompts()):
        engine.submit(Request(number, prompt, SamplingParams(max_new_tokens=NUM_NEW, seed=number)))
    while engine.has_work:
        for event in engine.step():
            found[event.request_id] += event.tokens
    assert ledger.free_pages == target.num_pages
    return found, engine.meter


def partly_right(plain):
    """A drafter that knows the plain texts and spoils about every fourth token, and counts what it drafted."""
    by_start = {tuple(p.tolist()): t for p, t in zip(prompts(), plain, strict=True)}

    def script(item):
        text = by_start[tuple(item.tokens[: item.prompt_len].tolist())]
        done = len(item.tokens) - item.prompt_len
        rng = np.random.default_rng(len(item.tokens))
        return [t if rng.random() < 0.75 else (t + 1) % VOCAB for t in text[done : done + item.budget]]

    return ScriptedDrafter(script)


@pytest.fixture(scope="module")
def target():
    return tiny(torch.float64)


@pytest.fixture(scope="module")
def plain(target):
    """Each prompt through the plain one-token loop, alone in the batch."""
    return texts(target, 0, ScriptedDrafter([]), 1)[0]


@pytest.mark.parametrize("gamma", [1, 3, 7])
@pytest.mark.parametrize("batch", [1, 8])
def test_float64_text_is_plain_greedy(gamma, batch, target, plain):
    found, meter = texts(target, gamma, partly_right(plain), batch)
    assert found == plain
    assert all(len(text) == NUM_NEW for text in found)
    assert 0.5 < meter.accepted / meter.tested < 1.0


def wide_and_narrow(target, tokens, width):
    """[T, V] of the same rows, fed `width` at a time and one at a time."""
    both = []
    for step in (width, 1):
        rows = []
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            slots = Slots(np.arange(16, dtype=np.int32), start, len(part))
            order = np.arange(len(part) - 1, dtype=np.int32)
            output = target.verify(flat_batch([Rows(part, 1, slots, order)], 1))
            rows += [output.logits.row(i).copy() for i in range(len(part))]
        both.append(np.array(rows))
    return both


@pytest.mark.parametrize("width", [2, 4, 8])
def test_float64_rows_differ_by_rounding_only(width, target, plain):
    gap = 0.0
    for prompt, text in zip(prompts()[:5], plain, strict=False):
        wide, narrow = wide_and_narrow(target, np.array([*prompt, *text], np.int32), width)
        gap = max(gap, np.abs(wide - narrow).max())
    assert gap < 1e-10


@pytest.mark.parametrize("width", [2, 4, 8])
def test_float32_picks_differ_only_in_ties_within_the_drift(width, plain):
    target = tiny(torch.float32)
    for prompt, text in zip(prompts()[:5], plain, strict=False):
        wide, narrow = wide_and_narrow(target, np.array([*prompt, *text], np.int32), width)
        drift = np.abs(wide - narrow).max()
        best = np.sort(narrow, axis=1)[:, -2:]
        differs = wide.argmax(1) != narrow.argmax(1)
        assert (best[differs, 1] - best[differs, 0] <= 2 * drift).all(), f"gap above the drift of {drift:.1e}"
        assert drift < 1e-4 * np.abs(narrow).max()


@pytest.mark.parametrize("width", [2, 4, 8])
def test_float32_invariant_rows_are_the_same_bits(width):
    target = tiny(torch.float32, "invariant")
    wide, narrow = wide_and_narrow(target, np.arange(20, dtype=np.int32), width)
    assert np.array_equal(wide, narrow)


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_ties_go_to_the_lowest_id_at_every_width(numerics):
    target = tiny(torch.float64, numerics)
    head = target._model.lm_head.weight.data
    head[7:] = 0.0
    head[[3, 5]] = head[2].clone()
    for width in (1, 2, 4, 8):
        slots = Slots(np.arange(2, dtype=np.int32), 0, width)
        rows = Rows(np.arange(20, 20 + width, dtype=np.int32), 1, slots, np.arange(width - 1, dtype=np.int32))
        logits = target.verify(flat_batch([rows], 1)).logits
        for row, best in enumerate(logits.argmax().tolist()):
            values = logits.row(row)
            assert best == np.flatnonzero(values == values.max())[0]
            assert best not in (3, 5)
