"""python -m bench.run: draftproof and its peers in turn, and whether what is wanted holds.

    python -m bench.run                                   everything (about 45 minutes, on a quiet machine)
    python -m bench.run --groups int8 streams             some groups; the others keep their last files
    python -m bench.run --quick                           a smoke run; its figures mean nothing and are kept apart
    python -m bench.run --table                           the tables of the files that are there
    python -m bench.run --install openvino-genai          makes a peer's environment (also: vllm, llamacpp)

Writes bench/results/GROUP.json (every run, with provenance) and bench/results/demands.json (the table).

Does not know: how an engine is called, how a ratio is computed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import demands, provenance, results, serving, table
from bench.environments import ENVIRONMENTS
from bench.groups import GROUPS, SEED, Group
from bench.turns import Measured, Plan, measure
from bench.workloads import PROMPTS, spread
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve

RESULTS = provenance.ROOT / "bench" / "results"
SCRATCH = provenance.ROOT / ".cache" / "bench"
ALL_GROUPS = (*GROUPS, serving.NAME)
_IDLE_LIMIT = 0.05  # of one core: more means that somebody's idle threads spin
_FOREIGN_LIMIT = 0.1  # of one core: more means that others were at work on this machine


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", nargs="+", choices=list(ALL_GROUPS), default=list(ALL_GROUPS))
    parser.add_argument("--repeats", type=int, default=3, help="rounds over all prompts (default 3)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each text (default 128)")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the twelve, buckets in turn")
    parser.add_argument("--quick", action="store_true", help="3 prompts, 16 tokens, once: does everything run?")
    parser.add_argument("--table", action="store_true", help="measure nothing; show the files that are there")
    parser.add_argument("--install", choices=list(ENVIRONMENTS), help="make a peer's environment and stop")
    parser.add_argument("--out", type=Path, default=None, help="folder of the result files")
    return parser


class Progress:
    """One line that is overwritten on a terminal; elsewhere a line every ten seconds, and every line that matters."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._last = 0.0

    def __call__(self, line: str) -> None:
        lasting = line.endswith("\n") or "starting" in line
        if self._terminal and not lasting:
            print(f"\r\033[K{line}", end="", flush=True)
        elif lasting or time.monotonic() - self._last > 10:
            self._last = time.monotonic()
            print(("\r\033[K" if self._terminal else "") + line.rstrip(), flush=True)


def _models() -> dict[str, str]:
    source = resolve("demo")
    return {"folder": str(Loader(Cache(None), print).folder(source)), "gguf": str(source.path)}


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        repeats=options.repeats,
        num_tokens=options.tokens,
        prompts=tuple(sorted(spread(options.prompts), key=lambda prompt: prompt.index)),
        models=_models(),
        logs=SCRATCH / "logs",
    )


def _content(group: Group, plan: Plan, measured: Measured, origin: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "group": group.name,
        "title": group.title,
        "provenance": origin,
        "repeats": plan.repeats,
        "num_tokens": plan.num_tokens,
        "sampling": dict(group.sampling),
        "idle_cpu_share": measured.idle_cpu_share,
        "foreign_cpu_share": measured.foreign_cpu_share,
        "skipped": measured.skipped,
        "configs": measured.configs,
        "runs": measured.runs,
    }


def _run_group(group: Group, plan: Plan, out: Path, arguments: Sequence[str]) -> None:
    say = Progress()
    started = provenance.begin(arguments, "bench.run", SEED)
    measured = measure(group, plan, say)
    content = _content(group, plan, measured, provenance.end(started))
    results.write(out / f"{group.name}.json", content)
    say(f"{group.name}: done\n")
    print("\n" + group_report(content) + "\n")


def _run_serving(options: argparse.Namespace, out: Path, arguments: Sequence[str]) -> None:
    amount = serving.Amount(options.repeats, 16 if options.quick else None)
    started = provenance.begin(arguments, "bench.run", SEED)
    print("\n" + group_report(serving.run(out, started, amount, Progress())) + "\n")


def group_report(content: Mapping[str, Any]) -> str:
    """Title, rates, and what a reader must know of the circumstances."""
    origin, names = content["provenance"], list(content["configs"])
    show = {"ttft": table.latency_table, serving.NAME: serving.rates}.get(content["group"], table.rate_table)
    lines = [f"== {content['title']}", show(content["runs"], names) if content["runs"] else "nothing ran"]
    lines += [f"skipped {name}: {reason}" for name, reason in content["skipped"].items()]
    idle, foreign = content["idle_cpu_share"], content["foreign_cpu_share"]
    lines.append(
        f"commit {(origin['commit'] or 'unknown')[:12]}{' + changes' if origin['dirty'] else ''}, {origin['date']}, "
        f"{origin['cores']} cores; processor used by idle workers {100 * idle:.1f} %, by others {100 * foreign:.1f} %"
    )
    if idle > _IDLE_LIMIT:
        lines.append("WARNING: idle workers were not idle; these figures are not to be trusted")
    if foreign > _FOREIGN_LIMIT:
        lines.append(
            "WARNING: the machine was busy with other work; repeat this on a quiet one before quoting a figure"
        )
    return "\n".join(lines)


def _report(out: Path) -> None:
    """The table of demands over all files that are there."""
    contents = results.read(out, ALL_GROUPS)
    rows = demands.table({name: content["runs"] for name, content in contents.items()})
    print("== what is wanted, and what is worth knowing")
    print(table.demand_table(rows))
    origins = {name: content["provenance"] for name, content in contents.items()}
    keys = ("commit", "dirty", "date", "load_before", "load_after")
    shares = ("idle_cpu_share", "foreign_cpu_share")
    commits = {(origin["commit"], origin["dirty"]) for origin in origins.values()}
    if len(commits) > 1:
        print("\nnote: these files come from different commits")
    asked = [row for row in rows if row.bound is not None]
    held = sum(row.holds is True for row in asked)
    missed = sum(row.holds is False for row in asked)
    print(f"\n{held} hold, {missed} do not, {len(asked) - held - missed} were not measured")
    results.write(
        out / "demands.json",
        {
            "groups": {
                name: {key: origins[name][key] for key in keys} | {key: content[key] for key in shares}
                for name, content in contents.items()
            },
            "rows": [row.as_dict() for row in rows],
        },
    )


def main(arguments: Sequence[str]) -> int:
    """Entry; exit code 0 when the measurements ran, whatever they show."""
    options = _parser().parse_args(arguments)
    if options.install:
        ENVIRONMENTS[options.install].install()
        return 0
    if options.quick:
        options.repeats, options.tokens, options.prompts = 1, 16, 3
    out = options.out or (SCRATCH / "quick" if options.quick else RESULTS)
    if options.table:
        for content in results.read(out, ALL_GROUPS).values():
            print(group_report(content) + "\n")
    else:
        plan = _plan(options)
        for name in options.groups:
            if name in GROUPS:
                _run_group(GROUPS[name], plan, out, arguments)
            else:
                _run_serving(options, out, arguments)
    _report(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
