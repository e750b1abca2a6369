"""python -m bench.trees: chain, fixed tree and dynamic tree of the shipped draft head, at the same number of nodes.

Held-out chat prompts (`draftproof.train.prompts.HELD_OUT`), demo model, int8, greedy and at temperature 0.8 (rule
coupled), budgets of 2 to 8 nodes that nothing cuts short. Wanted at every budget: the dynamic tree's tokens per round
at least the chain's and the fixed tree's. The fixed tree is the best one under chances of `RANKS` for the first,
second, .. child of any node: those of the shipped head on these prompts, so it is as good as a fixed tree gets.

"auto" is the tree that is drafted by default prices, beside the chain that stops by the same rule: how often it widens,
what it brings, and what it should cost by the costs that it was priced with (`tokens_per_ms`; no clock is read).

Every text must be the chain's. Writes bench/results/trees.json; exit code 1 when a text differs or a bound is missed.

Does not know: how the head was made, how long anything takes.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import provenance, results
from draftproof import LLM, SamplingParams
from draftproof.drafters.tree_shape import DynamicShape, Place, Shape, StaticShape
from draftproof.engine.lengths import costs_alone, relative_cost, tree_prices
from draftproof.engine.options import EngineOptions
from draftproof.train.prompts import HELD_OUT

RESULTS = provenance.ROOT / "bench" / "results"
RANKS = (0.4, 0.13, 0.06, 0.035)
BUDGETS = range(2, 9)
SEED = 7
MODES: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": {"temperature": 0.8, "rule": "coupled"}}


def best_places(count: int) -> list[Place]:
    """The `count` likeliest places where the k-th child of any node is accepted with chance RANKS[k - 1]."""
    waiting, taken = [(-1.0, ())], list[Place]()
    while len(taken) <= count:
        value, place = heapq.heappop(waiting)
        taken.append(place)
        for rank, chance in enumerate(RANKS, 1):
            heapq.heappush(waiting, (value * chance, (*place, rank)))
    return taken[1:]


class Watch:
    """A drafter in its place, and the shapes of what it drafted."""

    def __init__(self, drafter: Any) -> None:
        self.inner, self.name, self.wants = drafter, drafter.name, drafter.wants
        self.observe, self.forget = drafter.observe, drafter.forget
        self.start()

    def start(self) -> None:
        """Forgets what was seen."""
        self.drafts = self.branched = self.rows = self.nodes = 0
        self.rounds: Counter[tuple[int, int]] = Counter()  # by rows and depth

    def propose(self, items: Any, noise: Any) -> Any:
        """The drafter's own drafts. Rows are those of forked branches."""
        drafts = self.inner.propose(items, noise)
        for item, draft in zip(items, drafts, strict=True):
            if not item.budget:
                continue
            depth = [0]
            for parent in draft.parents.tolist():
                depth.append(depth[parent] + 1)
            ends = set(range(len(depth))) - set(draft.parents.tolist())
            self.drafts += 1
            self.nodes += len(draft)
            rows = sum(depth[end] + 1 for end in ends)
            self.rounds[rows, max(depth)] += 1
            self.rows += rows
            self.branched += len(ends) > 1
        return drafts


def measure(llm: LLM, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One line for each mode, budget and shape; `texts` are its tokens, `each` (tokens, rounds) of each prompt."""
    engine = llm.built.engine
    drafter = engine.drafter
    watch = engine.drafter = Watch(drafter)
    prices = tree_prices(None, options.head_cost, engine.target.numerics)
    prompts = [[{"role": "user", "content": text}] for text in HELD_OUT[: options.prompts]]
    lines = []
    for mode, params in MODES.items():
        for budget in BUDGETS:
            shapes: dict[str, tuple[Shape | None, float]] = {
                "chain": (None, 0.0),
                "static": (StaticShape(best_places(budget)), 0.0),
                "dynamic": (DynamicShape(), 0.0),
                "auto": (DynamicShape(prices), 0.0),
                "chain that stops": (None, prices.forward),
            }
            for name, (shape, min_path) in shapes.items():
                drafter._tree, drafter._min_path = shape, min_path
                watch.start()
                settings = SamplingParams(
                    max_new_tokens=options.tokens, seed=SEED, ignore_eos=True, max_draft_tokens=budget, **params
                )
                outputs = llm.generate(prompts, settings)
                each = [(len(output.token_ids) - 1, output.speculation.rounds - 1) for output in outputs]
                line = {"mode": mode, "budget": budget, "shape": name, **summary(watch, each, options.head_cost)}
                lines.append(line | {"each": each, "texts": [output.token_ids for output in outputs]})
                print(
                    f"{mode:8} {budget} {name:16} {line['tokens_per_round']:.3f} a round, {line['nodes']:.2f} nodes, "
                    f"{line['rows']:.2f} rows, {line['branched']:.0%} branched, {line['tokens_per_ms']:.4f} a ms",
                    file=sys.stderr,
                    flush=True,
                )
    return lines


def summary(watch: Watch, each: Sequence[tuple[int, int]], head_cost: float) -> dict[str, float]:
    """Means over all rounds after the first token, which nothing is drafted for."""
    rounds = sum(count for _, count in each)
    per_round = sum(tokens for tokens, _ in each) / rounds
    rows, cost = watch.rows / watch.drafts, 0.0
    step, draft = costs_alone(None, head_cost)
    for (num_rows, depth), count in watch.rounds.items():
        cost += count * (step(num_rows) + draft(depth)) / watch.drafts
    return {
        "tokens_per_round": per_round,
        "nodes": watch.nodes / watch.drafts,
        "rows": rows,
        "branched": watch.branched / watch.drafts,
        "tokens_per_ms": per_round / cost,
    }


def compared(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tokens per round of the dynamic tree over the chain's and the fixed tree's, with intervals over prompts."""
    found, rng = [], np.random.default_rng(0)
    by_key = {(line["mode"], line["budget"], line["shape"]): np.array(line["each"], np.float64) for line in lines}
    for mode in MODES:
        for budget in BUDGETS:
            ours = by_key[mode, budget, "dynamic"]
            for other in ("chain", "static"):
                theirs = by_key[mode, budget, other]
                drawn = rng.integers(0, len(ours), (2000, len(ours)))
                ratios = _rate(ours[drawn]) / _rate(theirs[drawn])
                low, high = np.percentile(ratios, [2.5, 97.5]).tolist()
                value = float(_rate(ours) / _rate(theirs))
                found.append({"mode": mode, "budget": budget, "over": other, "ratio": value, "low": low, "high": high})
    return found


def _rate(each: np.ndarray) -> Any:
    """[..., prompts, 2] -> tokens per round."""
    return each[..., 0].sum(-1) / each[..., 1].sum(-1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every text is the chain's and every bound holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--prompts", type=int, default=len(HELD_OUT), help=f"held-out prompts (default {len(HELD_OUT)})"
    )
    parser.add_argument("--tokens", type=int, default=96, help="tokens of each text (default 96)")
    parser.add_argument("--numerics", choices=("invariant", "fast"), default="invariant")
    parser.add_argument("--out", type=Path, default=RESULTS / "trees.json")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    started = provenance.begin(given, "bench.trees", SEED)
    with LLM.from_options(EngineOptions(drafter="eagle", tree="dynamic", gamma=8, numerics=options.numerics)) as llm:
        assert llm.built.draft is not None
        options.head_cost = relative_cost(llm.built.draft.target, llm.built.engine.target)
        lines = measure(llm, options)
    truth = {line["mode"]: line["texts"] for line in lines if line["shape"] == "chain"}
    same = all(line["texts"] == truth[line["mode"]] for line in lines)
    rows = compared(lines)
    content = {
        "title": "shapes of the shipped head's drafts at the same number of nodes, held-out prompts, int8",
        "provenance": provenance.end(started),
        "same_texts": same,
        "rows": [{key: value for key, value in line.items() if key not in ("each", "texts")} for line in lines],
        "dynamic_over": rows,
    }
    results.write(options.out, content)
    for row in rows:
        holds = "holds" if row["ratio"] >= 1 else "MISSED"
        interval = f"{row['ratio']:.3f} ({row['low']:.3f} .. {row['high']:.3f})"
        print(f"{row['mode']:8} {row['budget']} over {row['over']:6} {interval} {holds}")
    print(f"same texts: {same}")
    return 0 if same and all(row["ratio"] >= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
