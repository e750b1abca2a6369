"""From results to a verdict, its words, its page; and an old certificate beside a new one."""

import json

import pytest

from draftproof.certify import EXIT_CODES, Plan, check_read, dumps, report
from draftproof.certify.certificate import assemble
from draftproof.certify.compare import still_holds
from draftproof.certify.diagnose import KINDS
from draftproof.certify.results import Power, Result, judged
from draftproof.errors import InputError
from draftproof.types import SamplingParams

PLAN = Plan(((1,),), SamplingParams(temperature=1.0))
COUNTS = {"tokens": 9000, "drafted": 700, "tested": 500, "accepted": 300, "correction": 200, "bonus": 50, "plain": 9}
PARTIES = {"subject": {"name": "s", "kind": "engine"}, "reference": {"name": "r"}}


def fit(place, p_value=0.5, count=20_000, **detail):
    return Result(f"fit.{place}", "h", count, p_value, Power(count, 9), detail={"cells": [100] * 10, **detail})


RIGHT = [fit("law"), fit("tested", count=9000)]


def made(*results, plan=PLAN, counts=COUNTS, failure=None, right=RIGHT):
    return assemble(plan, [*right, *results], counts, failure, PARTIES)


def test_lossless_says_how_large_an_error_would_have_been_found():
    certificate = made()
    assert certificate["verdict"] == "lossless"
    assert "total variation 0.0" in certificate["summary"]
    assert certificate["fault"] is None
    assert EXIT_CODES["lossless"] == 0


@pytest.mark.parametrize(
    ("results", "kind", "place"),
    [
        ([fit("draft", 1e-9), fit("law", 1e-9)], "draft_law", "draft"),
        ([fit("accept@1", 1e-9), fit("tested@1", 1e-9)], "acceptance", "accept@1"),
        ([fit("accept@2", 1e-9)], "round_state", "accept@2"),
        ([fit("tested@3", 1e-9)], "round_state", "tested@3"),
        ([fit("correction", 1e-9), fit("tested@1", 1e-9)], "correction", "correction"),
        ([fit("tested@1", 1e-9)], "acceptance", "tested@1"),
        ([fit("bonus", 1e-9)], "bonus", "bonus"),
        ([fit("plain", 1e-9), fit("bonus", 1e-9)], "parameters", "plain"),
        ([fit("younger", 1e-9)], "siblings", "younger"),
        ([Result("fit.support", "h", 9, failed=True)], "excluded_tokens", "support"),
        ([Result("endings.texts", "h", 9, failed=True), fit("law", 1e-9)], "ending", "texts"),
        ([Result("oracle.law", "h", 9, failed=True)], "rules", "law"),
        ([Result("invariance.logits", "h", 9, failed=True)], "numerics", "logits"),
        ([Result("identity.greedy", "h", 9, failed=True)], "not_identical", "greedy"),
        ([Result("features.identity.logit_bias", "h", 9, failed=True)], "history", "logit_bias"),
        ([Result("features.identity.stop_ids", "h", 9, failed=True)], "ending", "stop_ids"),
        ([Result("features.identity.top_p", "h", 9, failed=True)], "parameters", "top_p"),
        ([Result("features.logprobs", "h", 9, failed=True)], "log_probabilities", "logprobs"),
        ([Result("features.seeds", "h", 9, failed=True)], "seeds", "seeds"),
        ([Result("features.history.accept@2", "h", 900, 1e-9)], "history", "accept@2"),
        ([Result("joint.context1", "h", 900, 1e-9)], "law", "context1"),
        ([Result("sequential.law", "h", 900, 1e-9)], "law", "law"),
    ],
)
def test_an_alarm_is_a_fault_with_a_kind_and_a_place(results, kind, place):
    certificate = made(*results)
    assert certificate["verdict"] == "fault"
    assert (certificate["fault"]["kind"], certificate["fault"]["place"]) == (kind, place)
    assert certificate["fault"]["meaning"] == KINDS[kind]
    assert certificate["worst"]["test"].endswith(place)
    assert "fault found" in certificate["summary"]


def test_what_is_not_judged_is_no_alarm():
    assert made(Result("fit.support", "h", 9, failed=True, counts=False))["verdict"] == "lossless"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"failure": "fit: gone"}, "broke off: fit: gone"),
        ({"counts": {**COUNTS, "tested": 3}}, "only 3 drafts were judged"),
        ({"right": [fit("law", count=900), fit("tested", count=9000)]}, "fit.law would have missed"),
        ({"right": [fit("law"), fit("tested", count=400)]}, "fit.tested would have missed"),
        ({"right": [fit("law")]}, "too few tokens of tested places"),
        ({"right": []}, "fit.law would have missed"),
    ],
)
def test_what_is_missing_is_said(change, reason):
    certificate = made(**change)
    assert certificate["verdict"] == "not_enough_evidence"
    assert any(reason in each for each in certificate["reasons"]), certificate["reasons"]
    assert EXIT_CODES["not_enough_evidence"] == 3


def test_a_fault_is_a_fault_also_where_evidence_is_missing():
    assert made(fit("bonus", 1e-9), failure="gone")["verdict"] == "fault"


def test_holm_spends_one_rate_on_all():
    p_values = [0.001, 0.02, 0.024, 0.5]
    found = judged([fit(f"t{i}", p) for i, p in enumerate(p_values)], 0.05)
    assert [each.alarm for each in found] == [True, False, False, False]  # 0.001 <= 0.05/4, then 0.02 > 0.05/3
    found = judged([fit(f"t{i}", p) for i, p in enumerate([0.001, 0.016, 0.024, 0.5])], 0.05)
    assert [each.alarm for each in found] == [True, True, True, False]
    assert found[0].tv_99 == Power(20_000, 9).tv(0.05 / 4)


def test_results_survive_json():
    result = judged([fit("law")], 0.01)[0]
    assert Result.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_reading_back():
    certificate = made()
    certificate["versions"] = {"numpy": "2"}
    assert check_read(json.loads(dumps(certificate)), "c.json")["verdict"] == "lossless"
    for value, words in (([], "no certificate"), ({**certificate, "schema": 2}, "schema 2")):
        with pytest.raises(InputError, match=words):
            check_read(value, "c.json")


def test_does_it_still_hold():
    before = {**made(), "versions": {"numpy": "2", "torch": "1"}}
    now = {**made(fit("bonus", 1e-9)), "versions": {"numpy": "3", "torch": "1"}}
    assert still_holds(before, before) == {"holds": True, "before": "lossless", "now": "lossless", "changed": []}
    check = still_holds(before, now)
    assert (check["holds"], check["now"]) == (False, "fault")
    assert check["changed"] == [{"what": "versions.numpy", "before": "2", "now": "3"}]


def test_the_report_says_what_is_there():
    certificate = {**made(fit("bonus", 1e-9)), "versions": {}}
    rows = report.rows(certificate)
    assert [row[1] for row in rows] == ["no fault", "no fault", "FAULT"]
    assert rows[0][4] == f"TV {certificate['tests'][0]['tv_99']:.3f}"
    text = "\n".join(report.lines(certificate))
    assert "verdict: fault" in text
    assert "300 accepted" in text
    assert "counter-example: fit.bonus" in text


def test_a_fault_shows_the_furthest_joint_cell():
    cell = {"tokens": [3], "others_after": False, "expected": 0.2, "observed": 0.35}
    joint = Result("joint.context1", "h", 700, 0.3, Power(700, 5), detail={"worst": cell, "prompt": [1, 2]})
    certificate = made(fit("bonus", 1e-9), joint)
    assert certificate["worst"]["context"] == {"prompt": [1, 2], **cell, "texts": 700}
    assert '"observed": 0.35' in report.example(certificate)


def test_the_page_escapes_and_loads_nothing():
    parties = {"subject": {"name": "<script>alert(1)</script>"}, "reference": {"name": "r"}}
    results = [*RIGHT, Result("fit.bonus", '"><b>x</b>', 5, 1e-9, Power(100, 9), detail={"cells": [30] * 10})]
    page = report.page({**assemble(PLAN, results, COUNTS, None, parties), "versions": {}})
    assert "<script" not in page
    assert "<b>x" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "fault found" in page
    assert 'style="height:50%"' in page


def test_greedy_words():
    plan = Plan(((1,),), SamplingParams())
    few = Result("identity.greedy", "h", 40, detail={"share_99": 0.11})
    many = Result("identity.greedy", "h", 4000, detail={"share_99": 0.00115})
    assert made(few, plan=plan, right=[])["verdict"] == "not_enough_evidence"
    assert "0.11% of them" in made(many, plan=plan, right=[])["summary"]


def test_what_a_terminal_would_obey_is_escaped():
    certificate = {**made(), "names": ["\x9b2J", "\u202eeno", "\ud800", "\u20ac"]}
    text = dumps(certificate)
    assert text.encode()  # a lone surrogate is no text
    assert not set("\x9b\u202e") & set(text)
    assert "\u20ac" in text
    assert json.loads(text)["names"] == certificate["names"]


def test_a_run_that_broke_off_checks_nothing():
    before, gone = {**made(), "versions": {}}, {**made(failure="fit: gone"), "versions": {}}
    assert still_holds(before, gone)["holds"] is None
    assert still_holds(before, {**made(fit("bonus", 1e-9), failure="fit: gone"), "versions": {}})["holds"] is False
    assert still_holds(gone, gone)["holds"] is True


def test_ties_are_in_the_summary():
    plan = Plan(((1,),), SamplingParams())
    detail = {"share_99": 0.001, "ties": 2, "texts": 9, "widest_tie": 0.22}
    summary = made(Result("identity.greedy", "h", 4000, detail=detail), plan=plan, right=[])["summary"]
    assert "2 of 9 texts part from plain decoding's at a near tie, the widest 0.22 of a logit" in summary
