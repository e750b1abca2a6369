"""Cost curves: every point is visited, nothing is left running, and the check is honest arithmetic."""

import json
import re

import numpy as np
import pytest

from draftproof.drafters import make
from draftproof.engine.build import Built
from draftproof.errors import InputError, InvalidParams
from draftproof.measure import cost as costs
from draftproof.measure import cost_file
from draftproof.measure.cost import Grid, Subject, check, check_loads, measure_costs, num_stages
from draftproof.measure.cost_steps import Bench, Filler, Step
from draftproof.measure.specs import parse_drafters
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.planner.cost import CostCurve
from draftproof.types import SamplingParams, StepItem

PARAMS = SamplingParams(max_new_tokens=10_000, ignore_eos=True, seed=0)
GRID = Grid(sequences=(1, 3), rows=(1, 3), contexts=(8, 20), tokens=(1, 2), passes=2, max_prompt=40)


@pytest.fixture
def built(engine_of):
    """built(drafter) -> Built over a toy target."""

    def make_built(drafter):
        engine = engine_of(HashTarget(16, options=ToyOptions(num_pages=400, max_len=600)), drafter)
        return Built(engine, None, engine.ledger, {})

    return make_built


@pytest.fixture
def subject(built):
    return Subject({"suffix": built(make("suffix"))}, np.arange(2, 14, dtype=np.int32), PARAMS)


def test_every_point_is_visited_and_nothing_stays(subject):
    lines = []
    found = measure_costs(subject, GRID, lines.append, ["suffix"])
    assert len(lines) == num_stages(GRID, 1)
    places = {(p["sequences"], p["rows"], p["context"]) for p in found["target"]}
    assert places == {(load, rows, context) for load in (1, 3) for rows in (1, 3) for context in (8, 20)} - {
        (3, 1, 20), (3, 3, 20)  # 60 tokens of prompts are more than 40
    }  # fmt: skip
    drafts = {(p["sequences"], p["tokens"], p["context"]) for p in found["drafters"]["suffix"]}
    assert drafts == {(load, n, context) for load, context in ((1, 8), (3, 8), (1, 20)) for n in (0, 1, 2)}
    assert all(p["ms"] > 0 and p["error"] >= 0 for p in found["target"])
    CostCurve.from_json(found)
    assert {(run["drafter"], run["sequences"]) for run in found["check"]["runs"]} == {("suffix", 1), ("suffix", 3)}
    engine = subject.engines["suffix"].engine
    assert engine.ledger.free_pages == engine.num_pages_at_start


def test_without_drafters_the_target_alone_is_measured(subject):
    found = measure_costs(subject, GRID, lambda line: None, [])
    assert found["drafters"] == {}
    assert found["check"] == {"within": 0.1, "holds": True, "runs": []}


def test_a_device_that_fails_leaves_nothing_running(subject):
    engine = subject.engines["suffix"].engine
    real, calls = engine.target.verify, []

    def verify(batch):
        calls.append(batch)
        if len(calls) > 20:
            raise RuntimeError("the device is gone")
        return real(batch)

    engine.target.verify = verify
    with pytest.raises(RuntimeError, match="gone"):
        measure_costs(subject, GRID, lambda line: None, ["suffix"])
    assert engine.ledger.free_pages == engine.num_pages_at_start


def test_steps_have_the_rows_and_sequences_they_claim(built):
    bench = Bench(one := built(Filler(16)), one.engine.drafter, 4, PARAMS)
    seqs = bench.start([np.arange(1, 9, dtype=np.int32)] * 3)
    for gamma in (0, 2):
        for step in bench.steps(3, gamma):
            assert (step.sequences, step.rows) == (3, 3 * (1 + gamma))
            assert step.seconds > 0
            assert step.tokens >= 3
    bench.clear(seqs)
    assert bench.step() is None


def test_the_filler_says_the_same_for_the_same_text():
    item = StepItem(3, np.arange(5, dtype=np.int32), 2, 1, 1, 4, PARAMS, 0)
    first, second = (Filler(16).propose([item], PhiloxNoise())[0] for _ in range(2))
    assert first.tokens.tolist() == second.tokens.tolist()
    assert len(first) == 4
    assert max(first.tokens) < 16


def step(sequences, rows, seconds, draft_s, tokens):
    return Step(sequences, rows, 100.0, seconds, draft_s, tokens)


def test_the_check_compares_times_a_token():
    curve = CostCurve.from_json(
        {
            "format": 1,
            "target": [{"sequences": 1, "rows": n, "context": 64, "ms": 9.0 + n} for n in (1, 5)],
            "drafters": {"d": [{"sequences": 1, "tokens": n, "context": 64, "ms": 2.0} for n in (0, 4)]},
        }
    )
    steps = [step(1, 5, 14e-3, 2e-3, 3), step(1, 3, 12e-3, 2e-3, 1)]  # foretold: 14 + 2, 12 + 2
    found = check(curve, {("d", 1): steps})
    assert found["holds"]
    run = found["runs"][0]
    assert (run["ratio"], run["tokens"], run["predicted_ms_per_token"]) == (1.0, 4, 7.5)
    slow = [step(1, 5, 17e-3, 2e-3, 3), step(1, 3, 14e-3, 2e-3, 1)]  # 35 ms against 30
    assert not check(curve, {("d", 1): steps, ("d", 2): slow})["holds"]


def test_the_error_is_that_of_a_median():
    rng = np.random.default_rng(0)
    draws = rng.normal(10.0, 1.0, (2000, 25))
    spread = float(np.std(np.median(draws, axis=1))) / 10
    assert np.mean([costs._error(seen) for seen in draws]) == pytest.approx(spread, rel=0.1)
    assert costs._error([0.0, 0.0]) == 0.0


@pytest.mark.parametrize(
    ("grid", "match"),
    [
        ({"rows": (2, 3)}, "plain step"),
        ({"rows": (1,)}, "plain step"),
        ({"sequences": ()}, "sequences"),
        ({"sequences": (4, 2)}, "rising"),
        ({"contexts": (0,)}, "contexts"),
        ({"tokens": (1, 1)}, "tokens"),
        ({"passes": 0}, "passes"),
    ],
)
def test_bad_grids_are_refused(grid, match):
    with pytest.raises(InvalidParams, match=match):
        Grid(**grid)


def test_the_check_decodes_alone_and_in_a_batch_of_up_to_eight():
    assert check_loads(Grid()) == [1, 8]
    assert check_loads(Grid(sequences=(1,))) == [1]
    assert check_loads(Grid(sequences=(16, 32))) == [16]


def test_prompts_are_different_and_long_enough(subject):
    prompts = subject.prompts(3, 20)
    assert [len(prompt) for prompt in prompts] == [20] * 3
    assert len({prompt.tobytes() for prompt in prompts}) == 3


def test_what_is_no_run_is_refused(tmp_path):
    from draftproof.measure.cost_file import of_run

    with pytest.raises(InputError, match="run"):
        of_run(tmp_path)


def test_what_changing_widths_cost_is_the_drafters_and_only_where_it_drafts():
    found = {
        "format": 1,
        "target": [{"sequences": 1, "rows": n, "context": 64, "ms": 9.0 + n, "error": 0.0} for n in (1, 5)],
        "drafters": {"d": [{"sequences": 1, "tokens": n, "context": 64, "ms": 1.0 + n, "error": 0.0} for n in (2, 4)]},
    }
    # 4 drafts foretold at 14 + 5 ms took 22; no drafts at 10 + 1 took 11
    costs._add_changes(found, {("d", 1): [step(1, 5, 17e-3, 5e-3, 3), step(1, 1, 10e-3, 1e-3, 1)]})
    assert [(p["tokens"], p["ms"]) for p in found["drafters"]["d"]] == [(0, 1.0), (2, 6.0), (4, 8.0)]
    quick = {**found, "drafters": {"d": [dict(p) for p in found["drafters"]["d"] if p["tokens"]]}}
    costs._add_changes(quick, {("d", 1): [step(1, 5, 1e-3, 1e-3, 3)]})
    assert [p["ms"] for p in quick["drafters"]["d"] if p["tokens"]] == [6.0, 8.0]  # never less than was measured


def test_a_head_that_has_no_draft_has_run_once():
    points = [{"sequences": 1, "tokens": n, "context": 64, "ms": 2.0 + n, "error": 0.0} for n in (1, 4)]
    target = [{"sequences": 1, "rows": n, "context": 64, "ms": 9.0 + n, "error": 0.0} for n in (1, 5)]
    found = {"format": 1, "target": target, "drafters": {"head": points, "lookup": [dict(p) for p in points]}}
    costs._add_changes(found, {}, ["head"])
    assert [found["drafters"][label][0] for label in ("head", "lookup")] == [
        points[1] | {"tokens": 0, "ms": ms} for ms in (3.0, 2.0)
    ]


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"tokens": (1, 1000)}, "drafts of up to 1000 (--rows, --tokens) are measured, and the model's limit is 8192"),
        ({"tokens": (1, 1000)}, ": give --tokens up to 155"),
        ({"rows": (1, 500)}, ": give --rows up to 155"),
        ({"contexts": (8192,)}, ": give --contexts up to 7702"),
        ({"contexts": (7720,)}, ": give --contexts up to 7702, or --rows up to 8"),
        ({"rows": (1, 500), "tokens": (1, 500)}, ": give fewer and lower numbers to --contexts, --rows and --tokens"),
        ({"sequences": (1, 8), "contexts": (300,)}, "which holds 5000 (each sequence grows by up to 490 while"),
    ],
)
def test_what_does_not_fit_names_the_option_that_is_the_cause(grid, says):
    with pytest.raises(InvalidParams) as error:
        cost_file._check_room(Grid(**grid), 8192, 5000)
    assert says in str(error.value)


@pytest.mark.parametrize("grid", [{"tokens": (1, 1000)}, {"rows": (1, 500)}, {"contexts": (8192,)}])
def test_what_is_said_to_fit_fits_and_no_more_would(grid):
    with pytest.raises(InvalidParams) as error:
        cost_file._check_room(Grid(**grid), 8192, 10**9)
    name, most = re.fullmatch(r".*: give --(\w+) up to (\d+)", str(error.value)).groups()
    first = () if name == "contexts" else (1,)
    cost_file._check_room(Grid(**{name: (*first, int(most))}), 8192, 10**9)
    with pytest.raises(InvalidParams):
        cost_file._check_room(Grid(**{name: (*first, int(most) + 1)}), 8192, 10**9)


def test_weights_of_a_second_model_go_to_the_drafters_that_have_one():
    drafters = parse_drafters(["suffix", "early_exit:2"])
    given = cost_file.CostSettings("demo", drafters, PARAMS, "text", engine={"draft_weights": "int8"})
    assert [options.draft_weights for options in given.engine_options()] == ["auto", "int8"]
    for none in (parse_drafters(["suffix"]), ()):
        alone = cost_file.CostSettings("demo", none, PARAMS, "text", engine={"draft_weights": "int8"})
        with pytest.raises(InvalidParams, match="no drafter here takes --draft-weights"):
            alone.engine_options()


def test_a_run_says_the_weights_of_its_second_model(tmp_path):
    model = {"name": "demo", "weights": "float32", "backend": "openvino", "numerics": "invariant"}
    second = {"name": "early", "kind": "early_exit", "model": model | {"weights": "int8", "num_layers": 2}}
    info = {"model": model, "drafters": [second], "sampling": {"temperature": 0.0}, "gamma_max": 3, "format": 1}
    for drafters, weights in (([second], "int8"), ([{"name": "s", "kind": "suffix", "model": None}], "auto")):
        (tmp_path / "run.json").write_text(json.dumps(info | {"drafters": drafters}))
        assert cost_file.of_run(tmp_path).engine["draft_weights"] == weights
