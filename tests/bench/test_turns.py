"""Who runs when: every configuration on every prompt, one at a time, and a failing one never stops the others."""

import json
import sys
from types import SimpleNamespace

import pytest
from bench.groups import GROUPS, Config, Group
from bench.turns import Plan, measure
from bench.worker import WorkerError
from bench.workloads import PROMPTS, spread

from bench import turns

CHILD = """
import sys
from bench.serve import Result, serve, timed
name, log, bad = sys.argv[1:4]

def run(prompts, num_tokens):
    with open(log, "a") as file:
        file.write(name + "\\n")
    print("noise on stdout")
    if bad == "prompt" and "Rename" in prompts[0]:
        raise RuntimeError("out of luck")
    return Result([num_tokens] * len(prompts), prompts)

def start():
    if bad == "start":
        raise RuntimeError("no model")
    return {"versions": {name: "1"}}, {"run": timed(run), "fresh": lambda: {}}

sys.exit(serve(start))
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Workers that answer at once, and the order in which they were asked. bad: name -> "start" or "prompt"."""
    script, log = tmp_path / "child.py", tmp_path / "order.txt"
    script.write_text(CHILD)

    def go(names, bad=None, repeats=2, num_prompts=3):
        def command(config, models):
            return [sys.executable, str(script), config.name, str(log), (bad or {}).get(config.name, "")]

        monkeypatch.setattr(turns, "command", command)
        monkeypatch.setattr(turns, "_SETTLE_S", 0.01)
        group = Group("test", "a test", "stream", tuple(Config(name, "ours", {}) for name in names))
        plan = Plan(repeats, 5, PROMPTS[:num_prompts], {}, tmp_path / "logs")
        said = []
        measured = measure(group, plan, said.append)
        return measured, log.read_text().split() if log.exists() else [], said

    return go


def test_workers_take_turns_prompt_by_prompt_and_the_order_rotates(fake):
    measured, order, _ = fake("ABC")
    assert order == [*"ABC", *"BCA", *"CAB"] * 2
    seen = [(run["repeat"], run["prompt"], run["config"]) for run in measured.runs]
    assert sorted(seen) == [(r, p, c) for r in range(2) for p in range(3) for c in "ABC"]
    assert all(run["counts"] == [5] and run["seconds"] >= 0 for run in measured.runs)
    assert measured.configs["A"]["versions"] == {"A": "1"}
    assert measured.configs["A"]["memory_mib"] > 0
    assert not measured.skipped


def test_a_worker_that_can_not_start_is_skipped_with_its_reason(fake):
    measured, order, said = fake("AB", bad={"A": "start"})
    assert set(order) == {"B"}
    assert measured.skipped == {"A": "A: RuntimeError: no model"}
    assert any("skipped A" in line and "no model" in line for line in said)


def test_a_worker_that_fails_is_dropped_and_the_others_go_on(fake):
    measured, order, _ = fake("AB", bad={"A": "prompt"})
    assert order.count("B") == 6
    assert [run["prompt"] for run in measured.runs if run["config"] == "A"] == [0]
    assert "out of luck" in measured.skipped["A"]


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr("bench.environments.PEERS_DIR", tmp_path)
    monkeypatch.delenv("DRAFTPROOF_BENCH_VLLM", raising=False)
    config = next(config for config in GROUPS["others"].configs if config.environment == "vllm")
    with pytest.raises(WorkerError, match="--install vllm"):
        turns.command(config, {"folder": "f", "gguf": "g"})


def test_a_named_interpreter_is_used_and_gets_the_right_form_of_the_model(monkeypatch):
    monkeypatch.setenv("DRAFTPROOF_BENCH_VLLM", sys.executable)
    config = next(config for config in GROUPS["others"].configs if config.environment == "vllm")
    python, _, module, name, options = turns.command(config, {"folder": "f", "gguf": "g"})
    assert (python, module, name) == (sys.executable, "bench.peers", "vllm")
    assert json.loads(options)["model"] == "f"


def test_windows_hold_eight_prompts_and_each_prompt_twice():
    found = turns.windows(PROMPTS)
    assert [len(window) for window in found] == [8, 8, 8]
    counts = [sum(prompt in window for window in found) for prompt in PROMPTS]
    assert counts == [2] * 12
    assert [len(window) for window in turns.windows(spread(3))] == [8]


def test_every_group_asks_what_its_mode_says(tmp_path):
    plan = Plan(1, 128, PROMPTS, {}, tmp_path)
    ops = {name: {turn.op for turn in turns.turns(group, plan)} for name, group in GROUPS.items()}
    assert ops["ttft"] == {"first_token"}
    assert {op for name, some in ops.items() if name != "ttft" for op in some} == {"run"}
    assert all(len(turn.request["prompts"]) == 8 for turn in turns.turns(GROUPS["streams"], plan))
    sampled = turns.turns(GROUPS["sampled"], plan)
    assert all(turn.request["sampling"]["temperature"] == 0.8 for turn in sampled)
    assert all("sampling" not in turn.request for turn in turns.turns(GROUPS["int8"], plan))


def test_the_work_of_others_is_counted_and_our_own_is_not(monkeypatch):
    used, own, machine = _Reads(0), SimpleNamespace(user=1.0, system=0.5), SimpleNamespace(user=100.0, steal=1.0)
    monkeypatch.setattr("psutil.cpu_times", lambda: machine)
    monkeypatch.setattr("psutil.Process", lambda: SimpleNamespace(cpu_times=lambda: own))
    clock = turns.ForeignClock({"a": used})
    monkeypatch.setattr("time.perf_counter", lambda: clock._begin + 10.0)
    assert clock.share == 0
    machine.user, used.used, own.user = 116.0, 8.0, 2.0  # 16 s, of which 8 + 1 ours
    machine.steal = 2.0
    assert clock.share == pytest.approx(0.8)


class _Reads:
    """A worker whose processor time reads 1, 2, 3, ... `busy` times, and then stands still."""

    def __init__(self, busy):
        self.left, self.used, self.reads = busy, 0.0, 0

    def cpu_seconds(self):
        self.reads += 1
        if self.left:
            self.left, self.used = self.left - 1, self.used + 1.0
        return self.used


def test_a_turn_starts_when_the_others_sleep_and_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(turns, "_SETTLE_S", 0.001)
    spinning, next_one = _Reads(5), _Reads(10**9)
    turns.IdleClock({"a": spinning, "b": next_one}).settle("b")
    assert spinning.left == 0, "it was still spinning when b's turn began"
    assert next_one.reads == 0, "the one whose turn it is need not sleep"
    monkeypatch.setattr(turns, "_SETTLE_MOST_S", 0.05)
    turns.IdleClock({"a": _Reads(10**9), "b": next_one}).settle("b")


def test_the_work_of_idle_ones_is_counted():
    restless = _Reads(10**9)
    clock = turns.IdleClock({"a": restless, "b": _Reads(0)})
    with clock.others("b"):
        pass
    assert clock.share > 1
    quiet = turns.IdleClock({"a": restless, "b": _Reads(0)})
    with quiet.others("a"):
        pass
    assert quiet.share == 0
