"""Any sequence of samples, ticks and administrators' calls: shares keep their bounds, a stopped bucket stays plain,
state goes through JSON and SQLite, and the same calls give the same decisions."""

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from draftproof.errors import InputError
from draftproof.rollout import BucketPolicy, Rollout, RolloutPolicy, RolloutState, RolloutStore, Sample
from draftproof.rollout.ladder import steps

BUCKETS = ("a", "b", "off for good", "one too many")
POLICY = RolloutPolicy(
    BucketPolicy(
        min_requests=20,
        min_seconds=10.0,
        baseline_requests=20,
        block_requests=1,
        block_seconds=0.0,
        false_alarm_rate=0.01,
        backoff_seconds=30.0,
        max_backoff_seconds=300.0,
        review_seconds=1000.0,
        shadow_share=0.5,
        probe_share=0.5,
        canary_share=0.3,
        wide_shares=(0.6,),
    ),
    {"off for good": BucketPolicy(enabled=False)},
    max_buckets=2,
)
TIMES = st.floats(-50, 500)
KINDS = st.tuples(st.sampled_from(["off", "shadow", "on"]), st.floats(0, 1), st.floats(0, 0.1), st.booleans())


class RolloutMachine(RuleBasedStateMachine):
    """The rollout, a twin that is put through JSON after each call, and a store."""

    def __init__(self):
        super().__init__()
        self.rollout, self.twin = Rollout(POLICY), Rollout(POLICY)
        self.now, self.log, self.owed, self.stopped = 1000.0, [], [], set()
        self.folder = tempfile.TemporaryDirectory()
        self.store = RolloutStore(Path(self.folder.name) / "rollout.db")

    def call(self, name, *arguments):
        """The same for both; None where it is refused, which it must be for both."""
        results = []
        for rollout in (self.rollout, self.twin):
            try:
                results.append(getattr(rollout, name)(*arguments))
            except InputError as error:
                results.append(str(error))
        assert results[0] == results[1]
        self.twin = Rollout(POLICY, RolloutState.from_json(json.loads(json.dumps(self.twin.state.to_json()))))
        if isinstance(results[0], str):
            return None
        self.log += results[0]
        self.owed += results[0]
        self.save()
        return results[0]

    def save(self):
        self.store.save(self.rollout.state, self.owed)
        self.owed = []

    @rule(bucket=st.sampled_from(BUCKETS), kind=KINDS, num=st.integers(1, 60), step=st.floats(0, 30))
    def traffic(self, bucket, kind, num, step):
        """Requests in any mode, whatever was assigned: late ones come after their stage is over."""
        mode, share, itl, error = kind
        for number in range(num):
            self.now += step
            tested = 0 if mode == "off" else 20
            given = self.rollout.assign(bucket, f"k{number}")
            one = Sample(bucket, mode, self.now, itl, None, 30, tested, tested, round(share * tested), error)
            for rollout in (self.rollout, self.twin):
                assert rollout.assign(bucket, f"k{number}") == given
            decisions = self.rollout.record(one)
            assert self.twin.record(one) == decisions
            self.log += decisions
            self.owed += decisions
        self.save()

    @rule(bucket=st.sampled_from(BUCKETS[:2]), num=st.integers(50, 250), share=st.floats(0, 1), cost=st.floats(0.3, 2))
    def treated_traffic(self, bucket, num, share, cost):
        """Requests as they were assigned, so that stages move."""
        self.play(bucket, num, share, cost)

    @rule(bucket=st.sampled_from(BUCKETS[:2]), num=st.integers(100, 600))
    def good_traffic(self, bucket, num):
        self.play(bucket, num, 0.8, 0.6)

    def play(self, bucket, num, share, cost):
        for number in range(num):
            self.now += 1.0
            mode = self.rollout.assign(bucket, f"{self.now}").mode
            tested = 0 if mode == "off" else 20
            itl = 0.02 * (cost if mode == "on" else 1) * (1 + number % 7 / 20)
            one = Sample(bucket, mode, self.now, itl, 0.1, 30, tested, tested, round(share * tested), False)
            decisions = self.rollout.record(one) + self.rollout.tick(self.now)
            assert self.twin.record(one) + self.twin.tick(self.now) == decisions
            self.log += decisions
            self.owed += decisions
        self.save()

    @rule(seconds=TIMES)
    def tick(self, seconds):
        self.now += seconds
        self.call("tick", self.now)

    @rule(bucket=st.sampled_from([*BUCKETS, "*", ""]))
    def promote(self, bucket):
        self.call("promote", bucket, self.now)

    @rule(bucket=st.sampled_from([*BUCKETS[1:], None, "*", ""]))
    def stop(self, bucket):
        if self.call("stop", bucket, self.now) is not None:
            self.stopped.add(bucket)

    @rule(bucket=st.sampled_from([*BUCKETS, None, "*"]))
    def start(self, bucket):
        if self.call("start", bucket, self.now) is not None:
            self.stopped.discard(bucket)

    @invariant()
    def stopped_buckets_are_plain(self):
        for bucket in BUCKETS:
            modes = {self.rollout.assign(bucket, f"k{i}").mode for i in range(30)}
            if None in self.stopped or bucket in self.stopped or bucket == "off for good":
                assert modes == {"off"}

    @invariant()
    def shares_are_steps_of_the_ladder(self):
        status = self.rollout.status()
        json.dumps(status, allow_nan=False)
        buckets = self.rollout.state.buckets
        for name, state in buckets.items():
            assert (state.stage, state.share) in steps(POLICY.of(name))
            assert 0 <= status["buckets"][name]["share"] <= 0.95
            assert state.probing + (state.probe_at is not None) + state.stopped <= 1
            if state.stage != "off":
                assert [state.probing, state.probe_at, state.stopped] == [False, None, False]
            assert state.probe_at is None or state.probe_at - self.rollout.state.time <= 300
        assert len(status["buckets"]) <= 2 + 2, "two of any name, one with a policy, and other"

    @invariant()
    def twins_and_the_store_agree(self):
        assert self.twin.state == self.rollout.state
        if self.log:
            assert self.store.load() == self.rollout.state
            stored = [{name: line[name] for name in line if name != "id"} for line in reversed(self.store.decisions())]
            assert stored == [json.loads(json.dumps(decision.to_json())) for decision in self.log]

    @invariant()
    def the_log_tells_each_buckets_stage(self):
        last = {}
        for decision in self.log:
            assert decision.bucket == "*" or decision.from_stage == last.get(decision.bucket, "off")
            last[decision.bucket] = decision.to_stage
        for name, state in self.rollout.state.buckets.items():
            assert state.stage == last.get(name, "off")

    def teardown(self):
        self.store.close()
        self.folder.cleanup()


RolloutMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRolloutMachine = RolloutMachine.TestCase


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000), mean=st.floats(0.5, 0.9), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=9)
)
def test_clustered_noise_does_not_flap(drive, seed, mean, sizes):
    """Sessions of requests that share a fate, some of them hopeless: the bucket stays up, whatever their order."""
    one = drive().to_full("b")
    place = seed
    for _ in range(40):
        for size in sizes:
            place = (place * 1103515245 + 12345) % 2**31
            fate = mean + (0.3 if place % 1000 >= 300 else -0.7) * min(mean, 1 - mean)  # on average the mean
            one.send(1 if size > 12 else size, share=fate, spread=0.1)
    assert "off" not in one.actions()
