"""python -m bench.plan_speed: how long does a million stored tokens take, from Parquet to a finished plan?

Writes runs of a million token rows with G = 8 (many short texts, few long ones, and several drafters and buckets), then
plans each in a fresh process that has imported everything, three times; the median time and the most memory that
planning added to the process are what counts. The wanted bounds: under 2 seconds and 500 MiB.

Writes bench/results/plan-speed.json; exit code 1 when a bound does not hold.

Does not know: models, what the figures of such a plan mean (they are random).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import provenance, results

RESULTS = provenance.ROOT / "bench" / "results"
GAMMA, SEED = 8, 7
MOST_SECONDS, MOST_MIB = 2.0, 500
_PART = 1 << 17  # rows of one Parquet part
_COST = {
    "format": 1,
    "target": [
        {"sequences": b, "rows": n, "context": c, "ms": 10 + 0.4 * b * n + c * b / 1000, "error": 0.01}
        for c in (128, 1024)
        for b in (1, 8, 64)
        for n in (1, 2, 4, 9)
    ],
}
_DRAFT = [{"sequences": b, "tokens": n, "context": 128, "ms": 0.05 * b * n} for b in (1, 64) for n in (1, 8)]


@dataclass(frozen=True, slots=True)
class Shape:
    """A run: drafters x prompts texts of `tokens` decided tokens each, prompts dealt to buckets in turn."""

    name: str
    prompts: int
    tokens: int
    drafters: int = 1
    buckets: int = 1
    drawn: bool = False  # drafts drawn from a law: every list is as long as the draft

    @property
    def rows(self) -> int:
        """Token rows, the plain first token of each text not counted."""
        return self.prompts * self.tokens * self.drafters


SHAPES = (
    Shape("short texts", 7813, 128),
    Shape("long texts, long lists", 500, 2000, drawn=True),
    Shape("drafters and buckets", 2605, 128, drafters=3, buckets=8),
)


def write_run(folder: Path, shape: Shape) -> None:
    """A run folder with random chances; a list ends after the first keep of 0, or with the text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    for name in ("parts", "prompts"):
        (folder / name).mkdir(parents=True)
    names = [f"drafter-{i}" for i in range(shape.drafters)]
    model = {"name": "random", "parameters": 10**9, "num_layers": 32, "num_kv_heads": 8, "head_dim": 128}
    info = {"format": 1, "gamma_max": GAMMA, "model": model, "sampling": {"temperature": 1.0}, "complete": True}
    info["drafters"] = [{"name": name, "kind": "model", "model": model} for name in names]
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "cost.json").write_text(json.dumps({**_COST, "drafters": dict.fromkeys(names, _DRAFT)}))
    rows = shape.tokens + 1
    step = max(1, _PART // (rows * shape.drafters))
    for number, first in enumerate(range(0, shape.prompts, step)):
        prompts = np.arange(first, min(first + step, shape.prompts))
        table, requests = _part(rng, prompts, names, shape)
        pq.write_table(pa.table(table), folder / "parts" / f"part-{number:06}.parquet")
        pq.write_table(pa.table(requests), folder / "prompts" / f"part-{number:06}.parquet")


def _text(labels: Sequence[str], codes: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(labels, pa.string()))


def _lists(rng: np.random.Generator, shape: Shape, offered: np.ndarray) -> dict[str, Any]:
    """keep and accept of each row; texts are `shape.tokens` + 1 rows each."""
    import pyarrow as pa

    keep = rng.random((len(offered), GAMMA))
    if shape.drawn:
        keep = keep**0.25
    else:  # a looked-up draft is kept or not
        skill = rng.beta(4, 2, len(offered) // (shape.tokens + 1)).repeat(shape.tokens + 1)
        keep = (keep < skill[:, None]).astype(np.float64)
    before = np.concatenate([np.ones((len(keep), 1)), np.cumprod(keep, axis=1)[:, :-1]], axis=1) > 0
    listed = before & (np.arange(GAMMA) < offered[:, None])
    offsets = pa.array(np.concatenate([[0], np.cumsum(listed.sum(axis=1))]).astype(np.int32))
    values = {"keep": keep[listed].astype(np.float32), "accept": rng.random(listed.sum(), np.float32)}
    return {name: pa.ListArray.from_arrays(offsets, pa.array(array)) for name, array in values.items()}


def _part(
    rng: np.random.Generator, prompts: np.ndarray, names: Sequence[str], shape: Shape
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of the token rows and of the prompt rows of some prompts."""
    rows, texts = shape.tokens + 1, len(prompts) * len(names)
    buckets = [f"bucket-{i}" for i in range(shape.buckets)]
    owner = np.repeat(prompts, len(names))
    place = np.tile(np.arange(rows), texts)
    longest = np.full(len(place), GAMMA) if shape.drawn else rng.integers(0, GAMMA + 1, len(place))
    offered = np.where(place == 0, 0, np.minimum(longest, rows - 1 - place))
    drafter, bucket = np.tile(np.arange(len(names)), len(prompts)), owner % shape.buckets
    outcome = np.where(place == 0, 0, 1 + (place % 3 == 2))
    table = {
        "drafter": _text(names, drafter.repeat(rows)),
        "prompt": owner.repeat(rows).astype(np.int32),
        "bucket": _text(buckets, bucket.repeat(rows)),
        "pos": place.astype(np.int32),
        "token": rng.integers(0, 50_000, len(place)).astype(np.int32),
        "round": (place // 3).astype(np.int32),
        "depth": (place % 3).astype(np.int16),
        "outcome": _text(["plain", "accepted", "correction"], outcome),
        "drafted": np.full(len(place), 4, np.int16),
        "offered": offered.astype(np.int16),
        **_lists(rng, shape, offered),
    }
    requests = {
        "prompt": owner.astype(np.int32),
        "line": (owner + 1).astype(np.int32),
        "bucket": _text(buckets, bucket),
        "drafter": _text(names, drafter),
        "prompt_tokens": np.full(texts, 200, np.int32),
        "completion_tokens": np.full(texts, rows, np.int32),
        "finish": ["length"] * texts,
        "rounds": np.full(texts, (rows + 2) // 3, np.int32),
    }
    return table, requests


_CHILD = """
import json, resource, sys, time
import pyarrow, pyarrow.parquet
from draftproof.measure.read import read_run
from draftproof.planner.cost import CostCurve
from draftproof.planner.make import Options, make_plan
folder = sys.argv[1]
curve = CostCurve.from_json(json.load(open(folder + "/cost.json")))
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, begin, work = most(), time.perf_counter(), time.process_time()
evidence = read_run(folder)
read = time.perf_counter()
plan = make_plan(evidence, curve, Options((1, 8, 64), 2.5, 80 * 2**30))
done = time.perf_counter()
print(json.dumps({"rows": len(evidence.starts.prompt), "read_s": read - begin, "plan_s": done - read,
    "seconds": done - begin, "cpu_s": time.process_time() - work, "mib": most() - before}))
"""


def measure(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Each repeat in a process of its own."""
    command = [sys.executable, "-c", _CHILD, str(folder)]
    done = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(repeats)]
    return [json.loads(one.stdout) for one in done]


def main(arguments: Sequence[str]) -> int:
    """Entry; exit code 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.plan_speed", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "plan-speed.json")
    args = parser.parse_args(arguments)
    started = provenance.begin(arguments, "bench.plan_speed", SEED)
    rows = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            write_run(Path(folder) / "run", shape)
            runs = measure(Path(folder) / "run", args.repeats)
        seconds, mib = statistics.median(run["seconds"] for run in runs), max(run["mib"] for run in runs)
        holds = seconds < MOST_SECONDS and mib < MOST_MIB
        print(f"{shape.name}: {seconds:.2f} s, {mib:.0f} MiB: {'holds' if holds else 'TOO MUCH'}", flush=True)
        rows.append({**asdict(shape), "seconds": seconds, "mib": mib, "holds": holds, "runs": runs})
    content = {
        "provenance": provenance.end(started),
        "most_seconds": MOST_SECONDS,
        "most_mib": MOST_MIB,
        "shapes": rows,
    }
    results.write(args.out, content)
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
