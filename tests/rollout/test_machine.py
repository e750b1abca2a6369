"""The rollout as a whole: up step by step, back at once, by hand, and over a changed policy."""

import math

import pytest

from draftproof.errors import InputError
from draftproof.rollout import BucketPolicy, Rollout, RolloutPolicy

QUICK = {"min_requests": 50, "min_seconds": 60.0, "block_seconds": 20.0, "shadow_share": 0.5, "canary_share": 0.2}


def test_a_bucket_that_pays_goes_all_the_way(drive):
    one = drive(**QUICK).send(6000)
    assert one.actions() == ["start", "promote", "promote", "promote", "promote"]
    stages = [(decision.from_stage, decision.to_stage) for decision in one.log]
    assert stages == [("off", "shadow"), ("shadow", "canary"), ("canary", "wide"), ("wide", "wide"), ("wide", "full")]
    bucket = one.bucket()
    assert (bucket["stage"], bucket["share"]) == ("full", 0.95)
    assert bucket["requests"]["on"] > 3000
    assert 0.5 < bucket["itl_ratio"]["low"] < 0.6 < bucket["itl_ratio"]["high"] < 0.7
    assert bucket["acceptance"]["low"] < 0.7 < bucket["acceptance"]["high"]


def test_each_step_up_shows_every_gate_with_its_numbers(drive):
    one = drive(**QUICK).send(2500)
    canary = next(d for d in one.log if d.from_stage == "canary")
    gates = {gate["name"]: gate for gate in canary.evidence["gates"]}
    assert list(gates) == [
        "seconds in the stage",
        "requests that tested drafts",
        "plain requests",
        "acceptance",
        "error rate",
        "ITL ratio, speculating to plain",
    ]
    assert all(gate["passed"] for gate in gates.values())
    assert gates["requests that tested drafts"]["value"] >= 50
    assert gates["acceptance"]["value"]["low"] > gates["acceptance"]["threshold"] == 0.4
    assert gates["ITL ratio, speculating to plain"]["value"]["high"] < 1
    assert canary.evidence["share"] == 0.25


@pytest.mark.parametrize(
    ("what", "gate"),
    [
        ({"share": 0.405}, "acceptance"),
        ({"on": 1.0}, "ITL ratio, speculating to plain"),
        ({"every": 0.01}, "seconds in the stage"),
    ],
)
def test_what_is_not_shown_holds_the_stage(drive, what, gate):
    one = drive(**{**QUICK, "min_seconds": 3600.0 if "every" in what else 60.0}, false_alarm_rate=1e-9)
    one.send(1500, **{"spread": 0.6, **what})
    bucket = one.bucket()
    assert bucket["stage"] == ("canary" if gate.startswith("ITL") else "shadow")
    assert [each["name"] for each in bucket["gates"] if not each["passed"]] == [gate]


def test_one_bucket_falls_alone_and_comes_back_once(drive):
    one = drive(**QUICK).to_full("b", "c")
    for _ in range(300):
        one.send(1, "b").send(1, "c")
    for _ in range(2000):
        one.send(1, "b", share=0.15).send(1, "c")
    assert one.actions("b")[-1] in ("probe_failed", "probe")
    assert one.actions("c")[5:] == []
    off = next(decision for decision in one.log if decision.action == "off")
    assert off.reason.startswith("acceptance 0.1")
    assert off.evidence["watch"] == "floor"
    assert off.evidence["acceptance"]["high"] < 0.4
    assert (off.evidence["setbacks"], off.evidence["wait_seconds"]) == (1, 600.0)
    for _ in range(6000):
        one.send(1, "b").send(1, "c")
    assert one.actions("b").count("off") == 1
    assert one.actions("b").count("reenter") == 1
    assert one.bucket("b")["stage"] == "full"
    assert one.actions("c")[5:] == []
    back = next(decision for decision in one.log if decision.action == "reenter")
    assert back.to_stage == "canary"
    assert back.evidence["acceptance"]["low"] > back.evidence["needed"] == 0.5


def test_between_floor_and_hysteresis_it_stays_off(drive):
    one = drive(**QUICK, backoff_factor=1.0).to_full("b").send(300).send(150, share=0.1)
    assert one.bucket()["stage"] == "off"
    one.send(10_000, share=0.45)
    assert one.actions().count("reenter") == 0
    assert one.actions().count("probe_failed") >= 3


def test_a_loss_of_time_is_taken_back_and_each_return_takes_longer(drive):
    one = drive(**QUICK).to_full("b").send(1000, on=0.6)
    one.send(60_000, on=1.5)
    offs = [decision for decision in one.log if decision.action == "off"]
    assert {decision.evidence["watch"] for decision in offs} == {"price"}
    assert all(decision.evidence["itl_ratio"]["low"] > 1 for decision in offs)
    waits = [decision.evidence["wait_seconds"] for decision in offs]
    assert waits == [600.0 * 2**i for i in range(len(waits))]
    assert 3 <= len(waits) <= 7
    returned = [decision for decision in one.log if decision.action == "reenter"]
    assert all(decision.to_stage == "canary" for decision in returned)


def test_requests_that_break_are_taken_back_at_once(drive):
    one = drive(**QUICK).to_full("b").send(300).send(40, error={"on": True})
    assert one.bucket()["stage"] == "off"
    off = next(decision for decision in one.log if decision.action == "off")
    assert off.evidence["watch"] == "errors"
    assert off.evidence["failed"] < 20


def test_a_few_more_failures_than_plain_requests_have_are_found_by_the_odds(drive):
    one = drive(**QUICK, max_error_rate=0.9).to_full("b")
    for number in range(4000):
        one.send(1, error={"on": number % 4 == 0})
        if one.bucket()["stage"] == "off":
            break
    off = next(decision for decision in one.log if decision.action == "off")
    assert off.evidence["watch"] == "odds"
    assert off.evidence["failed_off"] == 0


def test_drift_is_an_alarm_and_switches_nothing(drive):
    one = drive(**QUICK, baseline_requests=100).to_full("b").send(400, share=0.85).send(400, share=0.55)
    alarms = [decision for decision in one.log if decision.action == "alarm"]
    assert len(alarms) == 1, "the new level is the next baseline"
    assert alarms[0].evidence["watch"] == "fell"
    assert (alarms[0].from_stage, alarms[0].to_stage) == ("full", "full")
    assert one.bucket()["alarms"] == 1
    assert one.bucket()["last_alarm"] == alarms[0].time
    assert one.bucket()["stage"] == "full"


def test_setbacks_are_forgotten_after_holding_out(drive):
    one = drive(**QUICK).to_full("b").send(300).send(100, share=0.1)
    assert one.bucket()["setbacks"] == 1
    one.send(8000)
    assert one.bucket()["stage"] == "full"
    assert one.bucket()["setbacks"] == 0


# ---------------------------------------------------------------------- keys and buckets


def test_a_key_that_speculates_goes_on_as_the_share_widens(drive):
    one = drive(**QUICK)
    one.log += one.rollout.start("b", one.now)
    keys, on = [f"user {i}" for i in range(4000)], set()
    for _ in range(4):
        one.log += one.rollout.promote("b", one.now)
        now_on = {key for key in keys if one.rollout.assign("b", key).mode == "on"}
        assert on < now_on
        on = now_on
        assert len(on) / len(keys) == pytest.approx(one.bucket()["share"], abs=0.03)
    assert 100 < len(keys) - len(on) < 320, "the holdout stays plain"


def test_assigning_changes_nothing(drive):
    one = drive(**QUICK).to_full("b").send(50)
    before = one.rollout.state
    first = [one.rollout.assign(bucket, f"k{i}") for bucket in ("b", "new", "x" * 64) for i in range(50)]
    assert one.rollout.state == before
    assert first == [one.rollout.assign(bucket, f"k{i}") for bucket in ("b", "new", "x" * 64) for i in range(50)]
    assert {treatment.stage for treatment in first} == {"full", "shadow"}


def test_a_state_is_of_its_moment(drive):
    one = drive(**QUICK).to_full("b").send(20)
    state = one.rollout.state
    value = state.to_json()
    rollout = Rollout(one.rollout.policy, state)
    one.send(50)
    rollout.stop(None, one.now)
    assert state.to_json() == value
    assert one.rollout.state.to_json() != value


def test_shadowed_requests_are_no_baseline_of_speculating_ones(drive):
    one = drive(**QUICK, auto_start=False)
    one.log += one.rollout.start("b", one.now)
    assert one.rollout.state.buckets["b"].watch.drift.baseline.requests == 0
    one.send(40)
    assert one.rollout.state.buckets["b"].watch.drift.baseline.requests == 0
    assert one.bucket()["requests"]["shadow"] > 10


def test_shadow_emits_nothing_and_probes_few(drive):
    one = drive(**QUICK).send(40)
    modes = [one.rollout.assign("b", f"k{i}").mode for i in range(2000)]
    assert "on" not in modes
    assert modes.count("shadow") / 2000 == pytest.approx(0.5, abs=0.04)


def test_one_bucket_too_many_is_other(drive):
    one = drive(max_buckets=2, buckets={"own": BucketPolicy(floor=0.6)})
    for name in ("a", "b", "c", "d", "own"):
        one.send(3, name)
    assert list(one.rollout.status()["buckets"]) == ["a", "b", "other", "own"]
    assert one.rollout.assign("e", "k").bucket == "other"
    assert one.rollout.assign("own", "k").bucket == "own"
    assert one.bucket("other")["requests"]["off"] + one.bucket("other")["requests"]["shadow"] == 6
    assert one.bucket("own")["floor"] == 0.6
    with pytest.raises(InputError, match="no room for another"):
        one.rollout.stop("e", one.now)
    with pytest.raises(InputError, match="a bucket's name"):
        one.rollout.assign("", "k")


def test_buckets_that_wait_to_be_started(drive):
    one = drive(**QUICK, auto_start=False).send(200)
    assert one.log == []
    assert one.bucket()["stage"] == "off"
    one.log += one.rollout.start("b", one.now, "now")
    assert one.log[0].reason == "now"
    assert one.send(100).bucket()["stage"] != "off"


def test_a_disabled_bucket_never_speculates(drive):
    one = drive(buckets={"b": BucketPolicy(enabled=False)}).send(300)
    assert one.bucket()["requests"] == {"off": 300, "shadow": 0, "on": 0}
    for call in (one.rollout.start, one.rollout.promote):
        with pytest.raises(InputError, match="enabled: false"):
            call("b", one.now)


# ---------------------------------------------------------------------- by hand


def modes(rollout, *buckets):
    return {rollout.assign(bucket, f"k{i}").mode for bucket in buckets for i in range(200)}


def test_the_kill_switch_stops_one_or_all(drive):
    one = drive(**QUICK).to_full("b", "c")
    decisions = one.rollout.stop("b", one.now, "odd answers")
    assert [(d.action, d.bucket, d.from_stage, d.to_stage, d.reason) for d in decisions] == [
        ("stop", "b", "full", "off", "odd answers")
    ]
    assert modes(one.rollout, "b") == {"off"}
    assert "on" in modes(one.rollout, "c")
    decisions = one.rollout.stop(None, one.now)
    assert [(d.action, d.bucket, d.from_stage, d.to_stage) for d in decisions] == [("stop", "*", "full", "off")]
    assert decisions[0].evidence["stages"] == {"b": "off", "c": "full"}
    assert modes(one.rollout, "b", "c", "never seen") == {"off"}
    assert one.rollout.status()["stopped"]
    assert (one.bucket("c")["stage"], one.bucket("c")["share"], one.bucket("c")["live"]) == ("full", 0.0, False)
    assert one.rollout.stop(None, one.now)[0].evidence["was_stopped"], "a second time does no harm"
    one.send(500, "c")
    assert one.bucket("c")["requests"]["on"] == 0
    for call in (one.rollout.start, one.rollout.promote):
        with pytest.raises(InputError, match="all buckets are stopped"):
            call("b", one.now)
    decisions = one.rollout.start(None, one.now)
    assert [(d.bucket, d.action, d.to_stage) for d in decisions] == [("*", "start", "canary"), ("c", "start", "canary")]
    assert modes(one.rollout, "b") == {"off"}, "its own stop still holds"
    with pytest.raises(InputError, match="not stopped as a whole"):
        one.rollout.start(None, one.now)


def test_a_bucket_first_seen_while_all_are_stopped_begins_when_they_start(drive):
    one = drive(**QUICK)
    one.rollout.stop(None, one.now)
    one.send(20)
    assert one.actions() == []
    one.rollout.start(None, one.now)
    one.send(20)
    assert one.actions() == ["start"]
    assert one.bucket()["stage"] == "shadow"


def test_a_stopped_bucket_stays_stopped_until_it_is_started(drive):
    one = drive(**QUICK).to_full("b")
    one.rollout.stop("b", one.now)
    one.send(3000, every=60)
    assert one.actions()[5:] == []
    assert one.bucket()["requests"]["on"] == one.bucket()["requests"]["shadow"] == 0
    with pytest.raises(InputError, match="bucket b is stopped: start it first"):
        one.rollout.promote("b", one.now)
    assert [d.to_stage for d in one.rollout.start("b", one.now)] == ["shadow"]
    with pytest.raises(InputError, match="in stage shadow already"):
        one.rollout.start("b", one.now)


def test_promoting_by_hand_passes_no_gate_but_watches_go_on(drive):
    one = drive(**QUICK).send(10)
    decisions = one.rollout.promote("b", one.now, "we are sure")
    assert [(d.action, d.to_stage, d.reason) for d in decisions] == [("manual", "canary", "we are sure")]
    assert not all(gate["passed"] for gate in decisions[0].evidence["gates"])
    one.log += decisions + one.rollout.promote("b", one.now) + one.rollout.promote("b", one.now)
    one.log += one.rollout.promote("b", one.now)
    with pytest.raises(InputError, match="in stage full already"):
        one.rollout.promote("b", one.now)
    with pytest.raises(InputError, match="there is no bucket 'x'; there are: b"):
        one.rollout.promote("x", one.now)
    one.send(200, share=0.1)
    assert one.bucket()["stage"] == "off"
    assert one.rollout.promote("b", one.now)[0].to_stage == "shadow"
    assert one.bucket()["probe_at"] is None


def test_a_bucket_may_be_stopped_before_its_first_request(drive):
    one = drive(**QUICK)
    one.rollout.stop("b", one.now)
    one.send(300)
    assert one.bucket()["requests"] == {"off": 300, "shadow": 0, "on": 0}


# ---------------------------------------------------------------------- time and restarts


def test_a_restart_goes_on_where_it_was(drive):
    one, other = drive(**QUICK), drive(**QUICK)
    for _ in range(80):
        one.send(60)
        other.send(60)
        other.rollout = Rollout(
            other.rollout.policy, type(other.rollout.state).from_json(other.rollout.state.to_json())
        )
    assert other.log == one.log
    assert other.rollout.state == one.rollout.state
    assert one.bucket()["stage"] == "full"


def test_another_policy_finds_each_bucket_its_step(drive):
    one = drive(**QUICK).to_full("b", "c", "d").send(300)
    one.rollout.stop("d", one.now)
    buckets = {"c": BucketPolicy(enabled=False)}
    rollout = Rollout(
        RolloutPolicy(BucketPolicy(**{**QUICK, "holdout": 0.1, "floor": 0.5}), buckets), one.rollout.state
    )
    decisions = rollout.tick(one.now)
    assert [(d.bucket, d.action, d.to_stage) for d in decisions] == [
        ("b", "policy", "full"),
        ("c", "policy", "off"),
        ("d", "policy", "off"),
    ]
    assert decisions[0].evidence["changed"] == {"holdout": [0.05, 0.1], "floor": [0.4, 0.5]}
    assert rollout.status()["buckets"]["b"]["share"] == 0.9
    assert rollout.status()["buckets"]["b"]["itl_ratio"] is None, "the old evidence was for other thresholds"
    assert modes(rollout, "c", "d") == {"off"}
    assert rollout.tick(one.now + 1) == []
    assert Rollout(rollout.policy, rollout.state).tick(one.now + 2) == []


def test_a_change_of_salt_and_an_enabled_bucket(drive):
    one = drive(**QUICK, buckets={"b": BucketPolicy(enabled=False)}).send(10)
    rollout = Rollout(RolloutPolicy(BucketPolicy(**QUICK), salt="new"), one.rollout.state)
    found = [(d.bucket, d.action, d.to_stage) for d in rollout.tick(one.now)]
    assert found == [("b", "policy", "off"), ("b", "start", "shadow"), ("*", "policy", "off")]


def test_a_changed_policy_does_not_forget_a_bucket_that_waits(drive):
    one = drive(**QUICK).to_full("b").send(300).send(100, share=0.1).send(700, share=0.1)
    assert one.bucket()["probing"]
    rollout = Rollout(RolloutPolicy(BucketPolicy(**{**QUICK, "floor": 0.3})), one.rollout.state)
    rollout.tick(one.now)
    bucket = rollout.status()["buckets"]["b"]
    assert (bucket["stage"], bucket["probing"]) == ("off", False)
    assert bucket["probe_at"] > one.now


def test_a_policy_of_another_version_is_a_change_of_everything(drive):
    one = drive(**QUICK).to_full("b")
    state = one.rollout.state
    state.policy = {"a field of the future": 1}
    decisions = Rollout(one.rollout.policy, state).tick(one.now)
    assert [(d.bucket, d.action, d.to_stage) for d in decisions] == [("b", "policy", "full")]
    assert "not readable" in str(decisions[0].evidence)


def test_a_clock_that_is_set_back_delays_and_breaks_nothing(drive):
    one = drive(**QUICK).to_full("b").send(300).send(100, share=0.1)
    wait = one.bucket()["probe_at"] - one.now
    one.now -= 1e6
    one.tick()
    assert one.bucket()["probe_at"] - one.now <= 600
    assert wait <= 600
    one.send(6000)
    assert one.bucket()["stage"] == "full"


def test_samples_may_come_a_moment_late(drive, sample):
    one = drive(**QUICK).to_full("b").send(10)
    assert one.rollout.record(sample(time=one.now - 30)) == []
    assert one.rollout.state.time == one.now


def test_no_time_is_an_error(drive):
    one = drive()
    for call in (one.rollout.tick, lambda t: one.rollout.stop(None, t)):
        with pytest.raises(ValueError, match="no time"):
            call(math.nan)


def test_a_quiet_bucket_is_reviewed_only_when_there_is_enough(drive):
    """Two speculating requests an hour: the canary needs days, and is not begun anew each day."""
    one = drive(**{**QUICK, "min_seconds": 600.0}).send(400, every=400)
    assert one.bucket()["stage"] == "canary"
    assert one.send(1200, every=400).bucket()["stage"] in ("wide", "full")


def test_a_stage_that_is_held_forgets_what_is_old(drive):
    one = drive(**QUICK, review_seconds=3600.0).to_full("b").send(6000, on=0.5)
    assert one.bucket()["itl_ratio"]["mean"] == pytest.approx(0.5, abs=0.05)
    one.send(12_000, on=0.8)
    assert one.bucket()["itl_ratio"]["mean"] == pytest.approx(0.8, abs=0.05)
