"""Rows and rates -> plain text tables, readable in a terminal and in a log.

Does not know: where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import stats
from bench.demands import Row
from bench.stats import Ratio, Run

_HOLDS = {True: "yes", False: "NO", None: ""}


def grid(header: Sequence[str], lines: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as their widest cell; the first `left` ones are flush left, the others flush right."""
    cells = [list(header), *(list(line) for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]

    def show(line: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return "\n".join([show(cells[0]), "  ".join("-" * width for width in widths), *(show(line) for line in cells[1:])])


def _number(row: Row, value: float | None) -> str:
    if value is None:
        return ""
    if row.unit == "%":
        return f"{100 * value:.1f} %"
    if row.unit == "of":
        return f"{value:.0f} of {row.out_of}"
    return f"{value:.2f}x"


def _wanted(row: Row) -> str:
    if row.bound is None:
        return ""
    if row.unit == "of":
        return "all"
    return f"{row.sense} {_number(row, row.bound)}"


def _pairs(ratio: Ratio | None) -> tuple[str, str]:
    if ratio is None:
        return "", ""
    spread = f"{ratio.smallest:.2f} / {ratio.median:.2f} / {ratio.largest:.2f}"
    return f"{ratio.low:.2f} .. {ratio.high:.2f}", f"{spread} ({ratio.num_pairs})"


def demand_table(rows: Sequence[Row]) -> str:
    """Each row with its value, what is wanted, whether it holds, and the spread behind it."""
    lines = []
    for row in rows:
        measured = "not measured" if row.value is None else _number(row, row.value)
        lines.append([row.what, row.bucket, measured, _wanted(row), _HOLDS[row.holds], *_pairs(row.ratio)])
    header = ["", "bucket", "value", "wanted", "holds", "95 % interval", "pairs: min / median / max (number)"]
    return grid(header, lines, left=2)


def rate_table(runs: Sequence[Run], configs: Sequence[str]) -> str:
    """Tokens per second (harmonic mean) of each configuration in each bucket."""
    buckets = list(dict.fromkeys(run["bucket"] for run in runs))
    lines = []
    for config in configs:
        chosen = [stats.select(runs, config, bucket) for bucket in buckets]
        rates = [f"{stats.harmonic_mean([stats.rate(run) for run in some]):.1f}" if some else "-" for some in chosen]
        lines.append([config, *rates, *_speculation(stats.select(runs, config))])
    return grid(["tokens per second", *buckets, "tokens/round", "acceptance", "ms/step"], lines)


def _speculation(runs: Sequence[Run]) -> tuple[str, str, str]:
    """Tokens per round, acceptance, milliseconds per step; blanks for a peer."""
    meters = [run["meter"] for run in runs if "meter" in run]
    if not meters:
        return "", "", ""
    total = {name: sum(meter[name] for meter in meters) for name in meters[0]}
    acceptance = f"{100 * total['accepted'] / total['tested']:.0f} %" if total["tested"] else ""
    return f"{total['tokens'] / total['rounds']:.2f}", acceptance, f"{1000 * total['total_s'] / total['steps']:.2f}"


def latency_table(runs: Sequence[Run], configs: Sequence[str]) -> str:
    """Median milliseconds to the first token of each configuration in each bucket."""
    buckets = list(dict.fromkeys(run["bucket"] for run in runs))
    lines = []
    for config in configs:
        chosen = [sorted(run["ttft_s"] for run in stats.select(runs, config, bucket)) for bucket in buckets]
        lines.append([config, *(f"{1000 * times[len(times) // 2]:.1f}" if times else "-" for times in chosen)])
    return grid(["milliseconds to the first token", *buckets], lines)
