"""A certificate as a person reads it: rows of a table, a few lines, one page of HTML that opens offline.

Invariant: says nothing that is not in the certificate; all text is escaped; the page loads nothing and runs nothing.
Does not know: terminals, files.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

import jinja2

from draftproof.certify.certificate import Certificate

HEAD = ("test", "result", "looked at", "p", "finds 99 %")
WORDS = {
    "lossless": "lossless",
    "fault": "fault",
    "not_enough_evidence": "not enough evidence",
}


def rows(certificate: Certificate) -> list[list[str]]:
    """One row a test: name, result, count, p-value, smallest error found with 99 %."""
    return [
        [
            test["test"],
            result(test),
            str(test["count"]),
            "-" if test["p_value"] is None else _chance(test["p_value"]),
            _finds(test),
        ]
        for test in certificate["tests"]
    ]


def result(test: Mapping[str, Any]) -> str:
    """In one word."""
    if test["alarm"]:
        return "FAULT"
    if not test["counts"]:
        return "shown only"
    return "no fault"


def _chance(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def _finds(test: Mapping[str, Any]) -> str:
    if test["tv_99"] is not None:
        return f"TV {test['tv_99']:.3f}"
    share = test["detail"].get("share_99")
    return "-" if share is None else f"{share:.2%} of tokens"


def lines(certificate: Certificate) -> list[str]:
    """What the table does not say."""
    found = [f"verdict: {WORDS[certificate['verdict']]}", certificate["summary"]]
    found += [f"missing: {reason}" for reason in certificate["reasons"]]
    counts = certificate["speculation"]
    if counts:
        by_source = ", ".join(f"{counts[name]} {name}" for name in ("accepted", "correction", "bonus", "plain"))
        found.append(
            f"tokens: {counts['tokens']} ({by_source}); {counts['tested']} of {counts['drafted']} drafts judged"
        )
    if certificate["fault"]:
        found += [f"alarms: {', '.join(certificate['fault']['tests'])}", f"counter-example: {example(certificate)}"]
    return found


def example(certificate: Certificate) -> str:
    """The worst case, in one line."""
    worst = certificate["worst"]
    detail = worst["detail"]
    for name in ("differences", "faults", "changed"):
        if detail.get(name):
            return json.dumps(detail[name][0])
    if "cells" in detail and isinstance(detail["cells"], list):
        shown = f"{worst['test']}: numbers that should fill ten cells evenly fill them {detail['cells']}"
    else:
        shown = f"{worst['test']}: {json.dumps(detail)}"
    context = worst.get("context")
    return shown if context is None else f"{shown}; the furthest joint cell: {json.dumps(context)}"


def page(certificate: Certificate) -> str:
    """One HTML page."""
    source = importlib.resources.files("draftproof.certify").joinpath("certificate.html.jinja")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source.read_text(encoding="utf-8")).render(
        verdict=certificate["verdict"],
        word=WORDS[certificate["verdict"]],
        certificate=certificate,
        head=HEAD,
        rows=[(row, _bars(test)) for row, test in zip(rows(certificate), certificate["tests"], strict=True)],
        hypotheses={test["test"]: test["hypothesis"] for test in certificate["tests"]},
        lines=lines(certificate)[2:],
        parties=json.dumps({name: certificate.get(name) for name in ("subject", "reference", "versions")}, indent=2),
        plan=json.dumps(certificate["plan"]),
        example=example(certificate) if certificate["worst"] else None,
    )


def _bars(test: Mapping[str, Any]) -> list[int]:
    """Heights in per cent of the cells of a conditional fit, 50 where they are as expected."""
    cells = test["detail"].get("cells")
    if not isinstance(cells, list) or not sum(cells):
        return []
    return [min(100, round(50 * cell * len(cells) / sum(cells))) for cell in cells]
