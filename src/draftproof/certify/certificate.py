"""The certificate: verdict, tests, power, worst case with a reproduction, and with what it was made. Schema 1.

`verdict` is "fault" with any alarm; "not_enough_evidence" where the subject broke off, nothing was speculated, or an
error larger than asked would have been missed, each said in `reasons`; else "lossless", which means: no fault was
found, and one of the size stated would have been found with 99 %. It is evidence about this model, machine and
settings.

Invariant: JSON-ready, without NaN; a certificate read back is the one that was written. New fields may come within a
schema; none changes its meaning.

Does not know: files, how it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from draftproof.certify.diagnose import KINDS, Fault, diagnose
from draftproof.certify.plan import Plan
from draftproof.certify.results import Result, judged
from draftproof.certify.types import SCHEMA, VerdictName
from draftproof.errors import InputError

KIND = "draftproof.certificate"
_LEAST_SPECULATED = 100  # tested drafts without which nothing was tried
EXIT_CODES: dict[VerdictName, int] = {"lossless": 0, "fault": 1, "not_enough_evidence": 3}
Certificate = dict[str, Any]
# controls that JSON leaves as they are, lone surrogates, marks of writing direction, line separators: in strings only
_OBEYED = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def assemble(
    plan: Plan,
    results: Sequence[Result],
    counts: Mapping[str, int] | None,
    failure: str | None,
    parties: Mapping[str, Any],
) -> Certificate:
    """counts: tokens by source, None where the subject tells none. failure: why it broke off. parties: who."""
    final = judged(results, plan.alpha)
    fault = diagnose(final)
    reasons = _reasons(plan, final, counts, failure)
    verdict: VerdictName = "fault" if fault else "not_enough_evidence" if reasons else "lossless"
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "verdict": verdict,
        "summary": _summary(plan, verdict, final, fault, reasons),
        "reasons": reasons,
        "fault": None if fault is None else {**asdict(fault), "meaning": KINDS[fault.kind]},
        "worst": _worst(final, fault),
        "false_alarm_rate": plan.alpha,
        "p_values": sum(result.p_value is not None and result.counts for result in final),
        "tests": [result.as_json() for result in final],
        "speculation": None if counts is None else dict(counts),
        **parties,
        "plan": plan.as_json(),
    }


def _reasons(plan: Plan, results: Sequence[Result], counts: Mapping[str, int] | None, failure: str | None) -> list[str]:
    reasons = [] if failure is None else [f"broke off: {failure}"]
    by_name = {result.test: result for result in results}
    if counts is not None and counts.get("tested", 0) < _LEAST_SPECULATED:
        reasons.append(f"only {counts.get('tested', 0)} drafts were judged, {_LEAST_SPECULATED} are asked for")
    if plan.greedy:
        identity = by_name.get("identity.greedy")
        if identity is None or identity.detail["share_99"] > plan.max_tv:
            reasons.append("too few tokens were compared with plain greedy decoding: raise the number of tokens")
        if identity is not None and identity.detail.get("not_judged", 0):
            reasons.append(
                f"{identity.detail['not_judged']} of {identity.detail['texts']} texts differ from plain decoding's; "
                "whether by rounding or by a fault can't be told without the target's logits and their drift"
            )
        return reasons
    for name, most in (("fit.law", plan.max_tv), ("fit.tested", 2 * plan.max_tv)):
        found = by_name.get(name)
        if name == "fit.tested" and (counts is None or found is None):
            if counts is not None:
                reasons.append("too few tokens of tested places: raise the number of tokens")
            continue
        if found is None and any(name.startswith("joint.") for name in by_name):
            reasons += _joint_reasons(results, plan.max_tv)
        elif found is None or (found.tv_99 or 1.0) > most:
            shown = "none" if found is None or found.tv_99 is None else f"{found.tv_99:.3f}"
            reasons.append(
                f"{name} would have missed an error of {most:g} (found with 99 %: {shown}): raise the tokens"
            )
    return reasons


def _joint_reasons(results: Sequence[Result], most: float) -> list[str]:
    best = min((r.tv_99 or 1.0 for r in results if r.test.startswith("joint.")), default=1.0)
    return [] if best <= most else [f"the joint law would have missed an error below {best:.3f}, {most:g} is asked for"]


def _summary(
    plan: Plan, verdict: VerdictName, results: Sequence[Result], fault: Fault | None, reasons: Sequence[str]
) -> str:
    if fault is not None:
        return f"fault found: {KINDS[fault.kind]} (at {fault.place})"
    if verdict == "not_enough_evidence":
        return f"no fault found, but not enough evidence: {reasons[0]}"
    if plan.greedy:
        identity = next(r for r in results if r.test == "identity.greedy")
        share = identity.detail["share_99"]
        text = (
            f"no fault found in {identity.count} greedy tokens; a fault that spoils {share:.2%} of them would have been"
        )
        return f"{text} found with 99 %{_ties(identity)}"
    tested = {r.test: r.tv_99 for r in results if r.tv_99 is not None}
    law = tested.get("fit.law", min(tested.values(), default=1.0))
    return (
        f"no fault found; an error of total variation {law:.3f} in the law of every token would have been found with "
        f"99 %, at a false-alarm rate of {plan.alpha:g}"
    )


def _ties(identity: Result) -> str:
    """What a verdict on greedy texts leaves open: within the drift a difference is taken for rounding."""
    detail = identity.detail
    if not detail.get("ties"):
        return ""
    told = f"{detail['ties']} of {detail['texts']} texts part from plain decoding's at a near tie"
    return f"; {told}, the widest {detail['widest_tie']:.2g} of a logit, which is taken for rounding"


def _worst(results: Sequence[Result], fault: Fault | None) -> dict[str, Any] | None:
    """The alarm that is named, or the test that came closest to one."""
    alarms = [r for r in results if r.alarm]
    if fault is not None:
        shown = _shown(next(r for r in alarms if r.test == fault.test))
        return {**shown, "context": _context(results)}
    tested = [r for r in results if r.p_value is not None]
    return _shown(min(tested, key=lambda r: r.p_value or 0.0)) if tested else None


def _context(results: Sequence[Result]) -> dict[str, Any] | None:
    """The joint cell that is furthest from its chance, with its context: an error to be seen with the eye."""
    cells = [
        {"prompt": r.detail["prompt"], **r.detail["worst"], "texts": r.count}
        for r in results
        if r.test.startswith("joint.") and r.detail.get("worst")
    ]
    return max(cells, key=lambda cell: abs(cell["observed"] - cell["expected"]), default=None)


def _shown(result: Result) -> dict[str, Any]:
    shown = {"test": result.test, "hypothesis": result.hypothesis, "count": result.count, "p_value": result.p_value}
    return {**shown, "detail": result.detail}


def check_read(value: object, name: str) -> Certificate:
    """The certificate in a JSON value. Raises InputError for anything else, or a schema of the future."""
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise InputError(f"{name} holds no certificate")
    if value.get("schema") != SCHEMA:
        raise InputError(f"{name} has certificate schema {value.get('schema')!r}, this version reads {SCHEMA}")
    if not isinstance(value.get("verdict"), str) or value["verdict"] not in EXIT_CODES:
        raise InputError(f"{name} is no whole certificate: its verdict is {value.get('verdict')!r}")
    for part in ("plan", "subject", "reference"):
        if not isinstance(value.get(part), dict):
            raise InputError(f"{name} is no whole certificate: it has no {part}")
    return value


def broke_off(made: Certificate) -> bool:
    """True where the subject or the reference ended before the tests did."""
    return any(str(reason).startswith("broke off") for reason in made.get("reasons", ()))


def dumps(certificate: Certificate) -> str:
    """As it is written: readable, without NaN, and without characters that a terminal or an eye would obey."""
    text = json.dumps(certificate, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
