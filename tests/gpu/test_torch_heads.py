"""Draft heads beside a target on a CUDA device: states and logits of the CPU, texts of plain decoding, promised bits.

Every case also runs on the CPU, which then stands in for the device.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.drafters import make
from draftproof.drafters.tree_shape import FREE, parse_shape
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.eagle import rotary
from draftproof.models.eagle_config import EagleConfig, RopeScaling
from draftproof.models.hf import TorchTarget
from draftproof.models.medusa_config import MedusaConfig
from draftproof.models.torch_head import TorchHead
from draftproof.models.torch_medusa import TorchMedusa
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.train.medusa import new_heads
from draftproof.train.start import new_head
from draftproof.types import Request, SamplingParams, Slots

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = [pytest.param("cuda", marks=[pytest.mark.gpu, NO_CUDA]), "cpu"]
CONFIG = LlamaConfig(
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    initializer_range=0.2,
)
IDS = torch.arange(0, 97, 2)
TEXT = np.random.default_rng(0).integers(3, 97, 45).astype(np.int32)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def parts(dtype, device):
    """(target's module on the device, EAGLE head, Medusa heads), the same numbers at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_config(copy.deepcopy(CONFIG), dtype=torch.float32).eval()
        eagle = new_head(EagleConfig.of_target(CONFIG, (1, 2, 3), len(IDS)), model, IDS, torch.arange(32)[None], 0)
        medusa = new_heads(MedusaConfig.of_target(CONFIG, 3, len(IDS)), model, IDS)
    return model.to(device, dtype), eagle.eval(), medusa.eval()


def target_of(model, numerics="fast", layers=(1, 2, 3)):
    return TorchTarget(model, num_pages=150, page_size=4, numerics=numerics, features=layers)


def read(target, head, sizes):
    """(states of TEXT, head's logits behind it, its output), the text fed in pieces of these sizes."""
    table = np.random.default_rng(1).permutation(40).astype(np.int32)
    states, start = [], 0
    for size in sizes:
        rows = Rows(TEXT[start : start + size], size, Slots(table, start, size))
        states.append(target.verify(flat_batch([rows], 1)).features)
        rows = Rows(TEXT[start : start + size][::-1].copy(), size, Slots(table, start, size))
        logits, own = head.draft(flat_batch([rows], 1), states[-1], None)
        start += size
    later = Rows(TEXT[:1], 1, Slots(table, start, 1))
    logits, own = head.draft(flat_batch([later], 1), None, own)
    return np.concatenate(states), logits.row(0).copy(), own


# The module and the head take norms and angles in float32 whatever their dtype; two devices round those differently.
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-5), (torch.float32, 1e-3), (torch.bfloat16, 0.15)])
def test_states_and_logits_are_the_cpus(device, dtype, limit):
    found = []
    for where, kind in ((device, dtype), ("cpu", torch.float64)):
        model, eagle, _ = parts(kind, where)
        found.append(read(target_of(model), TorchHead(eagle, model, kv_bytes=1 << 19, page_size=4), [30, 1, 14]))
    for ours, truth in zip(*found, strict=True):
        assert np.abs(ours - truth).max() <= limit * np.abs(truth).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_states_and_drafts_are_the_same_bits(device, dtype):
    model, eagle, _ = parts(dtype, device)
    found = []
    for sizes in ([45], [1] * 45, [20, 5, 20]):
        head = TorchHead(eagle, model, kv_bytes=1 << 19, page_size=4, numerics="invariant")
        target = target_of(model, "invariant")
        table, states, start = np.arange(30, dtype=np.int32), [], 0
        for size in sizes:
            rows = Rows(TEXT[start : start + size], size, Slots(table, start, size))
            states.append(target.verify(flat_batch([rows], 1)).features)
            logits, own = head.draft(flat_batch([rows], 1), states[-1], None)
            start += size
        found.append((np.concatenate(states), logits.row(0).copy(), own))
    for one, two, three in zip(*found, strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)


@pytest.mark.parametrize(("name", "tree"), [("eagle", None), ("eagle", "dynamic"), ("medusa", None), ("cascade", None)])
def test_greedy_text_is_the_same_with_drafts(device, name, tree):
    model, eagle, medusa = parts(torch.float64, device)
    target = target_of(model, layers=(3,) if name == "medusa" else (1, 2, 3))

    def texts(drafter, gamma):
        ledger = PageLedger(target.num_pages, target.page_size)
        scheduler = BatchScheduler(ledger, Limits(target.max_len, max_sequences=5), FixedGamma(gamma))
        engine = Engine(target, drafter, scheduler, ledger, PhiloxNoise())
        found = [[] for _ in range(5)]
        for number in range(5):
            engine.submit(Request(number, TEXT[number : 9 + 3 * number], SamplingParams(max_new_tokens=12, seed=1)))
        while engine.has_work:
            for event in engine.step():
                found[event.request_id] += event.tokens
        return found, engine.meter

    more = {} if tree is None else {"tree": parse_shape(tree, FREE)}
    if name == "medusa":
        heads = TorchMedusa(medusa, model)
        drafter = make(name, target=heads, vocab_size=97, mapping=heads.draft_ids)
    else:
        head = TorchHead(eagle, model, kv_bytes=1 << 19, page_size=4)
        ledger = PageLedger(head.num_pages, head.page_size)
        drafter = make(name, target=head, ledger=ledger, vocab_size=97, mapping=head.draft_ids, **more)
    plain, _ = texts(make("none"), 0)
    drafted, meter = texts(drafter, 4)
    assert drafted == plain
    assert meter.drafted > 30


def test_stretched_angles_are_the_cpus(device):
    positions, scaling = torch.arange(0, 100_000, 977), RopeScaling(8.0, 1.0, 4.0, 8192)
    for ours, truth in zip(
        rotary(positions.to(device), 128, 5e5, scaling), rotary(positions, 128, 5e5, scaling), strict=True
    ):
        # an angle of 1e5 in float32 is right to 0.008 at best: both sides round the same product, then call cos
        assert (ours.cpu() - truth).abs().max() < 2e-2
