"""Draft heads over a tiny target, measured, priced and planned as other drafters are: through the real engine."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from draftproof.engine.cost_file import read_cost
from draftproof.engine.lengths import draft_policy, tree_prices
from draftproof.errors import ModelNotFound
from draftproof.measure.cost import Grid
from draftproof.measure.cost_file import CostSettings, measure_cost_file, of_run, write_cost
from draftproof.measure.read import read_run
from draftproof.measure.run import measure
from draftproof.measure.settings import Settings
from draftproof.measure.specs import parse_drafters
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_files import save_head
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig
from draftproof.models.module import load_module
from draftproof.planner.acceptance import counted_sums
from draftproof.planner.cost import CostCurve
from draftproof.planner.make import Options, make_plan
from draftproof.planner.sums import prompt_sums
from draftproof.types import SamplingParams

pytestmark = pytest.mark.filterwarnings("ignore")
PROMPTS = ["abc abc abc", "x", "The quick brown fox " * 2, "1 2 3 4 5 6 7"]
GAMMA = 3


@pytest.fixture(scope="module")
def heads(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of an untrained EAGLE head and untrained Medusa heads of the tiny target."""
    from draftproof.train.start import new_head

    module, made = load_module(folder), tmp_path_factory.mktemp("heads")
    config = EagleConfig.of_target(module.config, None, 200)
    save_head(new_head(config, module, torch.arange(200), torch.arange(64).reshape(2, 32), 0), made / "eagle")
    medusa = MedusaHeads(MedusaConfig.of_target(module.config, 3, 200))
    medusa.set_draft_ids(torch.arange(200))
    save_head(medusa, made / "medusa")
    return {name: str(made / name) for name in ("eagle", "medusa")}


class Silent:
    """Hears everything, says nothing."""

    def stage(self, line: str) -> None: ...

    def begin(self, total: int, done: int, most_tokens: int | None) -> None: ...

    def tokens(self, count: int) -> None: ...

    def pairs(self, count: int) -> None: ...


@pytest.fixture
def settings(folder: Path, cache_dir: Path, heads: dict[str, str], tmp_path: Path) -> Settings:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    return Settings(
        model=str(folder),
        drafters=parse_drafters(["suffix", "eagle", f"both=cascade:{heads['eagle']}"], heads["eagle"]),
        data=data,
        out=tmp_path / "run",
        sampling=SamplingParams(seed=3, ignore_eos=True),
        max_new_tokens=30,
        gamma=GAMMA,
        batch=4,
        engine={"cache_dir": cache_dir, "threads": 1, "kv_memory": 1 << 23, "weights": "int8"},
    )


def by_position(folder: Path) -> dict[str, tuple[Any, Any]]:
    """By drafter (expected, counted), each [2, GAMMA]: drafts tested and accepted at each position."""
    evidence, found = read_run(folder), {}
    sums = prompt_sums(evidence.starts), counted_sums(evidence.rounds, GAMMA)
    for index, info in enumerate(evidence.drafters):
        rows = evidence.texts(index, None)
        own = [each.take(rows) for each in sums]
        found[info.name] = tuple(np.stack([o.tested.sum(0)[GAMMA], o.accepted.sum(0)[GAMMA]]) for o in own)
    return found


def test_what_is_measured_is_what_the_engine_counts(settings: Settings) -> None:
    measure(settings, ["test"], Silent())
    found = by_position(settings.out)
    assert list(found) == ["suffix", "eagle", "both"]
    for name, (expected, counted) in found.items():
        assert np.array_equal(expected, counted), name
        assert counted[0, 0] > 20
    assert found["eagle"][1][1, 0] > 0


def test_medusa_and_draws(settings: Settings, heads: dict[str, str]) -> None:
    """One run each, for heads that read other states do not share an engine."""
    own = replace(settings, drafters=parse_drafters([f"medusa:{heads['medusa']}"]))
    measure(own, ["test"], Silent())
    ((expected, counted),) = by_position(own.out).values()
    assert np.array_equal(expected, counted)
    sampling = SamplingParams(seed=3, ignore_eos=True, temperature=1.0, rule="reject")
    drawn = replace(settings, sampling=sampling, out=settings.out.with_name("drawn"))
    measure(drawn, ["test"], Silent())
    expected, counted = by_position(drawn.out)["eagle"]
    assert 0 < expected[1, 0] < expected[0, 0]
    assert counted[1].sum() < counted[0].sum()


def test_a_head_is_described_priced_and_planned(settings: Settings, heads: dict[str, str]) -> None:
    measure(settings, ["test"], Silent())
    info = json.loads((settings.out / "run.json").read_text())
    model = info["drafters"][1]["model"]
    state = load_file(Path(heads["eagle"]) / "model.safetensors")
    assert model["parameters"] == sum(t.numel() for name, t in state.items() if name != "d2t") + 200 * 32
    assert (model["path"], model["num_layers"], model["vocab_size"]) == (heads["eagle"], 1, 200)
    assert model["engine_bytes"] > 200 * 32
    asked = of_run(settings.out)
    assert asked.drafters == settings.drafters
    grid = Grid(sequences=(1, 2), rows=(1, 2, 4), contexts=(8,), tokens=(1, 3), passes=1)
    engine = dict(settings.engine)
    cost = measure_cost_file(
        CostSettings(asked.model, asked.drafters, SamplingParams(), "The quick brown fox. " * 20, grid, engine),
        ["test"],
        lambda line: None,
        lambda total: lambda line: None,
    )
    write_cost(settings.out / "cost.json", cost)
    curve = read_cost(settings.out / "cost.json")
    for label in ("eagle", "both"):
        points = {p["tokens"]: p["ms"] for p in cost["drafters"][label] if p["sequences"] == 1}
        assert points.keys() == {0, 1, 3}
        assert min(points.values()) > 0  # a head has run before it knows that it has no draft
    plan = make_plan(read_run(settings.out), curve, Options((1, 2), memory_limit=1 << 30))
    assert {curve.drafter for curve in plan.buckets[0].bands[0].curves} == {"suffix", "eagle", "both"}
    memory = {(row.drafter, row.weights): row for row in plan.memory if row.concurrency == 2}
    assert memory["eagle", "int8"].drafter_weights == model["parameters"]
    assert (
        memory["eagle", "int8"].drafter_kv == 2 * 2 * 8 * 2 * memory["eagle", "int8"].context * 2
    )  # K, V; 2 heads of 8
    assert memory["suffix", "int8"].drafter_weights == 0


def test_no_head_is_said_before_anything_is_loaded(settings: Settings) -> None:
    for text in ("eagle", "cascade", "medusa"):
        own = replace(settings, drafters=parse_drafters([text]))
        with pytest.raises(ModelNotFound, match="ship"):
            measure(own, ["test"], Silent())
    with pytest.raises(ModelNotFound, match="no draft head '/nowhere'"):
        measure(replace(settings, drafters=parse_drafters(["eagle:/nowhere"])), ["test"], Silent())
    assert not settings.out.exists() or not list(settings.out.glob("*.json"))


def test_another_head_is_another_run(settings: Settings, heads: dict[str, str], tmp_path: Path) -> None:
    copy = shutil.copytree(heads["eagle"], tmp_path / "copy")
    same = replace(settings, drafters=parse_drafters([f"eagle=eagle:{copy}"]))
    first = same.asked("data")["--drafter"]
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    assert replace(same).asked("data")["--drafter"] != first
    original = replace(settings, drafters=parse_drafters(["eagle"], heads["eagle"]))
    assert original.asked("data")["--drafter"] == first


def test_a_cost_file_takes_the_place_of_the_built_in_costs_of_a_head() -> None:
    """Lengths, and the prices of trees: a device on which the head is dear drafts less."""
    made = defaultdict(dict)
    for name, ms in (("cheap", 0.1), ("dear", 30.0)):
        points = [{"sequences": 1, "tokens": n, "context": 64, "ms": ms * n} for n in (1, 4)]
        value = {
            "format": 1,
            "target": [{"sequences": 1, "rows": n, "context": 64, "ms": 9.5 + 0.5 * n} for n in (1, 9)],
            "drafters": {"eagle": points},
        }
        if name == "dear":  # as it is called where it was measured as eagle:HEAD
            value["drafters"] = {"eagle:./head": points, "suffix": points}
        curve = CostCurve.from_json(value)
        for guess in (0.0, 5.0):  # what stands for a head's cost without a file changes nothing
            made[name]["best", guess] = draft_policy("eagle", None, curve, guess, 2).best([0.7] * 4)
            made[name]["tree", guess] = tree_prices(curve, guess, "invariant", "eagle")
    for found in made.values():
        assert found["best", 0.0] == found["best", 5.0]
        assert found["tree", 0.0] == found["tree", 5.0]
    assert made["cheap"]["best", 0.0] == 4
    assert made["dear"]["best", 0.0] == 0
