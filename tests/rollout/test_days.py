"""The benches' simulated days, fewer of them: drops, losses, and days on which nothing happens."""

import numpy as np
import pytest
from bench.rollout_days import AT_FLOOR, KINDS, MOST_REQUESTS_TO_OFF, Steady
from bench.rollout_traffic import DAY, Kind, day_of, sample_of

from bench import rollout_days


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_a_drop_takes_that_bucket_off_alone_and_it_comes_back_once(seed):
    trial = rollout_days.drop(seed)
    assert trial["requests_to_off"] <= MOST_REQUESTS_TO_OFF
    assert "below the floor" in trial["reason"]
    assert (trial["offs"], trial["reentries"], trial["others"]) == (1, 1, [])
    assert 0 < trial["hours_to_back"] < 24
    assert 3 <= trial["failed_probes"] <= 8


def test_a_loss_of_time_takes_the_bucket_off():
    trial = rollout_days.price(101)
    assert 100 < trial["requests_to_off"] < 12_000
    assert trial["itl_ratio"]["low"] > 1
    assert trial["others"] == []


def test_steady_days_have_no_false_alarm_and_end_in_full():
    study = Steady("few days", KINDS, 12, 1e-6).run(101)
    assert study["false_alarms"] == 0
    assert set(study["stages"].values()) == {"full"}
    assert study["decisions"] == {"promote": 12, "start": 3}


def test_at_the_floor_alarms_are_within_the_promise():
    study = Steady("at the floor", AT_FLOOR, 10, 1e-3, held=True).run(101)
    assert study["false_alarms"] <= study["at_most"]
    assert study["requests"] > 20_000


def test_faults_are_named():
    content = {
        "steady": [{"study": "s", "false_alarms": 3, "at_most": 2.5}],
        "drop": [{"seed": 1, "requests_to_off": 500, "offs": 1, "reentries": 1, "others": []}],
        "price": [{"seed": 2, "requests_to_off": None, "others": []}],
    }
    assert [fault[:14] for fault in rollout_days.faults(content)] == [
        "steady, s: 3 f",
        "drop, seed 1: ",
        "seed 2: {'seed",
    ]
    content["steady"][0]["false_alarms"] = 2
    content["drop"][0]["requests_to_off"] = 80
    content["price"][0]["requests_to_off"] = 900
    assert rollout_days.faults(content) == []
    content["drop"][0]["others"] = ["chat: off"]
    assert len(rollout_days.faults(content)) == 1


def test_the_traffic_is_what_it_is_said_to_be():
    """Else the days would show nothing: means, costs, hours that are slower, and the same for the same seed."""
    kind = Kind("k", 0.4, 3000, cost=0.5, errors=0.1)
    requests = [r for day in range(10) for r in day_of(np.random.default_rng(day), day, [kind])]
    assert requests[:3000] == day_of(np.random.default_rng(0), 0, [kind])[:3000]
    assert [r.time for r in requests] == sorted(r.time for r in requests)
    assert 27_000 < len(requests) < 33_000
    samples = [sample_of(request, kind, "on") for request in requests]
    plain = [sample_of(request, kind, "off") for request in requests]
    assert np.mean([s.accepted / s.tested for s in samples]) == pytest.approx(0.4, abs=0.01)
    assert np.mean([s.error for s in samples]) == pytest.approx(0.1, abs=0.01)
    assert all(s.itl_s == pytest.approx(0.5 * p.itl_s) for s, p in zip(samples, plain, strict=True))
    night, noon = ([p.itl_s for p in plain if low <= p.time % DAY / 3600 < high] for low, high in ((0, 4), (10, 14)))
    assert np.mean(noon) > 1.2 * np.mean(night)
    assert 3 < len(requests) / len({request.key for request in requests}) < 6
