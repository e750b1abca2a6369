"""python -m bench.equality: is the text the one it has to be, token for token?

1. float32: greedy text of every drafter on the twelve prompts against transformers' own `generate`. A difference
   counts as equal only if it is shown to be a tie within the measured drift (`bench.ties`); then we go on from the
   reference's text, so that a later fault is still seen. Among themselves the drafters must agree to the last token.
2. int8: every drafter's text against our own plain decoding, greedy and coupled (temperature 0.8, seed 7), alone and
   eight at once, with prompts whole and in chunks: bitwise promised, so nothing excuses a difference.

Writes bench/results/equality.json; exit code 1 on a fault. The whole takes about ten minutes on a quiet machine.

Does not know: how fast anything is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import provenance, results
from bench.equal_float32 import Float32Check
from bench.equal_int8 import Int8Check
from bench.groups import SEED
from bench.settings import DRAFTERS, Settings
from bench.workloads import PROMPTS, spread

RESULTS = provenance.ROOT / "bench" / "results"
SCRATCH = provenance.ROOT / ".cache" / "bench"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.equality", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each text (default 128)")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the twelve, buckets in turn")
    parser.add_argument("--drafters", nargs="+", choices=list(DRAFTERS), default=list(DRAFTERS))
    parser.add_argument("--only", choices=("float32", "int8"), help="one half of the checks")
    parser.add_argument("--quick", action="store_true", help="3 prompts, 24 tokens: does everything run?")
    parser.add_argument("--out", type=Path, default=None, help="the result file")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    begin = time.perf_counter()

    def say(line: str) -> None:
        print(f"[{time.perf_counter() - begin:6.1f} s] {line}", flush=True)

    drafters = tuple(name for name in DRAFTERS if name in options.drafters or name == "none")
    prompts = tuple(sorted(spread(options.prompts), key=lambda prompt: prompt.index))
    return Settings(prompts, options.tokens, drafters, SCRATCH, say)


def _show(half: dict[str, Any]) -> None:
    for check in half["checks"]:
        verdict = "equal" if check["equal"] == check["compared"] else f"{check['equal']} equal"
        ties = f", {check['ties']} after a shown tie" if check.get("ties") else ""
        drafts = f" ({check['accepted']} of {check['drafted']} drafts accepted)" if check["drafted"] else ""
        print(f"  {check['what']}: {verdict} of {check['compared']}{ties}{drafts}")
    for fault in half["faults"]:
        print(f"  FAULT {fault}")


def main(arguments: Sequence[str]) -> int:
    """Entry; exit code 1 when a text is not the one it has to be."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.prompts, options.tokens = 3, 24
    settings = _settings(options)
    started = provenance.begin(arguments, "bench.equality", SEED)
    halves: dict[str, Any] = {}
    for name, check in (("float32", Float32Check), ("int8", Int8Check)):
        if options.only in (None, name):
            halves[name] = check(settings).run()
    content = {
        "provenance": provenance.end(started),
        "num_tokens": settings.num_tokens,
        "prompts": [prompt.index for prompt in settings.prompts],
        "drafters": list(settings.drafters),
        **halves,
    }
    partial = options.quick or options.only or len(settings.prompts) < len(PROMPTS) or len(settings.drafters) < 6
    out = options.out or ((SCRATCH if partial else RESULTS) / "equality.json")
    results.write(out, content)
    for name, half in halves.items():
        print(f"{name}:")
        _show(half)
    num_faults = sum(len(half["faults"]) for half in halves.values())
    print(f"{num_faults} faults" if num_faults else "no fault: every text is the one it has to be")
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
