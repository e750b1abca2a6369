"""B21: a cache that can't be rewound is refused before the first token; a sliding window can be, even once wrapped."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, JambaConfig, MambaConfig, MistralConfig

from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.engine.step import Engine
from draftproof.errors import UnsupportedModel
from draftproof.kv.ledger import PageLedger
from draftproof.models.hf import TorchTarget
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Request, SamplingParams

WINDOW, PROMPT, GAMMA, NUM_NEW = 8, 6, 4, 20
SIZE = {"vocab_size": 41, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.3}
SIZE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": WINDOW}
CONFIGS = {
    "mistral": MistralConfig(**SIZE),
    "gemma3": Gemma3TextConfig(**SIZE, head_dim=8, layer_types=["sliding_attention", "full_attention"]),
}


def module(name):
    with torch.random.fork_rng():
        torch.manual_seed(21)
        return AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[name]), dtype=torch.float64).eval()


def text(target, gamma, script):
    ledger = PageLedger(target.num_pages, target.page_size)
    scheduler = BatchScheduler(ledger, Limits(max_len=target.max_len), FixedGamma(gamma))
    engine = Engine(target, ScriptedDrafter(script), scheduler, ledger, PhiloxNoise())
    engine.submit(Request(0, np.arange(5, 5 + PROMPT, dtype=np.int32), SamplingParams(max_new_tokens=NUM_NEW, seed=0)))
    found = []
    while engine.has_work:
        found += [token for event in engine.step() for token in event.tokens]
    return found, engine.meter


@pytest.mark.parametrize("page_size", [1, 4, 64])
@pytest.mark.parametrize("name", CONFIGS)
def test_always_wrong_drafts_leave_nothing_inside(name, page_size):
    model = module(name)
    ids = torch.arange(5, 5 + PROMPT)[None]
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "use_cache": False}
    stock = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_NEW, **options)[0, PROMPT:]
    target = TorchTarget(model, num_pages=-(-64 // page_size), page_size=page_size)
    plain, _ = text(target, 0, [])
    assert plain == stock.tolist()

    def wrong(item):
        right = plain[len(item.tokens) - PROMPT]
        return [(right + 1 + i) % 41 for i in range(item.budget)]

    found, meter = text(target, GAMMA, wrong)
    assert found == plain
    assert meter.accepted == 0
    assert meter.drafted > NUM_NEW


@pytest.mark.parametrize("config", [MambaConfig(), JambaConfig()], ids=["mamba", "jamba"])
def test_recurrent_state_is_refused_before_the_first_token(config):
    class Unread:
        """A model of which only the config may be looked at."""

        def __init__(self):
            self.config = config

        def __getattr__(self, name):
            raise AssertionError(f"the model's {name} was read before the refusal")

    with pytest.raises(UnsupportedModel, match=f"{config.model_type}.*rewound"):
        TorchTarget(Unread(), num_pages=4)
