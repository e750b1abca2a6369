"""Engines over toy targets as subjects, each with its own plain engine as baseline and its target as reference.

Makes `planted` and `setups` importable.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftproof.certify import EngineReference, EngineSampler, Plan
from draftproof.drafters import make
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import ConstTarget, HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import SamplingParams

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

OPTIONS = ToyOptions(max_len=512, num_pages=2048, page_size=8)
PROMPTS = ((1, 2, 3, 1, 2), (5, 4, 5, 4, 5), (0, 3, 3), (7, 1, 6, 7, 1, 6))


@dataclass
class Toy:
    """One set-up: what is certified, and by what."""

    sampler: EngineSampler
    reference: EngineReference
    vocab_size: int

    def plan(self, **changes: Any) -> Plan:
        given = {"prompts": PROMPTS, "tokens": 1000, "text_tokens": 32, "max_tv": 0.3, **changes}
        return Plan(**given)


def engine(target: Any, drafter: Any, ledger: PageLedger, gamma: int) -> Engine:
    limits = Limits(max_len=target.max_len, min_rows=target.min_rows)
    return Engine(target, drafter, BatchScheduler(ledger, limits, FixedGamma(gamma)), ledger, PhiloxNoise())


def make_drafter(name: str, seed: int, vocab_size: int, window: int, scale: float, like: float) -> Any:
    """A drafter by name; those with a model get a target that resembles the toy's: like 0 is the same one."""
    if name in ("none", "ngram", "suffix"):
        return make(name)
    other = HashTarget(vocab_size, seed, window=window, scale=scale, jitter=like, options=OPTIONS)
    options = {"widths": (2, 2)} if name == "fixed_tree" else {}
    ledger = PageLedger(other.num_pages, other.page_size)
    return make(name, target=other, ledger=ledger, vocab_size=vocab_size, **options)


def make_toy(
    drafter: Any = "model",
    *,
    seed: int = 0,
    vocab_size: int = 10,
    gamma: int = 3,
    window: int = 2,
    scale: float = 2.0,
    like: float = 0.6,
    constant: Any = None,
) -> Toy:
    """constant: logits of the target, and of a drafter by name, whatever the context."""
    target: Any = HashTarget(vocab_size, seed, window=window, scale=scale, options=OPTIONS)
    if constant is not None:
        target, other = ConstTarget(constant, OPTIONS), ConstTarget(constant, OPTIONS)
        ledger = PageLedger(other.num_pages, other.page_size)
        if drafter == "model":
            drafter = make("model", target=other, ledger=ledger, vocab_size=vocab_size)
    ledger = PageLedger(target.num_pages, target.page_size)
    if isinstance(drafter, str):
        drafter = make_drafter(drafter, seed, vocab_size, window, scale, like)
    plain = EngineSampler(engine(target, make("none"), ledger, 0), name="plain")
    sampler = EngineSampler(engine(target, drafter, ledger, gamma))
    return Toy(sampler, EngineReference(target, ledger, plain), vocab_size)


@pytest.fixture(scope="session")
def toy() -> Any:
    """toy(drafter, seed=..., vocab_size=..., gamma=..., ...) -> Toy."""
    return make_toy


def sampled(rule: str = "reject", temperature: float = 1.0, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=temperature, rule=rule, **more)


@pytest.fixture(scope="session")
def params() -> Any:
    """params(rule, temperature, ...) -> SamplingParams."""
    return sampled
