"""Certificates of our own engine on the demo model: python -m bench.certify_own [--tokens N] [--only DRAFTER:RULE ...]

Every drafter that needs nothing beyond the demo model, under each rule that draws (temperature 0.8), by the command a
user has: `draftproof certify`. A certificate is kept as docs/certificates/own/DRAFTER-RULE.json; one that is there
already is not made again, and one that was broken off goes on. `--table` writes docs/certificates/own/README.md from
what is there, and measures nothing.

Does not know: what the tests are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import provenance

OWN = provenance.ROOT / "docs" / "certificates" / "own"
RULES = ("coupled", "reject", "block")
DRAFTERS: Mapping[str, tuple[str, ...]] = {  # what each needs said
    "ngram": ("ngram",),
    "suffix": ("suffix",),
    "early_exit": ("early_exit",),
    "fixed_tree": ("fixed_tree",),
    "model": ("model", "--draft-model", "demo"),
    "eagle": ("eagle",),
    "cascade": ("cascade",),
    "eagle_dynamic": ("eagle", "--tree", "dynamic"),
    "eagle_static": ("eagle", "--tree", "2,2,1"),
    "cascade_dynamic": ("cascade", "--tree", "dynamic"),
}
_CHAINS_ONLY = "block"  # which judges a chain as a whole: trees are not drafted under it
_NODES = 5  # of a tree, where a chain has three
_CODES = (0, 1, 3)  # lossless, fault, not enough evidence: all of them are results
_INTRODUCTION = """# Certificates of our own engine

Made by `python -m bench.certify_own`: the demo model (int8), temperature 0.8, each drafter under each rule that draws,
by `draftproof certify` with a false-alarm rate of 0.001. The drafter `model` has the demo model itself as its draft
model; `_dynamic` and `_static` are trees of five nodes (`--tree dynamic`, `--tree 2,2,1`). "finds" is the
smallest error of total variation in the law of every token that would have been found with 99 %.

| drafter | rule | verdict | tokens | accepted / tested | finds | time |
|---|---|---|---|---|---|---|
"""


def certify(drafter: str, rule: str, tokens: int, max_tv: float, out: Path) -> int:
    """One certificate; the command's exit code."""
    command = [sys.executable, "-m", "draftproof.cli.main", "certify", "--model", "demo", "--drafter"]
    gamma = str(_NODES if "--tree" in DRAFTERS[drafter] else 3)
    command += [*DRAFTERS[drafter], "--rule", rule, "--temperature", "0.8", "--gamma", gamma, "--tokens", str(tokens)]
    command += ["--max-tv", str(max_tv), "--out", str(out.relative_to(provenance.ROOT))]
    return subprocess.run(command, check=False, cwd=provenance.ROOT).returncode


def _is_asked(own: Sequence[str], rule: str) -> bool:
    return not ("--tree" in own and rule == _CHAINS_ONLY)


def row(path: Path) -> str:
    """A line of the table."""
    found = json.loads(path.read_text())
    drafter, _, rule = path.stem.rpartition("-")
    told, finds = found["speculation"], _finds(found)
    return (
        f"| {drafter} | {rule} | {found['verdict'].replace('_', ' ')} | {told['tokens']} | "
        f"{told['accepted']} / {told['tested']} | {finds} | {found['elapsed_s'] / 60:.1f} min |"
    )


def _finds(found: Mapping[str, Any]) -> str:
    powers = [test["tv_99"] for test in found["tests"] if test["test"] == "fit.law" and test["tv_99"] is not None]
    return f"{powers[0]:.3f}" if powers else "-"


def table() -> str:
    """The page over what is there."""
    paths = [OWN / f"{drafter}-{rule}.json" for drafter in DRAFTERS for rule in RULES]
    return _INTRODUCTION + "\n".join(row(path) for path in paths if path.exists()) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a certificate says anything but lossless."""
    parser = argparse.ArgumentParser(prog="python -m bench.certify_own", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=20_000, help="sampled tokens of each (20000)")
    parser.add_argument("--max-tv", type=float, default=0.05, help="error that must have been found to pass (0.05)")
    parser.add_argument("--only", nargs="+", metavar="DRAFTER:RULE", help="these alone")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    pairs = [(name, rule) for rule in RULES for name, own in DRAFTERS.items() if _is_asked(own, rule)]
    if options.only:
        pairs = [(drafter, rule) for drafter, _, rule in (each.partition(":") for each in options.only)]
    OWN.mkdir(parents=True, exist_ok=True)
    codes = []
    for drafter, rule in pairs if not options.table else []:
        out, begin = OWN / f"{drafter}-{rule}.json", time.monotonic()
        if out.exists() and json.loads(out.read_text()).get("verdict"):
            continue
        codes.append(certify(drafter, rule, options.tokens, options.max_tv, out))
        print(f"{drafter} under {rule}: exit code {codes[-1]} after {time.monotonic() - begin:.0f} s", flush=True)
        if codes[-1] not in _CODES:
            return codes[-1]
    (OWN / "README.md").write_text(table())
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
