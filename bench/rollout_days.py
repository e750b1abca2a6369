"""python -m bench.rollout_days: does the rollout keep its promises on simulated traffic?

    steady    1 000 days without a change, three buckets (one not far above the floor): how often is speculation taken
              back, or an alarm raised, without cause? At most `false_alarm_rate` for each request is promised. Then
              days with a far higher rate, and a bucket that lies exactly at the floor, so that there is something to
              count.
    drop      acceptance falls from 0.7 to 0.2 in one of three buckets for a day, and recovers: after how many
    speculating
              requests is that bucket off, are the others left alone, when is it back, does it go off again?
    price     speculating requests come to take 1.3 times as long for a token as plain ones: after how many is it off?

Writes bench/results/rollout-days.json; exit code 1 when a bound does not hold.

Does not know: models, servers. The traffic is in bench.rollout_traffic.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import provenance, results
from bench.rollout_traffic import DAY, Kind, Request, day_of, play
from draftproof.rollout import BucketPolicy, Decision, Rollout, RolloutPolicy

RESULTS = provenance.ROOT / "bench" / "results"
SEED = 4
KINDS = (Kind("code", 0.75, 1000), Kind("chat", 0.6, 1000), Kind("edge", 0.47, 1000))
AT_FLOOR = (Kind("floor", 0.4, 3000),)
DROPPING = (Kind("code", 0.7, 2000), Kind("chat", 0.7, 2000), Kind("sums", 0.55, 2000))
PRICED = (Kind("code", 0.7, 12000), Kind("chat", 0.7, 1000))
DROPPED, DEARER = 0.2, 1.3
MOST_REQUESTS_TO_OFF = 150  # speculating requests between the drop and off, in every trial
_TICK = 300.0  # seconds
_WITHOUT_CAUSE = ("off", "alarm")


def to_full(rollout: Rollout, bucket: str, now: float) -> None:
    """By hand, whatever was shown."""
    stage = rollout.status()["buckets"].get(bucket, {}).get("stage", "off")
    if stage == "off":
        rollout.start(bucket, now)
    while rollout.status()["buckets"][bucket]["stage"] != "full":
        rollout.promote(bucket, now)


@dataclass(frozen=True, slots=True)
class Steady:
    """Days without a change. held: buckets begin in stage full, and are brought back to it when they leave it."""

    name: str
    kinds: tuple[Kind, ...]
    days: int
    rate: float
    held: bool = False

    def run(self, seed: int) -> dict[str, Any]:
        """Counts false alarms."""
        rollout = Rollout(RolloutPolicy(BucketPolicy(false_alarm_rate=self.rate)))
        rng, counts, requests = np.random.default_rng(seed), Counter[str](), 0
        for kind in self.kinds if self.held else ():
            to_full(rollout, kind.name, 0.0)
        for day in range(self.days):
            traffic = day_of(rng, day, self.kinds)
            requests += len(traffic)
            for decision in play(rollout, traffic, self.kinds, every=_TICK):
                counts[decision.action] += 1
                if decision.action in _WITHOUT_CAUSE:
                    counts[f"alarms of {decision.evidence['watch']}"] += 1
                if self.held and decision.action == "off":
                    to_full(rollout, decision.bucket, decision.time)
        return {
            "study": self.name,
            "days": self.days,
            "false_alarm_rate": self.rate,
            "acceptance": {kind.name: kind.acceptance for kind in self.kinds},
            "requests": requests,
            "false_alarms": sum(counts[action] for action in _WITHOUT_CAUSE),
            "at_most": self.rate * requests,
            "decisions": dict(sorted(counts.items())),
            "stages": {name: bucket["stage"] for name, bucket in rollout.status()["buckets"].items()},
        }


@dataclass(slots=True)
class _Watched:
    """Speculating requests of one bucket since a moment."""

    kind: int
    since: float
    on: int = 0

    def __call__(self, request: Request, mode: str) -> None:
        self.on += request.kind == self.kind and mode == "on" and request.time >= self.since


def _trial(kinds: Sequence[Kind], later: Kind, days: tuple[int, int], seed: int) -> tuple[list[Decision], list[int]]:
    """The first of the kinds becomes `later` for a day; decisions, and how many requests had speculated at each.

    days: how many before, and how many after that day. All buckets begin in stage full.
    """
    rollout, rng = Rollout(RolloutPolicy()), np.random.default_rng(seed)
    for kind in kinds:
        to_full(rollout, kind.name, 0.0)
    before, after = days
    watched = _Watched(0, before * DAY)
    decisions, on = [], []
    for day in range(before + 1 + after):
        now = [later, *kinds[1:]] if day == before else kinds
        for decision in play(rollout, day_of(rng, day, now), now, every=_TICK, seen=watched):
            decisions.append(decision)
            on.append(watched.on)
    return decisions, on


def drop(seed: int) -> dict[str, Any]:
    """Acceptance falls in one bucket, for a day."""
    first = DROPPING[0]
    decisions, on = _trial(DROPPING, replace(first, acceptance=DROPPED, cost=1.15), (2, 3), seed)
    own = [decision for decision in decisions if decision.bucket == first.name]
    offs = [decision for decision in own if decision.action == "off"]
    back = [decision.time for decision in own if decision.action == "reenter"]
    return {
        "seed": seed,
        "requests_to_off": next((n for d, n in zip(decisions, on, strict=True) if d.action == "off"), None),
        "reason": offs[0].reason if offs else None,
        "offs": len(offs),
        "failed_probes": sum(decision.action == "probe_failed" for decision in own),
        "hours_to_back": (back[0] - 3 * DAY) / 3600 if back else None,
        "reentries": len(back),
        "others": [f"{d.bucket}: {d.action}" for d in decisions if d.bucket != first.name],
    }


def price(seed: int) -> dict[str, Any]:
    """Speculation comes to cost time, while acceptance stays as it was."""
    first = PRICED[0]
    decisions, on = _trial(PRICED, replace(first, cost=DEARER), (1, 0), seed)
    offs = [(d, n) for d, n in zip(decisions, on, strict=True) if d.action == "off" and d.bucket == first.name]
    ratio = offs[0][0].evidence["itl_ratio"] if offs else None
    others = [f"{d.bucket}: {d.action}" for d in decisions if d.bucket != first.name]
    return {"seed": seed, "requests_to_off": offs[0][1] if offs else None, "itl_ratio": ratio, "others": others}


def faults(content: dict[str, Any]) -> list[str]:
    """What does not hold."""
    found = [
        f"steady, {study['study']}: {study['false_alarms']} false alarms, at most {study['at_most']:.3g} promised"
        for study in content["steady"]
        if study["false_alarms"] > study["at_most"] and study["false_alarms"] > 0
    ]
    for trial in content["drop"]:
        needed = trial["requests_to_off"]
        if needed is None or needed > MOST_REQUESTS_TO_OFF or trial["offs"] != 1 or trial["reentries"] != 1:
            found.append(f"drop, seed {trial['seed']}: {trial}")
    trials = [*content["drop"], *content["price"]]
    wrong = [trial for trial in trials if trial["others"] or trial["requests_to_off"] is None]
    return [*found, *(f"seed {trial['seed']}: {trial}" for trial in wrong)]


def summary(content: dict[str, Any]) -> dict[str, Any]:
    """The figures to remember."""

    def of(name: str, field: str) -> dict[str, float]:
        values = [trial[field] for trial in content[name] if trial[field] is not None]
        return {"median": float(np.median(values)), "most": max(values)} if values else {}

    return {
        "drop_requests_to_off": of("drop", "requests_to_off"),
        "drop_hours_to_back": of("drop", "hours_to_back"),
        "price_requests_to_off": of("price", "requests_to_off"),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.rollout_days", description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=1000, help="of the steady traffic (1000)")
    parser.add_argument("--trials", type=int, default=40, help="of the drop, and half as many of the price (40)")
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(arguments)
    origin, began = provenance.begin(arguments, "bench.rollout_days", SEED), time.perf_counter()
    few = max(1, args.days // 10)
    studies = (
        Steady("promised rate", KINDS, args.days, 1e-6),
        Steady("high rate", KINDS, few, 1e-3, held=True),
        Steady("high rate, at the floor", AT_FLOOR, few, 1e-3, held=True),
    )
    content: dict[str, Any] = {"group": "rollout-days", "provenance": origin, "bounds": {}, "summary": {}}
    content["bounds"] = {"requests_to_off": MOST_REQUESTS_TO_OFF, "offs": 1, "reentries": 1}
    content["steady"] = [study.run(SEED + number) for number, study in enumerate(studies)]
    content["drop"] = [drop(SEED + seed) for seed in range(args.trials)]
    content["price"] = [price(SEED + seed) for seed in range(max(1, args.trials // 2))]
    content["summary"] = summary(content)
    content["faults"] = faults(content)
    content["provenance"] = provenance.end(origin)
    results.write(RESULTS / "rollout-days.json", content)
    for study in content["steady"]:
        print(f"{study['study']}: {study['false_alarms']} of {study['requests']}, at most {study['at_most']:.3g}")
    print(content["summary"], f"{time.perf_counter() - began:.0f} s")
    print(*content["faults"] or ["every bound holds"], sep="\n")
    return bool(content["faults"])


if __name__ == "__main__":
    sys.exit(main())
