"""The torch target on a CUDA device: the same code, held equal to stock transformers, to the CPU and to itself."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, MistralConfig

from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.hf import TorchLogits, TorchTarget
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Request, SamplingParams, Slots

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SIZE = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "initializer_range": 0.3}
SIZE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
CONFIGS = {
    "llama": LlamaConfig(**SIZE),
    "mistral": MistralConfig(**SIZE, sliding_window=8),
    "gemma2": Gemma2Config(**SIZE, head_dim=16, sliding_window=8, attn_logit_softcapping=0.5),
    "gpt2": GPT2Config(vocab_size=97, n_embd=64, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3),
}
TEXT = np.random.default_rng(0).integers(3, 97, 45).astype(np.int32)


def module(name, dtype, device="cuda"):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[name]), dtype=dtype).eval().to(device)


def feed(target, sizes, parents=None):
    """Logits of TEXT, fed in pieces of these sizes; with parents the last piece is a tree."""
    table, rows, start = np.random.default_rng(1).permutation(target.num_pages).astype(np.int32), [], 0
    for size in sizes:
        part = TEXT[start : start + size]
        nodes = np.arange(size - 1, dtype=np.int32)
        if parents is not None and start + size == sum(sizes):
            nodes = np.array(parents, np.int32)
        batch = flat_batch([Rows(part, size - len(nodes), Slots(table, start, size), nodes)], target.min_rows)
        logits = target.verify(batch).logits
        rows += [logits.row(i).copy() for i in range(batch.logit_offsets[-1])]
        start += size
    return np.array(rows)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-5), (torch.float32, 1e-3), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("name", CONFIGS)
def test_equals_stock(name, dtype, limit):
    model = module(name, dtype)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        truth = model(torch.from_numpy(TEXT).long()[None].cuda(), use_cache=False).logits[0].double().cpu().numpy()
    got = feed(TorchTarget(model, num_pages=20, page_size=4), [20, 1, 7, 1, 16])
    assert np.abs(got - truth).max() <= limit * max(1.0, np.abs(truth).max())


# GPT-2 computes in float64 throughout. The others take their norms and rotary angles in float32 whatever the model's
# dtype, and the two devices round those differently: 1e-6 of the largest logit was measured.
@pytest.mark.parametrize(("name", "limit"), [("gpt2", 1e-12), ("llama", 1e-5), ("mistral", 1e-5), ("gemma2", 1e-5)])
def test_equals_the_cpu_in_float64_trees_included(name, limit):
    both = [
        feed(TorchTarget(module(name, torch.float64, device), num_pages=20, page_size=4), [30, 6], [0, 0, 1, 2, 2])
        for device in ("cuda", "cpu")
    ]
    assert np.abs(both[0] - both[1]).max() <= limit * np.abs(both[1]).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_rows_are_the_same_bits(dtype):
    target = TorchTarget(module("llama", dtype), num_pages=20, page_size=4, numerics="invariant")
    assert np.array_equal(feed(target, [45]), feed(target, [1] * 45))
    assert np.array_equal(feed(target, [45]), feed(target, [20, 5, 5, 15]))


@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_text_is_the_same_with_drafts(gamma):
    target = TorchTarget(module("llama", torch.float64), num_pages=200, page_size=4)

    def texts(gamma, script):
        ledger = PageLedger(target.num_pages, target.page_size)
        scheduler = BatchScheduler(ledger, Limits(target.max_len, max_sequences=6), FixedGamma(gamma))
        engine = Engine(target, ScriptedDrafter(script), scheduler, ledger, PhiloxNoise())
        found = [[] for _ in range(6)]
        for number in range(6):
            engine.submit(Request(number, TEXT[number : 20 + 3 * number], SamplingParams(max_new_tokens=30, seed=1)))
        while engine.has_work:
            for event in engine.step():
                found[event.request_id] += event.tokens
        return found, engine.meter

    plain, _ = texts(0, [])
    starts = {int(TEXT[number]): text for number, text in enumerate(plain)}

    def partly_right(item):
        done = len(item.tokens) - item.prompt_len
        part = starts[int(item.tokens[0])][done : done + item.budget]
        return [token if (done + i) % 7 else 3 for i, token in enumerate(part)]

    drafted, meter = texts(gamma, partly_right)
    assert drafted == plain
    assert 0 < meter.accepted < meter.tested


def test_ties_and_nan_in_the_argmax():
    rows = torch.zeros(3, 200_000, device="cuda")
    rows[0, [199_999, 1_000, 77]] = 2.0
    rows[1, 150_000] = torch.nan
    assert TorchLogits(rows).argmax().tolist() == [77, -1, 0]
