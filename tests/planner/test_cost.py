"""Cost curves: on the measured points, between them, beyond them; and files that are no cost files."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from draftproof.errors import InputError
from draftproof.planner.cost import CostCurve


def _fixture() -> dict[str, Any]:
    """target = context/100 + B * (2 + n), where each part is straight; a drafter that costs 1 + g for each sequence."""
    target = [
        {"sequences": b, "rows": n, "context": c, "ms": c / 100 + b * (2 + n), "error": 0.01 * n}
        for c in (100, 500)
        for b in (1, 4, 16)
        for n in (1, 3, 9)
    ]
    drafts = [{"sequences": b, "tokens": g, "context": 100, "ms": b * (1 + g)} for b in (1, 16) for g in (1, 8)]
    return {"format": 1, "target": target, "drafters": {"d": drafts}, "model": {"name": "m"}, "check": None}


@pytest.fixture
def value() -> dict[str, Any]:
    return _fixture()


@pytest.fixture
def curve(value: dict[str, Any]) -> CostCurve:
    return CostCurve.from_json(value)


def test_hits_every_measured_point(curve: CostCurve, value: dict[str, Any]) -> None:
    for point in value["target"]:
        cost = curve.step_cost(point["sequences"], point["rows"], point["context"])
        assert (cost.ms, cost.error, cost.extrapolated) == (point["ms"], point["error"], False)
    for point in value["drafters"]["d"]:
        assert curve.draft("d", point["sequences"], point["tokens"]) == point["ms"]
    assert (curve.kind, curve.loads, curve.model) == ("measured", (1, 4, 16), {"name": "m"})


@pytest.mark.parametrize(("b", "n", "c"), [(1, 2, 100), (2, 1.7, 300), (10, 8.25, 499), (16, 3, 123)])
def test_between_points_straight_lines(curve: CostCurve, b: float, n: float, c: float) -> None:
    cost = curve.step_cost(b, n, c)
    assert cost.ms == pytest.approx(c / 100 + b * (2 + n))
    assert not cost.extrapolated


def test_errors_are_interpolated_too(curve: CostCurve) -> None:
    assert curve.step_cost(1, 2, 100).error == pytest.approx(0.02)
    assert curve.step_cost(1, 20, 100).error == pytest.approx(0.09)


@pytest.mark.parametrize(("b", "n", "c"), [(1, 12, 100), (64, 3, 100), (16, 9, 900), (64, 20, 2000)])
def test_beyond_the_last_point_the_last_slope_goes_on_and_says_so(
    curve: CostCurve, b: float, n: float, c: float
) -> None:
    cost = curve.step_cost(b, n, c)
    assert cost.ms == pytest.approx(c / 100 + b * (2 + n))
    assert cost.extrapolated


def test_a_shorter_context_than_measured_costs_as_the_shortest(curve: CostCurve) -> None:
    assert curve.step_cost(1, 1, 10) == curve.step_cost(1, 1, 100) == curve.step_cost(1, 1, None)


def test_asking_a_drafter_that_finds_nothing_costs_its_fixed_part(curve: CostCurve) -> None:
    assert curve.draft("d", 1, 0) == pytest.approx(1.0)
    assert curve.draft("d", 1, 0.5) == pytest.approx(1.5)
    assert not curve.draft_cost("d", 1, 0).extrapolated


def test_a_fixed_part_is_never_negative() -> None:
    """Steeper at its begin than a straight line through 0: in proportion then."""
    drafts = [{"sequences": 1, "tokens": g, "context": 0, "ms": ms} for g, ms in ((2, 1.0), (4, 9.0))]
    assert CostCurve.from_json({**_fixture(), "drafters": {"d": drafts}}).draft("d", 1, 1) == pytest.approx(0.5)


def test_noise_never_makes_more_work_cheaper() -> None:
    value = _fixture()
    value["target"] = [{"sequences": 1, "rows": n, "context": 0, "ms": ms} for n, ms in ((1, 10), (2, 14), (4, 12))]
    assert CostCurve.from_json(value).step(1, 400) == 12


def test_one_measured_load_stands_for_its_rows_in_all() -> None:
    value = _fixture()
    value["target"] = [point for point in value["target"] if point["sequences"] == 1]
    curve = CostCurve.from_json(value)
    cost = curve.step_cost(4, 2, 100)
    assert cost.ms == pytest.approx(curve.step(1, 8, 100))
    assert cost.extrapolated
    assert not curve.step_cost(1, 2, 100).extrapolated


def test_ragged_slices() -> None:
    """Each load brings its own lengths."""
    value = _fixture()
    value["target"] = [
        p for p in value["target"] if p["context"] == 100 and not (p["sequences"] > 1 and p["rows"] == 3)
    ]
    assert CostCurve.from_json(value).step(2.5, 2) == pytest.approx(1 + 2.5 * 4)


def test_on_a_measured_load_nothing_of_the_next_one_counts() -> None:
    value = _fixture()
    value["target"] = [p for p in value["target"] if p["context"] == 100 and p["sequences"] * p["rows"] < 50]
    curve = CostCurve.from_json(value)
    assert not curve.step_cost(4, 9).extrapolated
    assert curve.step_cost(5, 9).extrapolated, "16 sequences were measured with up to three rows only"


def test_constants() -> None:
    curve = CostCurve.constant(100, {None: 8, "small": 2}, 0.05)
    assert curve.step(1, 1) == curve.step(64, 1, 9999) == 100
    assert curve.step(1, 5) == pytest.approx(120)
    assert (curve.draft("any", 1, 4), curve.draft("small", 1, 4), curve.draft("any", 1, 0)) == (32, 8, 0)
    assert (curve.kind, curve.loads) == ("constant", ())
    assert CostCurve.constant(100, 0).draft("any", 1, 4) == 0
    for t_target, t_draft, slope in ((0, 1, 0), (1, -1, 0), (1, 1, -0.1), (math.nan, 1, 0)):
        with pytest.raises(InputError):
            CostCurve.constant(t_target, t_draft, slope)


def test_an_unknown_drafter_is_named(curve: CostCurve) -> None:
    with pytest.raises(InputError, match="'other'; costs are known of: d"):
        curve.draft("other", 1, 1)


def _put(path: list[Any], new: Any) -> dict[str, Any]:
    value = copy.deepcopy(_fixture())
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "no cost file"),
        ({"format": 1}, "no cost file"),
        (_put(["format"], 2), "format 2"),
        (_put(["target"], []), "target must be a list of points, and not empty"),
        (_put(["target"], {}), "target must be a list"),
        (_put(["target", 4], 7), r"target\[4\] must be an object"),
        (_put(["target", 4, "ms"], 0), r"target\[4\].ms must be a number above 0"),
        (_put(["target", 4, "ms"], math.nan), r"target\[4\].ms"),
        (_put(["target", 4, "ms"], "9"), r"target\[4\].ms"),
        (_put(["target", 4, "rows"], 1.5), r"target\[4\].rows must be an integer"),
        (_put(["target", 4, "rows"], 0), r"target\[4\].rows must be a number at least 1"),
        (_put(["target", 4, "error"], -1), r"target\[4\].error"),
        (_put(["target", 4, "sequences"], True), r"target\[4\].sequences"),
        (_put(["target", 1], _fixture()["target"][0]), r"target\[1\] is the second point"),
        (_put(["target"], _fixture()["target"][:1]), "at least two values of rows at 1 sequences and context 100"),
        (_put(["drafters"], []), "drafters must be an object"),
        (_put(["drafters", "d", 0, "tokens"], -1), r"drafters.d\[0\].tokens"),
        (_put(["drafters", "d"], [{"sequences": 1, "tokens": 0, "context": 0, "ms": 1}]), "drafters.d"),
    ],
)
def test_a_bad_file_is_one_error_that_names_the_field(value: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CostCurve.from_json(value)
