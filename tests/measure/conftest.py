"""Toy benches and toy runs: the whole path of a measurement over models that are a hash of the text."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftproof.drafters.model import ModelDrafter
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.measure.bench import Bench, Runner
from draftproof.measure.encode import Prompt
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.types import SamplingParams

VOCAB = 12


def _load(name: str) -> Any:
    """A helper module beside this file; tests are imported without packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def toy() -> Any:
    """The module toy_cli."""
    return _load("toy_cli")


@pytest.fixture
def bench_of(engine_of: Any) -> Callable[..., Bench]:
    """bench_of(params, drafters=..., gamma=..., stop=..., log=...) -> Bench over one HashTarget."""

    def make(
        params: SamplingParams,
        drafters: Sequence[str] = ("ngram", "suffix", "model"),
        *,
        gamma: int = 4,
        stop: Sequence[int] = (),
        log: bool = False,
        scale: float = 2.0,
        draft_max_len: int = 512,
    ) -> Bench:
        options = ToyOptions(num_pages=2048, min_rows=2)
        target = HashTarget(VOCAB, seed=3, window=2, scale=scale, options=options)
        runners, ledger = [], None
        for name in drafters:
            drafter = _drafter(name, scale, ToyOptions(num_pages=2048, min_rows=2, max_len=draft_max_len))
            engine = engine_of(target, drafter, gamma=gamma, max_step_rows=2000)
            ledger = ledger or engine.ledger
            runners.append(Runner(name, engine, name == "model"))
        assert ledger is not None
        ends = frozenset(stop)
        return Bench(target, ledger, PhiloxNoise(), tuple(runners), params, ends, gamma, target.max_len, log)

    return make


def _drafter(name: str, scale: float, options: ToyOptions) -> Any:
    if name == "ngram":
        return NgramDrafter(2, 1)
    if name == "suffix":
        return SuffixDrafter()
    second = HashTarget(VOCAB, seed=3, window=2, scale=scale, jitter=0.5, options=options)
    return ModelDrafter(second, PageLedger(second.num_pages, second.page_size), VOCAB)


@pytest.fixture(scope="session")
def prompts_of() -> Callable[..., list[Prompt]]:
    """prompts_of(n) -> n short prompts of random tokens."""

    def make(count: int, seed: int = 0) -> list[Prompt]:
        rng = np.random.default_rng(seed)
        return [
            Prompt(i, i + 1, "b", rng.integers(0, VOCAB, int(rng.integers(1, 9))).astype(np.int32))
            for i in range(count)
        ]

    return make


@pytest.fixture
def model_folder(toy: Any, tmp_path: Path) -> Path:
    """A model folder with a tokenizer; its logits are a toy's."""
    return toy.make_folder(tmp_path / "model")


@pytest.fixture
def toy_models(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure` builds toy engines."""
    monkeypatch.setattr("draftproof.measure.run.build_each", toy.build_each)


@pytest.fixture(scope="session")
def write_lines() -> Callable[..., Path]:
    """write_lines(path, records) -> the path of a JSONL file; bytes go in as they are."""

    def write(path: Path, records: Sequence[Any]) -> Path:
        lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write
