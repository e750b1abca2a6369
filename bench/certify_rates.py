"""python -m bench.certify_rates: does `certify` keep its false-alarm rate, and find what is planted?

    alarms    correct set-ups (tests/certify/setups.py: random targets, every drafter, rule and mix of laws), all stages
              that sample a law: at most the stated rate of certificates may hold an alarm.
    faults    each planted fault (tests/certify/planted.py) with many seeds: 99 % must be found, and named rightly.
    power     tokens whose law is off by just the total variation that the certificate states: 99 % must be found.

Writes bench/results/certify-rates.json; exit code 1 when a bound does not hold. Bounds allow for chance at 0.1 %.

Does not know: models that are loaded from files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench import provenance, results
from draftproof.certify.chances import smallest_tv
from draftproof.certify.pit import CELLS, equal_cells

RESULTS = provenance.ROOT / "bench" / "results"
TESTS = provenance.ROOT / "tests" / "certify"
SEED = 0
ALPHA = 0.05
_LEVEL = 1e-3  # chance that a bound below is missed by chance


def alarms(setups: int, tokens: int) -> dict[str, Any]:
    """Certificates with a false alarm, and how evenly the p-values of each test fill ten cells."""
    from setups import certify  # of the tests' folder

    kinds: Counter[str] = Counter()
    p_values: dict[str, list[float]] = {}
    for number in range(setups):
        made = certify(number, alpha=ALPHA, tokens=tokens, tests=("fit", "joint"))
        if made["fault"] is not None:
            kinds[made["fault"]["place"]] += 1
        for test in made["tests"]:
            if test["p_value"] is not None and test["counts"]:
                p_values.setdefault(test["test"], []).append(test["p_value"])
    return {
        "setups": setups,
        "tokens": tokens,
        "rate": ALPHA,
        "alarms": kinds.total(),
        "most": int(stats.binom.ppf(1 - _LEVEL, setups, ALPHA)),
        "places": dict(kinds),
        "tests": [{"test": name, **evenness(values)} for name, values in sorted(p_values.items())],
    }


def evenness(p_values: list[float]) -> dict[str, float]:
    """Count, shares at or below 1 % and 5 %, chance of cells as uneven. Any-time p-values are uneven by design."""
    values = np.array(p_values)
    counts, _ = np.histogram(values, bins=CELLS, range=(0, 1))
    return {
        "count": len(values),
        "below_1": float((values <= 0.01).mean()),
        "below_5": float((values <= 0.05).mean()),
        "chance": equal_cells(counts.tolist())[1],
    }


def faults(seeds: int) -> list[dict[str, Any]]:
    """Of each planted fault how often it is found, and how often by its name."""
    from planted import CASES
    from test_faults import certify

    from conftest import make_toy, sampled  # of the tests' folder

    found = []
    for case in CASES:
        kinds: Counter[str] = Counter()
        with pytest.MonkeyPatch.context() as patch:
            case.plant(patch)
            for seed in range(seeds):
                made = certify(case, make_toy, sampled, seed=seed)
                kinds["none" if made["fault"] is None else made["fault"]["kind"]] += 1
        named = sum(kinds[kind] for kind in case.kinds)
        entry = {"fault": case.name, "seeds": seeds, "found": seeds - kinds["none"], "named": named}
        found.append({**entry, "least": int(stats.binom.ppf(_LEVEL, seeds, 0.99)), "kinds": dict(kinds)})
    return found


def power(trials: int) -> list[dict[str, Any]]:
    """Numbers that lean by just the stated total variation, spread evenly or heaped: the share found."""
    rng, rows = np.random.default_rng(SEED), []
    for count in (1000, 20_000):
        for shape in ("halves", "one cell"):
            level = 1e-3 / 20
            tv = smallest_tv(count, level, CELLS - 1)
            law = np.full(CELLS, 1 / CELLS)
            if shape == "halves":
                law += np.where(np.arange(CELLS) < CELLS // 2, 2 * tv / CELLS, -2 * tv / CELLS)
            else:
                law += np.where(np.arange(CELLS) == 0, tv, -tv / (CELLS - 1))
            counts = rng.multinomial(count, law, trials)
            share = float(np.mean([equal_cells(row.tolist())[1] <= level for row in counts]))
            rows.append({"count": count, "shape": shape, "tv": tv, "found": share, "trials": trials})
    return rows


def broken(content: dict[str, Any]) -> list[str]:
    """Bounds that do not hold."""
    found = []
    if content["alarms"]["alarms"] > content["alarms"]["most"]:
        found.append(f"{content['alarms']['alarms']} false alarms, at most {content['alarms']['most']}")
    found += [
        f"{row['fault']}: {row['named']} of {row['seeds']}" for row in content["faults"] if row["named"] < row["least"]
    ]
    found += [f"power of {row['shape']}: {row['found']}" for row in content["power"] if row["found"] < 0.985]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.certify_rates", description=__doc__.partition("\n")[0])
    parser.add_argument("--setups", type=int, default=420, help="correct ones (420)")
    parser.add_argument("--tokens", type=int, default=1500, help="of each (1500)")
    parser.add_argument("--seeds", type=int, default=10, help="of each planted fault (10)")
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(TESTS))
    origin, began = provenance.begin(arguments, "bench.certify_rates", SEED), time.perf_counter()
    content: dict[str, Any] = {"group": "certify-rates", "provenance": origin}
    content["alarms"] = alarms(args.setups, args.tokens)
    content["faults"] = faults(args.seeds)
    content["power"] = power(4000)
    content["broken"] = broken(content)
    content["provenance"] = provenance.end(origin)
    results.write(RESULTS / "certify-rates.json", content)
    print({name: value for name, value in content["alarms"].items() if name != "tests"})
    print(*content["alarms"]["tests"], *content["faults"], *content["power"], sep="\n")
    print(f"{time.perf_counter() - began:.0f} s", *content["broken"] or ["every bound holds"], sep="\n")
    return bool(content["broken"])


if __name__ == "__main__":
    sys.exit(main())
