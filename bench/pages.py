"""python -m bench.pages: what huge pages for the weights bring, and what they take.

Plain decoding and a draft head, each with weights on huge pages and as they come, in processes of their own that take
turns prompt by prompt in shuffled order; each repeat has new processes, for where memory lies is luck that lasts as
long as one. Held-out chat prompts, demo model, int8, greedy, one stream. Every text must be the same, with and without
drafts. Load times and memory (after one text) are of further processes, in shuffled order, too.
Writes bench/results/pages.json; exit code 1 when a text differs.

Does not know: how memory is moved.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import provenance, results, stats
from bench.solo import ask, solo_worker
from bench.worker import Worker
from draftproof.train.prompts import HELD_OUT

RESULTS = provenance.ROOT / "bench" / "results"
DRAFTERS = ("none", "eagle")
CONFIGS: dict[str, dict[str, Any]] = {
    f"{drafter} {'huge' if huge else 'small'}": {"drafter": drafter, "huge_pages": huge}
    for drafter in DRAFTERS
    for huge in (False, True)
}
SEED = 7


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every run of every repeat."""
    runs, order = [], random.Random(SEED)
    for repeat in range(options.repeats):
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(solo_worker("pages", name, values)) for name, values in CONFIGS.items()
            }
            for number, prompt in enumerate(HELD_OUT[: options.prompts]):
                for name in order.sample(list(workers), len(workers)):
                    if not number:
                        _run(workers[name], prompt, 16)  # warm
                    answer = _run(workers[name], prompt, options.tokens)
                    runs.append({"config": name, "bucket": "held out", "prompt": number, "repeat": repeat, **answer})
                print(f"repeat {repeat + 1}: {number + 1} of {options.prompts}", file=sys.stderr, flush=True)
    return runs


def _run(worker: Worker, prompt: str, num_tokens: int) -> dict[str, Any]:
    return ask(worker, prompt, num_tokens, {"seed": SEED}, ("forward_s", "rounds"))


def loading(repeats: int) -> list[dict[str, Any]]:
    """Load time and memory of each form, with the demo's head, in a process of its own each time."""
    rows, order = [], random.Random(SEED)
    for _ in range(repeats):
        for huge in order.sample((False, True), 2):
            name = f"eagle {'huge' if huge else 'small'}"
            with solo_worker("pages", name, CONFIGS[name]) as worker:
                info = worker.hello["info"]
                _run(worker, HELD_OUT[0], 128)
                more = {"huge_page_bytes": info["huge_page_bytes"], "resident_mib": worker.memory_mib()}
                rows.append({"huge": huge, "load_s": info["load_s"], **more})
    return rows


def judged(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Small over huge pages by drafter: whole time, and time of the target's steps."""
    rows, texts = [], {run["prompt"]: run["ids"] for run in runs if run["config"] == "none small"}
    for drafter in DRAFTERS:
        pairs = stats.pairs(runs, f"{drafter} huge", f"{drafter} small", "held out")
        whole = stats.ratio_of_costs(pairs, lambda run: run["seconds"] / sum(run["counts"]))
        steps = stats.ratio_of_costs(pairs, lambda run: run["forward_s"] / run["rounds"])
        if whole is None or steps is None:
            continue
        rows.append(
            {
                "drafter": drafter,
                "speed_up": whole.value,
                "low": whole.low,
                "high": whole.high,
                "steps": steps.value,
                "same_texts": sum(run["ids"] == texts[run["prompt"]] for pair in pairs for run in pair)
                / (2 * len(pairs)),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every text is the same."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__.partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts (default 8)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each text (default 128)")
    parser.add_argument("--repeats", type=int, default=4, help="sets of new processes (default 4)")
    parser.add_argument("--out", type=Path, default=RESULTS / "pages.json")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if min(options.prompts, options.tokens, options.repeats) < 1:
        parser.error("--prompts, --tokens and --repeats must be at least 1")
    started = provenance.begin(given, "bench.pages", SEED)
    runs, loads = measure(options), loading(options.repeats)
    rows = judged(runs)
    content = {
        "title": "weights on huge pages, one stream, int8",
        "provenance": provenance.end(started),
        "rows": rows,
        "loads": loads,
        "runs": [{key: value for key, value in run.items() if key != "ids"} for run in runs],
    }
    results.write(options.out, content)
    for row in rows:
        print(
            f"{row['drafter']:6} {row['speed_up']:.2f}x ({row['low']:.2f} .. {row['high']:.2f}), steps of the target "
            f"{row['steps']:.2f}x, same texts {row['same_texts']:.0%}"
        )
    for huge in (False, True):
        mine = [load for load in loads if load["huge"] == huge]
        seconds, size = (sum(load[name] for load in mine) / len(mine) for name in ("load_s", "resident_mib"))
        print(f"loading, {'huge' if huge else 'small'} pages: {seconds:.2f} s, {size:.0f} MiB after a text")
    return 0 if all(row["same_texts"] == 1.0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
