"""Invariance: do a row's logits depend on draft length, batch or chunking, and by how much? For each kernel setting.

The self-check of `models.selfcheck` under the declared numerics, and once more with rows as narrow as they come where
the target knows such a setting. Where bits are declared equal, a difference is a fault; elsewhere the largest one is
the drift that the triage of `identity` goes by.

Does not know: sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.certify.results import Result
from draftproof.models import selfcheck
from draftproof.models.selfcheck import Finding
from draftproof.protocols import Target


def check(target: Target, *, thorough: bool) -> tuple[Result, float]:
    """The result, and the drift of the declared setting in logits."""
    examine = selfcheck.full if thorough else selfcheck.quick
    findings = examine(target)
    settings = {target.numerics: summary(findings)}
    if target.numerics == "invariant" and target.min_rows > 1:
        settings["fast"] = _narrow(target)
    drift = max((finding.drift for finding in findings), default=0.0)
    declared = target.numerics == "invariant"
    hypothesis = "a row's logits do not depend on draft length, batch or chunking" + (
        ", to the bit" if declared else ""
    )
    failed = declared and not all(finding.equal for finding in findings)
    detail = {"settings": settings, "drift": drift}
    return Result("invariance.logits", hypothesis, len(findings), failed=failed, counts=declared, detail=detail), drift


def _narrow(target: Target) -> dict[str, Any]:
    """The same with single rows."""
    with selfcheck.narrow(target):
        return summary(selfcheck.quick(target))


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """JSON-ready: how many checks, how many equal to the bit, the largest drift, the first flipped choice."""
    worst = max(findings, key=lambda finding: finding.drift, default=None)
    return {
        "checks": len(findings),
        "bit_equal": sum(finding.equal for finding in findings),
        "largest_drift": worst.drift if worst else 0.0,
        "largest_drift_at": worst.what if worst and worst.drift else None,
        "flipped_choices": sum(finding.flipped for finding in findings),
        "first_flip_at": next((finding.what for finding in findings if finding.flipped), None),
    }
