"""Correct set-ups by number: random Markov targets, every drafter, every rule, temperatures and truncations mixed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from draftproof.certify import EngineReference, EngineSampler, Plan, run
from draftproof.drafters import make
from draftproof.drafters.scripted import LawDrafter
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import TableTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.sched.adaptive import AdaptiveGamma
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import SamplingParams

OPTIONS = ToyOptions(max_len=64, num_pages=256, page_size=8)
DRAFTERS = ("model", "ngram", "suffix", "fixed_tree", "iid_siblings", "distinct_siblings", "none")
RULES = ("reject", "coupled", "follow")
LAWS: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.6, "top_p": 0.8},
    {"temperature": 1.5, "top_k": 4},
    {"temperature": 0.9, "min_p": 0.1},
)
# 92: one after another, then again with other targets; `block` differs from `reject` where chains are drawn
MIXES = (*product(DRAFTERS, RULES, LAWS), *product(("model", "iid_siblings"), ("block",), LAWS))


def _drafter(name: str, rng: np.random.Generator, table: np.ndarray) -> Any:
    if name in ("none", "ngram", "suffix"):
        return make(name)
    vocab_size = table.shape[1]
    if name.endswith("_siblings"):
        laws = rng.dirichlet(np.ones(vocab_size), 3)
        kind = name.removesuffix("_siblings")
        return LawDrafter(laws, kind, parents=[0, 0, 1, 1, 2], law_row=[0, 0, 1, 1, 2])  # type: ignore[arg-type]
    other = TableTarget(table + rng.normal(size=table.shape), OPTIONS)
    options = {"widths": (2, 2)} if name == "fixed_tree" else {}
    ledger = PageLedger(other.num_pages, other.page_size)
    return make(name, target=other, ledger=ledger, vocab_size=vocab_size, **options)


def engine(target: Any, drafter: Any, ledger: PageLedger, policy: Any) -> Engine:
    limits = Limits(max_len=target.max_len, min_rows=target.min_rows)
    return Engine(target, drafter, BatchScheduler(ledger, limits, policy), ledger, PhiloxNoise())


def setup(number: int, **plan: Any) -> tuple[EngineSampler, EngineReference, Plan]:
    """The set-up of a number: the same one each time."""
    name, rule, law = MIXES[number % len(MIXES)]
    rng = np.random.default_rng([number, 99])
    vocab_size = int(rng.integers(4, 12))
    table = 1.5 * rng.normal(size=(vocab_size, vocab_size))
    target = TableTarget(table, OPTIONS)
    ledger = PageLedger(target.num_pages, target.page_size)
    policy = AdaptiveGamma(4) if number % 3 == 2 else FixedGamma(int(rng.integers(1, 5)))
    plain = EngineSampler(engine(target, make("none"), ledger, FixedGamma(0)))
    sampler = EngineSampler(engine(target, _drafter(name, rng, table), ledger, policy))
    prompts = tuple(tuple(rng.integers(0, vocab_size, length).tolist()) for length in (3, 5, 8))
    stops = frozenset({0}) if number % 2 else frozenset()
    params = SamplingParams(rule=rule, **law)  # type: ignore[arg-type]
    settings = {"tokens": 400, "text_tokens": 16, "batch": 8, "max_tv": 0.5, "seed": number % 65536, **plan}
    return sampler, EngineReference(target, ledger, plain), Plan(prompts, params, stops, **settings)


def certify(number: int, **plan: Any) -> dict[str, Any]:
    """Its certificate."""
    return run(*setup(number, **plan))
