"""A small measured run as evidence: two drafters, two buckets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from draftproof.planner.acceptance import Rounds, Starts
from draftproof.planner.cost import CostCurve
from draftproof.planner.evidence import Evidence, Requests
from draftproof.planner.plan import DrafterInfo

MODEL = {"name": "big", "parameters": 10**9, "num_layers": 10, "num_kv_heads": 4, "head_dim": 64}
SMALL = {**MODEL, "name": "small", "parameters": 10**8}
GAMMA = 4


def _texts(rng: np.random.Generator, skills: np.ndarray, length: int) -> tuple[Starts, Rounds]:
    """One text for each skill (acceptance of every draft), and the rounds that its coins gave."""
    owner = np.repeat(np.arange(len(skills)), length)
    left = np.tile(np.arange(length, 0, -1), len(skills))
    inside = np.arange(GAMMA) < np.minimum(GAMMA, left - 1)[:, None]
    keep = np.logical_and.accumulate((rng.random(inside.shape) < skills[owner, None]) & inside, axis=1)
    rows, start = [], 0
    while start < len(owner):
        accepted, drafted = int(keep[start].sum()), int(inside[start].sum())
        rows.append((owner[start], drafted, accepted, min(accepted + 1, drafted), accepted + 1))
        start += accepted + 1
    accept = inside * skills[owner, None]
    starts = Starts(owner, inside.sum(axis=1).astype(np.int16), keep.astype(np.float32), accept.astype(np.float32))
    return starts, Rounds(*np.array(rows).T)


@pytest.fixture
def make_evidence() -> Callable[..., Evidence]:
    """Texts in the order of prompts, then drafters "good" and "bad"; prompts dealt to "easy" and "hard" in turn."""

    def make(
        prompts: int = 24,
        length: int = 60,
        good: tuple[float, float] = (0.9, 0.5),
        bad: tuple[float, float] = (0.1, 0.1),
    ) -> Evidence:
        rng = np.random.default_rng(4)
        bucket = np.repeat(np.arange(prompts) % 2, 2)
        drafter = np.tile([0, 1], prompts)
        skills = np.array([good, bad])[drafter, bucket] + rng.uniform(-0.08, 0.08, 2 * prompts)
        starts, rounds = _texts(rng, skills.clip(0, 1), length)
        return Evidence(
            target=MODEL,
            drafters=(DrafterInfo("good", "model", SMALL), DrafterInfo("bad", "suffix", None)),
            sampling={"temperature": 0.0, "rule": "follow"},
            buckets=("easy", "hard"),
            starts=starts,
            drafter_of=drafter,
            bucket_of=bucket,
            rounds=rounds,
            requests=Requests(bucket, np.full(2 * prompts, 100), np.full(2 * prompts, length + 1)),
        )

    return make


@pytest.fixture
def curve() -> CostCurve:
    """Flat at one sequence, in proportion to rows at many."""
    target = [
        {"sequences": b, "rows": n, "context": 100, "ms": 10 + 0.2 * (n - 1) + (b - 1) * (1.3 * n - 0.3), "error": 0.01}
        for b in (1, 8, 64)
        for n in (1, 2, 5)
    ]
    drafts = [
        {"sequences": b, "tokens": g, "context": 100, "ms": 0.5 * g + 0.05 * b * g} for b in (1, 64) for g in (1, 4)
    ]
    return CostCurve.from_json({"format": 1, "target": target, "drafters": {"good": drafts, "bad": drafts}})
