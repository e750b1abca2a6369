"""The slow truth that every engine test compares with, and engines over toy targets.

`plain` is the one-token loop, written without the product's rules, scheduler or caches: each token comes from a forward
over an empty cache, through processors written the long way (full sorts, Python loops).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pytest

from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Request, SamplingParams, Slots

NOISE = PhiloxNoise()


def fresh_logits(target: Any, tokens: list[int]) -> np.ndarray:
    """float64[V] after the last token, by one forward over an empty cache."""
    pages = -(-(len(tokens) + 2) // target.page_size)
    ids = np.array(tokens, np.int32)
    rows = Rows(ids, len(ids), Slots(np.arange(pages, dtype=np.int32), 0, len(ids)))
    return np.array(target.verify(flat_batch([rows], target.min_rows)).logits.row(0), np.float64)


def processed(logits: np.ndarray, prompt: list[int], output: list[int], p: SamplingParams, stop_ids: set) -> np.ndarray:
    """Penalties, bias and bans, the long way."""
    row = logits.copy()
    for token in set(prompt) | set(output):
        row[token] = row[token] / p.repetition_penalty if row[token] > 0 else row[token] * p.repetition_penalty
    for token in set(output):
        row[token] -= p.presence_penalty + p.frequency_penalty * output.count(token)
    for token, bias in p.logit_bias.items():
        row[token] += bias
    text = prompt + output
    for word in p.bad_words:
        if len(word) == 1 or text[-(len(word) - 1) :] == list(word[:-1]):
            row[word[-1]] = -np.inf
    if len(output) < p.min_new_tokens:
        row[list(stop_ids)] = -np.inf
    return row


def law(row: np.ndarray, p: SamplingParams) -> np.ndarray:
    """Temperature, top-k, top-p, min-p with full sorts; ties to the lower id."""
    if p.temperature == 0:
        return np.eye(len(row))[int(np.argmax(row))]
    weights = np.exp((row - row.max()) / p.temperature)
    order = sorted(range(len(row)), key=lambda i: (-weights[i], i))
    if p.top_k is not None:
        weights[order[p.top_k :]] = 0
    weights /= weights.sum()
    if p.top_p < 1:
        mass, cut = 0.0, len(order)
        for rank, token in enumerate(order):
            mass += weights[token]
            if mass >= p.top_p:
                cut = rank + 1
                break
        weights[order[cut:]] = 0
    weights[weights < p.min_p * weights.max()] = 0
    return weights / weights.sum()


def plain(
    target: Any, prompt: list[int], p: SamplingParams, stop_ids=frozenset(), max_len=None
) -> tuple[list[int], str]:
    """(tokens, finish reason) of plain decoding under position-keyed noise."""
    output: list[int] = []
    limit = min(target.max_len, max_len or target.max_len)
    while True:
        if p.max_new_tokens is not None and len(output) >= p.max_new_tokens:
            return output, "length"
        if len(prompt) + len(output) >= limit:
            return output, "length"
        row = processed(fresh_logits(target, prompt + output), prompt, output, p, set(stop_ids))
        weights = law(row, p)
        gumbel = NOISE.gumbel(p.seed, len(prompt) + len(output), None, len(row)) if p.temperature else 0.0
        with np.errstate(divide="ignore"):
            token = int(np.argmax(np.log(weights) + gumbel))
        output.append(token)
        if token in stop_ids and len(output) > p.min_new_tokens:
            return output, "stop"


@dataclass
class Run:
    """What became of one request."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    logprobs: list = field(default_factory=list)
    events: list = field(default_factory=list)
    error: str | None = None


def make_engine(
    target: Any, drafter: Any, *, gamma: int = 4, policy: Any = None, pages: int | None = None, **limits: Any
):
    """An engine over a toy target; `engine.pages` is its ledger."""
    ledger = PageLedger(pages or target.num_pages, target.page_size)
    chosen = Limits(max_len=target.max_len, min_rows=target.min_rows, **limits)
    scheduler = BatchScheduler(ledger, chosen, policy or FixedGamma(gamma))
    engine = Engine(target, drafter, scheduler, ledger, PhiloxNoise())
    engine.num_pages_at_start = ledger.free_pages
    return engine


def run_engine(engine: Any, requests: list, *, stop_ids=frozenset(), check: bool = True) -> list[Run]:
    """Runs (prompt, params) pairs in one batch to their ends; checks the ledger after each step and for leaks."""
    for number, (prompt, params) in enumerate(requests):
        engine.submit(Request(number, np.array(prompt, np.int32), params, frozenset(stop_ids), arrival=number))
    runs = [Run() for _ in requests]
    while engine.has_work:
        for event in engine.step():
            run = runs[event.request_id]
            assert run.finish is None, "an event after the end"
            run.tokens += event.tokens
            run.logprobs += event.logprobs
            run.events.append(event)
            run.finish, run.error = event.finish, event.error
        if check:
            engine.ledger.check()
    assert engine.ledger.free_pages == engine.num_pages_at_start
    return runs


@pytest.fixture(scope="session")
def truth() -> Any:
    """plain(target, prompt, params, stop_ids, max_len) -> (tokens, finish)."""
    return plain


@pytest.fixture(scope="session")
def logits_after() -> Any:
    """logits_after(target, tokens) -> float64[V], by one forward over an empty cache."""
    return fresh_logits


@pytest.fixture(scope="session")
def engine_of() -> Any:
    """engine_of(target, drafter, gamma=..., pages=..., **limits) -> Engine."""
    return make_engine


@pytest.fixture(scope="session")
def play() -> Any:
    """play(engine, [(prompt, params), ...], stop_ids=...) -> [Run, ...]."""
    return run_engine


CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """chromium(offline=...) -> a browser with a profile of its own; skips where none is installed."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright, ExitStack() as stack:

        def launch(**options: Any) -> Any:
            profile = str(tmp_path_factory.mktemp("profile"))
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=str(CHROMIUM), args=FLAGS, **options
            )
            stack.callback(context.close)
            return context

        yield launch
