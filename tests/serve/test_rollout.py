"""A server under a policy: who speculates, what is told to the rollout, the admin routes, and a restart."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from draftproof import SamplingParams
from draftproof.errors import InputError
from draftproof.serve.settings import ServeSettings, parse_drafters

PROMPT = "abcabcabcabcabc"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Everything of bucket "live" is shadowed as soon as it is seen."""
    path = tmp_path / "policy.yaml"
    path.write_text("shadow_share: 1.0\nmin_requests: 20\nmin_seconds: 0\nbuckets:\n  plain: {enabled: false}\n")
    return path


def ask(running, bucket="live", key=None, wish=None, **more):
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "bucket": bucket, **more}
    headers = {} if key is None else {"X-Draftproof-Key": key}
    answer = running.http().post(
        "/v1/completions", json=body | ({"speculation": wish} if wish else {}), headers=headers
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(*args, **more):
    return ask(*args, **more)["usage"]["speculative_decoding"]


def status(running):
    return running.http().get("/admin/rollout").json()["status"]


def promote(running, bucket="live"):
    answer = running.http().post("/admin/rollout/promote", json={"bucket": bucket, "reason": "a test"})
    assert answer.status_code == 200, answer.text
    return answer.json()["decisions"]


def test_shadow_scores_what_speculation_would_have_had(serve, policy, truth):
    running = serve(("suffix",), policy=policy)
    ask(running)  # the bucket is met when its first request ends
    answer = ask(running)
    found = answer["usage"]["speculative_decoding"]
    assert (found["mode"], found["stage"], found["drafter"]) == ("shadow", "shadow", "suffix")
    assert answer["choices"][0]["text"] == truth.generate(PROMPT, SamplingParams(max_new_tokens=40))[0].text
    assert found["num_draft_tokens"] == 0
    shadow = found["shadow"]
    assert 0 < shadow["num_accepted_draft_tokens"] <= shadow["num_tested_draft_tokens"]
    metrics = running.http().get("/metrics").text
    assert "vllm:spec_decode_num_draft_tokens_total" in metrics
    assert 'draftproof_tested_tokens_total{bucket="live",mode="shadow"}' in metrics
    assert status(running)["buckets"]["live"]["tested"] > 0


def test_stages_are_promoted_by_hand_and_stopped_at_once(serve, policy):
    running = serve(("suffix",), policy=policy)
    ask(running)
    stages = []
    for _ in range(4):
        (decision,) = promote(running)
        stages.append(decision["to_stage"])
        assert decision["action"] == "manual"
    assert stages == ["canary", "wide", "wide", "full"]
    modes = [told(running, key=f"k{index}")["mode"] for index in range(30)]
    assert modes.count("on") >= 25
    assert [told(running, key=f"k{index}")["mode"] for index in range(30)] == modes  # sticky
    http = running.http()
    stopped = http.post("/admin/rollout/stop", json={"reason": "enough"}).json()["decisions"]
    assert stopped[0]["action"] == "stop"
    found = told(running, key="k0")
    assert (found["mode"], found["stage"]) == ("off", "off")
    http.post("/admin/rollout/start", json={})
    assert told(running, key="k0")["stage"] != "off"
    log = http.get("/admin/rollout/log", params={"bucket": "live"}).json()["decisions"]
    assert [line["action"] for line in log].count("manual") == 4
    assert [line["to_stage"] for line in running.lines("decision") if line["action"] == "manual"] == stages
    assert 'action="manual",bucket="live"' in http.get("/metrics").text.replace(
        'bucket="live",action="manual"', 'action="manual",bucket="live"'
    )


def test_a_request_may_decline_and_its_wish_is_granted_from_the_canary_on(serve, policy):
    running = serve(("suffix", "ngram"), policy=policy)
    ask(running)
    assert told(running, wish={"enabled": True})["mode"] == "shadow"  # a wish is no order
    promote(running)
    before = status(running)["buckets"]["live"]["requests"]
    for index in range(5):
        assert told(running, key=f"k{index}", wish={"enabled": True})["mode"] == "on"
        assert told(running, key=f"k{index}", wish={"enabled": False})["mode"] == "off"
        told(running, key=f"k{index}", wish={"drafter": "ngram"})
        told(running, key=f"k{index}", wish={"max_draft_tokens": 1})
    assert status(running)["buckets"]["live"]["requests"] == before  # who chooses is no evidence
    found = told(running, bucket="plain", wish={"enabled": True})
    assert (found["mode"], found["stage"]) == ("off", "off")


def test_what_an_operator_may_not_do(serve, policy):
    http = serve(("suffix",), policy=policy).http()
    for path, body in (
        ("promote", {"bucket": "never seen"}),
        ("promote", {"bucket": "plain"}),
        ("promote", {}),
        ("stop", {"bucket": "live", "why": ""}),
        ("start", {"bucket": ""}),
    ):
        answer = http.post(f"/admin/rollout/{path}", json=body)
        assert answer.status_code == 400, (path, body, answer.text)
        assert answer.json()["error"]["message"]
    assert http.get("/admin/rollout/log?limit=0").status_code == 400


def test_without_a_policy_there_is_nothing_to_administrate(server):
    http = server.http()
    for answer in (
        http.get("/admin/rollout"),
        http.get("/admin/rollout/log"),
        http.post("/admin/rollout/stop", json={}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_rollout")
    assert http.get("/admin/stats").json()["model"] == server.service.model


def test_a_restart_goes_on_where_it_stopped(serve, policy, tmp_path):
    state = tmp_path / "rollout.db"
    first = serve(("suffix",), policy=policy, state=state)
    ask(first)
    promote(first)
    log = first.http().get("/admin/rollout/log").json()["decisions"]
    with pytest.raises(InputError, match=str(state)):
        serve(("suffix",), policy=policy, state=state)
    seen = status(first)["buckets"]["live"]["requests"]
    first.stop()
    second = serve(("suffix",), policy=policy, state=state)
    assert status(second)["buckets"]["live"]["stage"] == "canary"
    assert status(second)["buckets"]["live"]["requests"] == seen
    assert second.http().get("/admin/rollout/log").json()["decisions"] == log


def test_stages_widen_by_themselves(serve, policy):
    """Twenty shadowed requests that agree are enough for this policy's first gate."""
    policy.write_text(policy.read_text() + "floor: 0.01\nhysteresis: 0.01\nmax_error_rate: 0.5\n")
    running = serve(("ngram",), policy=policy)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: ask(running, key=f"k{index}", max_tokens=60), range(80)))
    for _ in range(100):
        if running.lines("decision")[-1]["to_stage"] != "shadow":
            break
        running._thread.join(0.1)
    assert [line["to_stage"] for line in running.lines("decision")][:2] == ["shadow", "canary"]


def test_settings_that_have_no_meaning():
    with pytest.raises(InputError, match="--drafter"):
        ServeSettings(policy=Path("p.yaml"))
    with pytest.raises(InputError, match="--policy"):
        ServeSettings(drafters=parse_drafters(["suffix"]), state=Path("s.db"))


def test_a_full_disk_stops_no_kill_switch_and_is_told(serve, policy, tmp_path, monkeypatch):
    running = serve(("suffix",), policy=policy, state=tmp_path / "state.db")
    ask(running)
    store = running.service.chooser._store

    def full(*_):
        raise InputError("can't write the rollout store: database or disk is full")

    monkeypatch.setattr(store, "save", full)
    answer = running.http().post("/admin/rollout/stop", json={"bucket": "live"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "not_stored")
    assert "this holds now, but is forgotten at the next start" in answer.json()["error"]["message"]
    assert status(running)["buckets"]["live"]["stage"] == "off"
    monkeypatch.setattr(store, "decisions", full)
    assert running.http().get("/admin/rollout/log").status_code == 500
    monkeypatch.undo()
    answer = running.http().post("/admin/rollout/stop", json={"bucket": "no such bucket *\n"})
    assert answer.status_code == 400  # what the request got wrong is still its own fault
