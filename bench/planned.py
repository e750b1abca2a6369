"""python -m bench.planned: does a plan foretell what happens? Measure, cost, plan; then decode at every draft length.

Goes the way of a user (`draftproof measure`, `cost --run`, `plan`; twelve prompts; suffix, ngram and early_exit),
then decodes every prompt at draft lengths 0..8 with each drafter, in turn, one stream. Wanted, by bucket: the planned
speed-up of the chosen drafter and draft length within 10 % of the measured one, and its measured speed within 5 % of
the best draft length's.

Writes bench/results/planned.json; exit code 1 when a bound does not hold.

Does not know: how anything is planned.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import provenance, results
from bench.workloads import PROMPTS, Prompt
from draftproof.engine.build import Built, build_each
from draftproof.engine.options import EngineOptions
from draftproof.engine.prompts import encode
from draftproof.measure.cost_steps import Bench
from draftproof.types import SamplingParams

RESULTS = provenance.ROOT / "bench" / "results"
SCRATCH = provenance.ROOT / ".cache" / "bench" / "planned"
DRAFTERS, GAMMA, SEED = ("suffix", "ngram", "early_exit"), 8, 7
PLANNED_WITHIN, BEST_WITHIN = 0.10, 0.05
WARM_STEPS = 6  # untimed, before each text: a server that runs at a draft length has its widths of step ready

Place = tuple[str, str, int]  # bucket, drafter, gamma


def _draftproof(*words: str) -> None:
    """One command, as a user types it; its progress goes to stderr."""
    done = subprocess.run([sys.executable, "-m", "draftproof.cli.main", *words], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):  # 1: the cost check missed; the file says so, and so does this one
        raise SystemExit(f"draftproof {words[0]} ended with exit code {done.returncode}")


def plan_run(tokens: int, passes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(plan, cost) of a fresh run over the twelve prompts."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    data, run = SCRATCH / "prompts.jsonl", SCRATCH / "run"
    data.write_text("".join(json.dumps({"prompt": p.text, "task": p.bucket}) + "\n" for p in PROMPTS))
    drafters = [word for name in DRAFTERS for word in ("--drafter", name)]
    length = ["--max-new-tokens", str(tokens), "--ignore-eos"]
    measured = ["--data", str(data), "--bucket-field", "task", "--gamma", str(GAMMA), *length, "--out", str(run)]
    _draftproof("measure", *drafters, *measured)
    grid = ["--sequences", "1", "--rows", "1,2,3,4,5,6,7,8,9", "--contexts", "64,256", "--tokens", "1,2,4,8"]
    _draftproof("cost", "--run", str(run), *grid, "--passes", str(passes))
    _draftproof("plan", str(run), "--concurrency", "1")
    return json.loads((run / "plan.json").read_text()), json.loads((run / "cost.json").read_text())


def sweep(tokens: int, repeats: int) -> tuple[dict[Place, float], dict[Place, int]]:
    """Seconds and tokens of decoding by bucket, drafter and gamma; the prompt's own pass is left out, as in a plan."""
    options = [EngineOptions(model="demo", drafter=name, gamma=GAMMA, weights="int8") for name in DRAFTERS]
    built = build_each(options, lambda line: None)
    params = SamplingParams(max_new_tokens=tokens, ignore_eos=True, seed=SEED)
    benches = {name: Bench(one, one.engine.drafter, 1, params) for name, one in zip(DRAFTERS, built, strict=True)}
    places = [(name, gamma) for name in DRAFTERS for gamma in range(GAMMA + 1)]
    seconds: dict[Place, float] = defaultdict(float)
    counts: dict[Place, int] = defaultdict(int)
    for turn in range(repeats * len(PROMPTS)):
        prompt = PROMPTS[turn % len(PROMPTS)]
        shift = (turn * 7) % len(places)  # nobody is always first
        for name, gamma in places[shift:] + places[:shift]:
            _decode(benches[name], built[0], prompt, gamma, WARM_STEPS)
            spent, emitted = _decode(benches[name], built[0], prompt, gamma)
            seconds[prompt.bucket, name, gamma] += spent
            counts[prompt.bucket, name, gamma] += emitted
        print(f"sweep {turn + 1} of {repeats * len(PROMPTS)}", file=sys.stderr, flush=True)
    return seconds, counts


def _decode(bench: Bench, built: Built, prompt: Prompt, gamma: int, most: int | None = None) -> tuple[float, int]:
    """(seconds, tokens) of one text, or of its first `most` steps."""
    ids = encode(prompt.text, built.tokenizer, built.engine.target.vocab_size, True)
    seqs = bench.start([ids])
    try:
        steps = []
        while bench.engine.has_work and (most is None or len(steps) < most):
            steps += bench.steps(1, gamma)
        return sum(step.seconds + step.draft_s for step in steps), sum(step.tokens for step in steps)
    finally:
        bench.clear(seqs)


def judge(plan: dict[str, Any], seconds: dict[Place, float], counts: dict[Place, int]) -> list[dict[str, Any]]:
    """One row a bucket: what was planned, what was measured, and whether the bounds hold."""
    rate = {place: counts[place] / seconds[place] for place in seconds}
    rows = []
    for bucket in sorted({place[0] for place in seconds}):
        plain_s = sum(seconds[bucket, name, 0] for name in DRAFTERS)
        plain = sum(counts[bucket, name, 0] for name in DRAFTERS) / plain_s
        band = next(b for b in plan["buckets"] if b["name"] == bucket)["bands"][0]
        drafter, gamma, planned = band["drafter"], band["point"]["gamma"], band["point"]["speedup"]
        own = rate[bucket, drafter, gamma] if drafter else plain
        rivals = {g: rate[bucket, drafter, g] for g in range(GAMMA + 1)} if drafter else {0: plain}
        best = max(rivals, key=lambda g: rivals[g])
        ratio, behind = planned["mean"] / (own / plain), own / rivals[best]
        rows.append(
            {
                "bucket": bucket,
                "drafter": drafter,
                "gamma": gamma,
                "enable": band["enable"],
                "planned_speedup": planned["mean"],
                "planned_low": planned["low"],
                "planned_high": planned["high"],
                "measured_speedup": own / plain,
                "planned_over_measured": ratio,
                "best_gamma_measured": best,
                "chosen_over_best": behind,
                "best_of_all": max((rate[place] / plain, place[1], place[2]) for place in rate if place[0] == bucket),
                "holds": abs(ratio - 1) <= PLANNED_WITHIN and behind >= 1 - BEST_WITHIN,
            }
        )
    return rows


def every_point(plan: dict[str, Any], seconds: dict[Place, float], counts: dict[Place, int]) -> list[dict[str, Any]]:
    """Planned and measured speed-up of each drafter at each draft length."""
    points = []
    for bucket in plan["buckets"]:
        for curve in bucket["bands"][0]["curves"]:
            for point in curve["points"]:
                place = (bucket["name"], curve["drafter"], point["gamma"])
                if place in seconds:
                    base = (bucket["name"], curve["drafter"], 0)
                    measured = counts[place] / seconds[place] / (counts[base] / seconds[base])
                    names = dict(zip(("bucket", "drafter", "gamma"), place, strict=True))
                    points.append({**names, "planned": point["speedup"]["mean"], "measured": measured})
    return points


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when all bounds hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.planned", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each text (default 128)")
    parser.add_argument("--repeats", type=int, default=2, help="sweeps over all prompts (default 2)")
    parser.add_argument("--passes", type=int, default=5, help="passes of the cost measurement (default 5)")
    parser.add_argument("--out", type=Path, default=RESULTS / "planned.json")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    started = provenance.begin(given, "bench.planned", SEED)
    plan, cost = plan_run(options.tokens, options.passes)
    seconds, counts = sweep(options.tokens, options.repeats)
    rows = judge(plan, seconds, counts)
    content = {
        "title": "a plan against what happens: twelve prompts, one stream, greedy",
        "provenance": provenance.end(started),
        "planned_within": PLANNED_WITHIN,
        "best_within": BEST_WITHIN,
        "cost_check": cost["check"],
        "buckets": rows,
        "points": every_point(plan, seconds, counts),
    }
    results.write(options.out, content)
    for row in rows:
        print(
            f"{row['bucket']:8} {row['drafter'] or 'plain':10} gamma {row['gamma']}  planned "
            f"{row['planned_speedup']:.2f}x  measured {row['measured_speedup']:.2f}x  ratio "
            f"{row['planned_over_measured']:.3f}  chosen / best gamma {row['chosen_over_best']:.3f} (best "
            f"{row['best_gamma_measured']})  {'holds' if row['holds'] else 'MISSED'}"
        )
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
