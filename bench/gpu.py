"""Plain against speculative decoding on a random Llama and a layer-cut draft of it; equality first, then speed.

    python bench/gpu.py                                   # a 1B-parameter model in bfloat16 on CUDA, under 6 minutes
    python bench/gpu.py --device cpu --dtype float32 --layers 2 --hidden 64 --vocab 512 --new 16 --batches 1 4

The weights are random, so the acceptance is made, not found: the output projections of the layers the draft lacks are
scaled by --tail, which sets how often the cut model agrees. What is measured is the engine: the price of a round at a
known acceptance. Checks: our logits against transformers' own; greedy texts with and without drafts, where a difference
counts as a tie only if the two logits are closer than twice the drift measured between the shapes of those runs;
bitwise equality under "invariant" numerics. Writes JSON with provenance, plain and speculative of the same run side by
side. Exits with 1 when an equality fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from draftproof.drafters import make
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.hf import TorchTarget
from draftproof.models.module import first_layers
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.types import Numerics, Request, SamplingParams, Slots

PROMPT_LEN = 64
CHECKED = 16  # tokens of a text whose logits are compared
EXACT_NEW = 8  # new tokens of the bitwise check, in which every row is a forward of its own


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=["float64", "float32", "bfloat16", "float16"])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--vocab", type=int, default=128_256)
    parser.add_argument("--draft-layers", type=int, default=1)
    parser.add_argument("--tail", type=float, default=0.03, help="scale of what the layers beyond the draft's add")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--new", type=int, default=64, help="new tokens of each sequence")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each kind, in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench/results/gpu.json"))
    return parser.parse_args()


def build_model(args: argparse.Namespace) -> Any:
    """A random Llama: with the defaults the shape of Llama 3.2 1B."""
    torch.manual_seed(args.seed)
    heads = max(2, args.hidden // 64)
    config = transformers.LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=4 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    with torch.device(args.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, args.dtype))
    with torch.no_grad():
        for layer in model.model.layers[args.draft_layers :]:
            layer.self_attn.o_proj.weight *= args.tail
            layer.mlp.down_proj.weight *= args.tail
    return model.eval()


@dataclass
class Bench:
    """The model, its cut, and how engines are made of them."""

    args: argparse.Namespace
    model: Any

    def target(self, model: Any, batch: int, numerics: Numerics = "fast") -> TorchTarget:
        """Pages for `batch` sequences of the longest text."""
        pages = batch * (-(-(PROMPT_LEN + self.args.new + 32) // 32) + 1)
        return TorchTarget(model, num_pages=pages, numerics=numerics)

    def prompts(self, count: int) -> list[np.ndarray]:
        """Random prompts, the same ones in every run."""
        rng = np.random.default_rng(self.args.seed)
        return [rng.integers(3, self.args.vocab, PROMPT_LEN).astype(np.int32) for _ in range(count)]

    def engine(self, batch: int, gamma: int, numerics: Numerics = "fast") -> Engine:
        """Plain when gamma is 0."""
        target = self.target(self.model, batch, numerics)
        ledger = PageLedger(target.num_pages, target.page_size)
        limits = Limits(target.max_len, max_sequences=batch, max_step_rows=2048)
        scheduler = BatchScheduler(ledger, limits, FixedGamma(gamma))
        drafter = make("none")
        if gamma:
            draft = self.target(first_layers(self.model, self.args.draft_layers), batch)
            own = PageLedger(draft.num_pages, draft.page_size)
            drafter = make("early_exit", target=draft, ledger=own, vocab_size=target.vocab_size)
        return Engine(target, drafter, scheduler, ledger, PhiloxNoise())

    def generate(self, engine: Engine, batch: int, new: int) -> tuple[list[list[int]], dict[str, float | None]]:
        """Greedy texts, and what they cost after the first token of each."""
        texts: list[list[int]] = [[] for _ in range(batch)]
        for number, prompt in enumerate(self.prompts(batch)):
            engine.submit(Request(number, prompt, SamplingParams(max_new_tokens=new, seed=number)))
        begin = first = self.now()
        at_first = 0
        while engine.has_work:
            for event in engine.step():
                texts[event.request_id] += event.tokens
            if not at_first and all(texts):
                first, at_first = self.now(), sum(map(len, texts))
        seconds, meter = self.now() - first, engine.meter
        rate = {"tokens_per_second": (batch * new - at_first) / seconds, "ttft_s": first - begin}
        rate |= {"tokens_per_round": meter.tokens / meter.rounds, "overhead": meter.overhead}
        return texts, rate | {"acceptance": meter.accepted / meter.tested if meter.tested else None}

    def now(self) -> float:
        """Seconds, with the device's queue drained."""
        if self.args.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    @torch.inference_mode()
    def stock(self, ids: list[int]) -> np.ndarray:
        """float[T, V] of transformers' own forward on a fresh reading of the same weights."""
        self.model.set_attn_implementation("sdpa")
        try:
            logits = self.model(torch.tensor([ids], device=self.args.device), use_cache=False).logits[0]
            return logits.double().cpu().numpy()
        finally:
            self.model.set_attn_implementation("draftproof")


def rows_of(target: TorchTarget, texts: list[np.ndarray], width: int) -> np.ndarray:
    """float32[B, T, V]: the rows of B texts of one length, fed together, `width` at a time."""
    pages, rows = target.num_pages // len(texts), []
    for start in range(0, len(texts[0]), width):
        parts = []
        for number, text in enumerate(texts):
            part = text[start : start + width]
            slots = Slots(np.arange(number * pages, (number + 1) * pages, dtype=np.int32), start, len(part))
            parts.append(Rows(part, 1, slots, np.arange(len(part) - 1, dtype=np.int32)))
        logits = target.verify(flat_batch(parts, target.min_rows)).logits
        taken = np.array([logits.row(i) for i in range(sum(len(part.tokens) for part in parts))], np.float32)
        rows.append(taken.reshape(len(texts), -1, taken.shape[-1]))
    return np.concatenate(rows, 1)


def check_logits(bench: Bench) -> dict[str, Any]:
    """Ours against stock."""
    text = bench.prompts(1)[0][:CHECKED]
    rows = rows_of(bench.target(bench.model, 1), [text], len(text))[0]
    truth = bench.stock(text.tolist())
    largest, gap = float(np.abs(truth).max()), float(np.abs(rows - truth).max())
    allowed = {"float64": 1e-5, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}[bench.args.dtype] * largest
    return {
        "largest_logit": largest,
        "difference_to_transformers": gap,
        "allowed_difference": allowed,
        "holds": gap <= allowed,
    }


def drift_of(bench: Bench, batch: int) -> float:
    """Largest difference of a logit between the ways a row is computed here: alone in one forward over the text (as
    stock does), and beside `batch` - 1 others one row or gamma + 1 rows at a time."""
    texts, target = [text[:CHECKED] for text in bench.prompts(batch)], bench.target(bench.model, batch)
    alone = np.concatenate([rows_of(target, [text], CHECKED) for text in texts])
    return max(float(np.abs(rows_of(target, texts, width) - alone).max()) for width in (1, bench.args.gamma + 1))


def compare(bench: Bench, plain: list[list[int]], other: list[list[int]], drift: float) -> dict[str, Any]:
    """How many texts are identical; a first difference is a tie when its two logits are within twice the drift."""
    found: list[dict[str, Any]] = []
    for prompt, ours, theirs in zip(bench.prompts(len(plain)), plain, other, strict=True):
        place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), None)
        if place is not None:
            row = bench.stock([*prompt.tolist(), *ours[:place]])[-1]
            gap = float(abs(row[ours[place]] - row[theirs[place]]))
            found.append({"position": place, "gap": gap, "tie_within_drift": gap <= 2 * drift})
    holds = all(difference["tie_within_drift"] for difference in found)
    return {"texts": len(plain), "identical": len(plain) - len(found), "first_differences": found, "holds": holds}


def measure(bench: Bench, batch: int) -> dict[str, Any]:
    """Plain and speculative on the same prompts, in turn, after a whole run of each to warm up (a first run loads
    kernels for each new shape: seconds)."""
    args, drift = bench.args, drift_of(bench, batch)
    lengths = {"plain": 0, "speculative": args.gamma}
    texts: dict[str, list[list[int]]] = {}
    runs: dict[str, list[dict[str, float | None]]] = {name: [] for name in lengths}
    for repeat in range(args.repeats + 1):
        for name, gamma in lengths.items():
            texts[name], row = bench.generate(bench.engine(batch, gamma), batch, args.new)
            if repeat:
                runs[name].append(row)
    rates = {name: [run["tokens_per_second"] or 0.0 for run in found] for name, found in runs.items()}
    ratios = [fast / slow for fast, slow in zip(rates["speculative"], rates["plain"], strict=True)]
    return {
        "batch": batch,
        **{
            name: sorted(found, key=lambda run: run["tokens_per_second"] or 0.0)[len(found) // 2]
            for name, found in runs.items()
        },
        "speed_up": float(np.median(ratios)),
        "speed_up_of_pairs": ratios,
        "drift": drift,
        "equality": compare(bench, texts["plain"], texts["speculative"], drift),
    }


def check_bitwise(bench: Bench) -> dict[str, Any]:
    """Under invariant numerics drafts, chunks and batch mates change no bit, so no text either."""
    plain, _ = bench.generate(bench.engine(1, 0, "invariant"), 1, EXACT_NEW)
    drafted, _ = bench.generate(bench.engine(2, bench.args.gamma, "invariant"), 2, EXACT_NEW)
    target, text = bench.target(bench.model, 1, "invariant"), bench.prompts(1)[0][:16]
    bits = bool(np.array_equal(rows_of(target, [text], 1), rows_of(target, [text], 5)))
    return {"texts_equal": plain[0] == drafted[0], "logits_equal": bits, "holds": plain[0] == drafted[0] and bits}


def provenance(args: argparse.Namespace, parameters: int) -> dict[str, Any]:
    """What made these numbers."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    name = torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.processor()
    return {
        "command": " ".join(sys.argv),
        "commit": commit or None,
        "device": name,
        "machine": platform.platform(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
        | {"transformers": transformers.__version__, "numpy": np.__version__},
        "threads": torch.get_num_threads(),
        "seed": args.seed,
        "parameters": parameters,
        "settings": {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()},
    }


def main() -> int:
    """Checks, measures, writes, prints a line for each batch."""
    args, begin = parse(), time.perf_counter()
    model = build_model(args)
    bench = Bench(args, model)
    report: dict[str, Any] = {"provenance": provenance(args, sum(p.numel() for p in model.parameters()))}
    report["logits"] = check_logits(bench)
    print("logits", json.dumps(report["logits"]), flush=True)
    report["invariant"] = check_bitwise(bench)
    print("invariant", json.dumps(report["invariant"]), flush=True)
    report["runs"] = []
    for batch in args.batches:
        run = measure(bench, batch)
        report["runs"].append(run)
        print(json.dumps(run), flush=True)
    report["seconds"] = time.perf_counter() - begin
    parts = [report["logits"], report["invariant"], *(run["equality"] for run in report["runs"])]
    report["holds"] = all(part["holds"] for part in parts)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'every equality holds' if report['holds'] else 'AN EQUALITY FAILED'}; written to {args.out}")
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
