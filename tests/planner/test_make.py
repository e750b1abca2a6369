"""Plans: prices by hand, the choice, the decision, money, break-even, sensitivity, notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from draftproof.errors import InputError
from draftproof.planner.cost import CostCurve
from draftproof.planner.evidence import Evidence, Requests
from draftproof.planner.interval import exactly
from draftproof.planner.make import Options, make_plan
from draftproof.planner.plan import DrafterInfo, Plan

Make = Callable[..., Evidence]


@pytest.fixture
def plan(make_evidence: Make, curve: CostCurve) -> Plan:
    return make_plan(make_evidence(), curve, Options((1, 8, 64), price_per_hour=3.6, memory_limit=80 * 2**30))


def test_shape(plan: Plan) -> None:
    assert [bucket.name for bucket in plan.buckets] == ["all", "easy", "hard"] == [plan.overall, "easy", "hard"]
    for bucket in plan.buckets:
        assert [band.concurrency for band in bucket.bands] == [1, 8, 64]
        assert [one.drafter for one in bucket.estimates] == ["good", "bad"]
        for band in bucket.bands:
            assert [curve.drafter for curve in band.curves] == ["good", "bad"]
            assert [[point.gamma for point in curve.points] for curve in band.curves] == [[0, 1, 2, 3, 4]] * 2
    assert (plan.bucket("all").prompts, plan.bucket("all").tokens) == (24, 24 * 60)
    assert plan.bucket("easy").prompts == 12
    assert plan.bucket("easy").context == 100 + 61 / 2


def test_price_of_a_round_by_hand_at_one_sequence(plan: Plan, curve: CostCurve) -> None:
    bucket = plan.bucket("easy")
    estimate = bucket.estimates[0].expected[3]
    point = bucket.band(1).curve("good").points[3]
    shares = list(enumerate(estimate.drafted_histogram))
    verify = sum(share * curve.step(1, 1 + n, bucket.context) for n, share in shares)
    draft = sum(share * curve.draft("good", 1, n, bucket.context) for n, share in shares)
    assert point.verify_ms == pytest.approx(verify)
    assert point.draft_ms == pytest.approx(draft)
    assert point.itl_ms == pytest.approx((verify + draft) / estimate.tokens_per_round.mean)
    assert point.speedup.mean == pytest.approx(10 / point.itl_ms)
    assert point.tokens_per_second == pytest.approx(1000 / point.itl_ms)
    assert point.speedup.low < point.speedup.mean < point.speedup.high


def test_price_of_a_round_by_hand_at_many_sequences(plan: Plan, curve: CostCurve) -> None:
    bucket = plan.bucket("hard")
    estimate = bucket.estimates[1].expected[2]
    band = bucket.band(8)
    point = band.curve("bad").points[2]
    assert band.plain_itl_ms == pytest.approx(curve.step(8, 1, bucket.context))
    assert point.verify_ms == pytest.approx(curve.step(8, 1 + estimate.drafted, bucket.context))
    assert point.draft_ms == pytest.approx(curve.draft("bad", 8, estimate.drafted, bucket.context))
    cost = point.verify_ms + point.draft_ms
    assert point.speedup.mean == pytest.approx(band.plain_itl_ms * estimate.tokens_per_round.mean / cost)
    assert point.tokens_per_second == pytest.approx(8000 / point.itl_ms)


def test_gamma_0_is_plain_decoding_exactly(plan: Plan) -> None:
    for bucket in plan.buckets:
        for band in bucket.bands:
            for curve in band.curves:
                point = curve.points[0]
                assert (point.speedup, point.draft_ms) == (exactly(1.0), 0.0)
                assert point.itl_ms == band.plain_itl_ms == point.verify_ms


def test_the_choice_is_the_fastest_candidate(plan: Plan) -> None:
    for bucket in plan.buckets:
        for band in bucket.bands:
            fastest = max(point.speedup.mean for curve in band.curves for point in curve.points)
            assert band.point.speedup.mean == fastest
            assert (band.drafter is None) == (band.point.gamma == 0)
    assert plan.bucket("easy").band(1).drafter == "good"
    assert plan.bucket("easy").band(1).decision == "enable"
    gammas = [plan.bucket(name).band(1).point.gamma for name in ("easy", "hard")]
    assert gammas[0] > gammas[1], "the better the drafts, the longer"


def test_plain_decoding_is_chosen_where_nothing_is_faster(make_evidence: Make) -> None:
    plan = make_plan(make_evidence(good=(0.1, 0.1)), CostCurve.constant(10, 6, 0.1), Options((1,)))
    band = plan.bucket("all").band(1)
    assert (band.drafter, band.point.gamma, band.enable, band.sensitivity) == (None, 0, False, None)
    assert band.reason.startswith("nothing is faster than plain decoding")
    assert band.gain.tokens_per_second == pytest.approx(band.gain.tokens_per_second_plain)
    assert band.gain.requests_per_second_gained == pytest.approx(0)


def test_an_interval_that_includes_a_loss_is_not_enabled(make_evidence: Make) -> None:
    evidence = make_evidence(prompts=4, good=(0.9, 0.1))
    plan = make_plan(evidence, CostCurve.constant(10, 2, 0.1), Options((1,)))
    band = plan.bucket("all").band(1)
    assert band.point.speedup.mean > 1 > band.point.speedup.low
    assert not band.enable
    assert band.drafter == "good", "it is shown, and not recommended"
    assert "includes a loss" in band.reason


def test_one_prompt_is_never_enough(make_evidence: Make, curve: CostCurve) -> None:
    evidence = make_evidence(prompts=2)
    band = make_plan(evidence, curve, Options((1,))).bucket("easy").band(1)
    assert band.point.speedup.mean > 1.5
    assert (band.point.speedup.low, band.enable) == (None, False)
    assert "one prompt" in band.reason


def test_costs_that_are_uncertain_widen_the_interval(make_evidence: Make, curve: CostCurve) -> None:
    def width(error: float) -> float:
        points = [
            {"sequences": 1, "rows": n, "context": 0, "ms": 10.0 + n, "error": error, "tokens": n} for n in (1, 5)
        ]
        file = {"format": 1, "target": points, "drafters": {"good": points, "bad": points}}
        speedup = (
            make_plan(make_evidence(), CostCurve.from_json(file), Options((1,))).bucket("all").band(1).point.speedup
        )
        return (speedup.high - speedup.low) / speedup.mean

    assert width(0.2) > 2 * 1.96 * 0.2 > width(0.0)


def test_break_even(make_evidence: Make, curve: CostCurve, plan: Plan) -> None:
    """At many sequences the step grows with rows: somewhere a round costs more than it brings."""
    found = plan.bucket("easy").break_even
    assert found.kind == "at"
    assert 8 < found.concurrency < 64
    for load, pays in ((found.concurrency, True), (found.concurrency + 1, False)):
        band = make_plan(make_evidence(), curve, Options((load,))).bucket("easy").bands[0]
        best = max(point.speedup.mean for one in band.curves for point in one.points if point.gamma)
        assert (best >= 1) == pays
    flat = make_plan(make_evidence(), CostCurve.constant(10, 0.1), Options((1,)))
    assert (flat.bucket("all").break_even.kind, flat.bucket("all").break_even.concurrency) == ("unknown", None)


def test_break_even_beyond_and_never(make_evidence: Make) -> None:
    def kind(draft_ms: float) -> tuple[str, int | None]:
        target = [{"sequences": b, "rows": n, "context": 0, "ms": 10 + 0.01 * b} for b in (1, 8) for n in (1, 5)]
        drafts = [{"sequences": b, "tokens": g, "context": 0, "ms": draft_ms * g} for b in (1, 8) for g in (1, 4)]
        file = {"format": 1, "target": target, "drafters": {"good": drafts, "bad": drafts}}
        found = make_plan(make_evidence(), CostCurve.from_json(file), Options((1,))).bucket("all").break_even
        return found.kind, found.concurrency

    assert kind(0.1) == ("beyond", 8)
    assert kind(30) == ("never", None)


def test_money_and_requests(plan: Plan) -> None:
    gain = plan.bucket("easy").band(1).gain
    assert gain.tokens_per_second_plain == pytest.approx(100)
    assert gain.price_per_million_plain == pytest.approx(10)
    speedup = plan.bucket("easy").band(1).point.speedup.mean
    assert gain.price_per_million == pytest.approx(10 / speedup)
    assert gain.saved_per_hour == pytest.approx(3.6 * (1 - 1 / speedup))
    assert gain.requests_per_second == pytest.approx(gain.tokens_per_second / 61)
    assert gain.requests_per_second_gained == pytest.approx((speedup - 1) * 100 / 61)


def test_sensitivity(plan: Plan, make_evidence: Make) -> None:
    band = plan.bucket("easy").band(1)
    at, now = band.sensitivity, band.point.speedup.mean
    assert at.acceptance_down < now < at.acceptance_up
    assert at.draft_cost_double < now < at.draft_cost_half
    point = band.point
    tokens = point.tokens_per_round.mean
    assert at.draft_cost_double == pytest.approx(band.plain_itl_ms * tokens / (point.verify_ms + 2 * point.draft_ms))
    lower = make_plan(make_evidence(good=(0.81, 0.45)), CostCurve.constant(10, 1), Options((1,))).bucket("easy").band(1)
    full = make_plan(make_evidence(), CostCurve.constant(10, 1), Options((1,))).bucket("easy").band(1)
    assert full.sensitivity.acceptance_down == pytest.approx(
        lower.curve("good").points[full.point.gamma].speedup.mean, rel=0.05
    )


def test_acceptance_can_not_rise_above_one(make_evidence: Make) -> None:
    plan = make_plan(make_evidence(good=(1.0, 1.0)), CostCurve.constant(10, 0.1), Options((1,)))
    band = plan.bucket("all").band(1)
    most = 10 * (band.point.gamma + 1) / (band.point.verify_ms + band.point.draft_ms)
    assert band.sensitivity.acceptance_up <= most * (1 + 1e-9)


def test_memory_rows(plan: Plan) -> None:
    assert {row.drafter for row in plan.memory} == {None, "good", "bad"}
    assert {row.context for row in plan.memory} == {161}
    assert all(row.fits for row in plan.memory)


def test_context_of_the_user(make_evidence: Make, curve: CostCurve) -> None:
    plan = make_plan(make_evidence(), curve, Options((1,), context=5000))
    assert plan.bucket("hard").context == 5000
    assert {row.context for row in plan.memory} == {5000}
    assert any("beyond what was measured" in note for note in plan.notes)


def test_a_run_with_one_bucket_has_one(make_evidence: Make, curve: CostCurve) -> None:
    evidence = make_evidence()
    one = replace(evidence, buckets=("chat",), bucket_of=np.zeros_like(evidence.bucket_of))
    one = replace(one, requests=replace(one.requests, bucket=np.zeros_like(one.requests.bucket)))
    plan = make_plan(one, curve, Options((1,)))
    assert [bucket.name for bucket in plan.buckets] == ["chat"] == [plan.overall]


def test_a_bucket_may_be_called_all(make_evidence: Make, curve: CostCurve) -> None:
    plan = make_plan(replace(make_evidence(), buckets=("all", "hard")), curve, Options((1,)))
    assert [bucket.name for bucket in plan.buckets] == ["all requests", "all", "hard"]
    assert plan.overall == "all requests"


def test_what_a_bucket_lacks_is_said(make_evidence: Make, curve: CostCurve) -> None:
    evidence = make_evidence()
    evidence = replace(evidence, buckets=("easy", "hard", "empty"))
    plan = make_plan(evidence, curve, Options((1,)))
    assert [bucket.name for bucket in plan.buckets] == ["all", "easy", "hard"]
    assert "bucket empty: no decided token, left out" in plan.notes


def test_a_drafter_without_a_text_is_left_out_and_said(make_evidence: Make, curve: CostCurve) -> None:
    evidence = make_evidence()
    more = (*evidence.drafters, DrafterInfo("silent", "ngram", None))
    plan = make_plan(replace(evidence, drafters=more), curve, Options((1,)))
    assert [info.name for info in plan.drafters] == ["good", "bad"]
    assert "bucket all: no text of silent" in plan.notes


def test_notes_on_costs(make_evidence: Make, curve: CostCurve) -> None:
    constant = make_plan(make_evidence(), CostCurve.constant(10, 1), Options((1,)))
    assert any("costs are constants" in note for note in constant.notes)
    foreign = CostCurve.constant(10, 1)
    foreign.model = {"name": "other", "weights": None}
    notes = make_plan(make_evidence(), foreign, Options((1,))).notes
    assert "costs were measured with another target (name other) than acceptance (big)" in notes
    few = make_plan(make_evidence(prompts=8), curve, Options((1,)))
    assert any(note.startswith("fewer than 12 prompts in all, easy, hard") for note in few.notes)


def test_a_drafter_without_a_cost_is_an_error(make_evidence: Make) -> None:
    with pytest.raises(InputError, match="no cost of the drafter 'bad'"):
        make_plan(make_evidence(), CostCurve.constant(10, {"good": 1}), Options((1,)))


def test_a_run_that_decided_nothing_is_an_error(make_evidence: Make, curve: CostCurve) -> None:
    evidence = make_evidence(prompts=1)
    nothing = np.zeros(0, np.int64)
    empty = replace(evidence, drafter_of=nothing, requests=Requests(nothing, nothing, nothing))
    with pytest.raises(InputError, match="no decided token"):
        make_plan(empty, curve, Options((1,)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": ()},
        {"concurrency": (0,)},
        {"concurrency": (1, 1)},
        {"concurrency": (1,), "price_per_hour": 0.0},
        {"concurrency": (1,), "context": 0},
    ],
)
def test_options_without_meaning(wrong: dict) -> None:
    with pytest.raises(InputError):
        Options(**wrong)


def test_json_and_back(plan: Plan) -> None:
    text = json.dumps(plan.to_json(), allow_nan=False)
    assert Plan.from_json(json.loads(text)) == plan


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value: value.pop("notes"), "plan lacks the field 'notes'"),
        (lambda value: value.update(colour=1), "plan has a field this version does not know: 'colour'"),
        (lambda value: value.update(gamma_max="4"), "plan.gamma_max must be int, got '4'"),
        (lambda value: value.update(format=2), "format 2"),
        (
            lambda value: value["buckets"][0]["bands"][1].update(enable=1),
            r"plan.buckets\[0\].bands\[1\].enable must be bool",
        ),
        (lambda value: value.update(buckets={}), "plan.buckets must be a list"),
        (lambda value: value["buckets"][0].update(break_even=3), "plan.buckets.0..break_even must be an object"),
    ],
)
def test_a_foreign_plan_is_one_error_that_names_the_field(plan: Plan, change: Callable, says: str) -> None:
    value = json.loads(json.dumps(plan.to_json()))
    change(value)
    with pytest.raises(InputError, match=says):
        Plan.from_json(value)
