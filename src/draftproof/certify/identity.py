"""The same text as plain decoding, where that is promised; each first difference is a tie or a fault.

Promised: at temperature 0 by every rule; at a temperature by the path-exact rules (`follow`, `coupled`) with the same
seed. At the first token that differs the logits behind both choices are shown. Greedy: a *tie* if the two logits are no
further apart than twice the drift that was measured (each of them can be off by it), else a *fault*. With bit-exact
numerics the drift is 0, and the lower id wins a tie: every difference is a fault. A drift that is not known judges
nothing. At a temperature a difference of scores and noise can't be read off the logits: it is a fault where numerics
are bit-exact, and not judged elsewhere.

Power: a fault that spoils each token with chance e is met among N tokens with chance 1 - (1-e)^N: 99 % at
e = 1 - 0.01^(1/N).

Does not know: engines, what a drift was measured on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.certify.results import Result
from draftproof.certify.types import Job, LawReference, Sample


def compare(
    name: str,
    jobs: Sequence[Job],
    ours: Sequence[Sample],
    plain: Sequence[Sample],
    judge: tuple[LawReference, float | None] | None,
) -> Result:
    """One result over all texts. judge: whose logits decide, and the drift measured; None where nothing is judged."""
    differences = [
        _difference(*each, judge) for each in zip(jobs, ours, plain, strict=True) if not _same(each[1], each[2])
    ]
    faults, ties = ([each for each in differences if each["verdict"] == kind] for kind in ("fault", "tie"))
    count = sum(_common(a.tokens, b.tokens) for a, b in zip(ours, plain, strict=True))
    judges = judge is not None and judge[1] is not None
    spoiled = 1 - 0.01 ** (1 / max(1, count))
    greedy = all(job.params.temperature == 0 for job in jobs)
    hypothesis = (
        f"the text equals plain {'greedy ' if greedy else ''}decoding's{'' if greedy else ' with the same seed'}"
    )
    detail = {
        "texts": len(jobs),
        "equal": len(jobs) - len(differences),
        "ties": len(ties),
        "widest_tie": max((abs(each["logit_plain"] - each["logit_ours"]) for each in ties), default=None),
        "faults": len(faults),
        "not_judged": sum(each["verdict"] == "not_judged" for each in differences),
        "share_99": spoiled,
        "differences": [*faults, *(each for each in differences if each["verdict"] != "fault")][:5],
    }
    return Result(name, hypothesis, count, failed=bool(faults), counts=judges, detail=detail)


def _same(ours: Sample, plain: Sample) -> bool:
    return tuple(ours.tokens) == tuple(plain.tokens) and (ours.finish is None or ours.finish == plain.finish)


def _common(ours: Sequence[int], plain: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(ours, plain, strict=False)) if a != b), min(len(ours), len(plain)))


def _difference(
    job: Job, ours: Sample, plain: Sample, judge: tuple[LawReference, float | None] | None
) -> dict[str, Any]:
    at = _common(ours.tokens, plain.tokens)
    found: dict[str, Any] = {"job": job.number, "position": at, "prompt": list(job.prompt), "seed": job.params.seed}
    found["place"] = _place(ours, at)
    if at == min(len(ours.tokens), len(plain.tokens)):
        ends = {"ours": [len(ours.tokens), ours.finish], "plain": [len(plain.tokens), plain.finish]}
        return {**found, "what": "the texts end differently", "ends": ends, "verdict": "fault"}
    tokens = (ours.tokens[at], plain.tokens[at])
    found |= {"what": "another token", "ours": tokens[0], "plain": tokens[1], "prefix": list(plain.tokens[:at])}
    if judge is None:
        return {**found, "verdict": "not_judged"}
    reference, drift = judge
    logits = reference.logits(job, plain.tokens[:at])
    gap = float(logits[tokens[1]]) - float(logits[tokens[0]])
    found |= {"logit_ours": float(logits[tokens[0]]), "logit_plain": float(logits[tokens[1]]), "drift": drift}
    if drift is None:
        return {**found, "verdict": "not_judged"}
    if job.params.temperature > 0:
        return {**found, "verdict": "not_judged" if drift else "fault"}
    return {**found, "verdict": "tie" if drift and abs(gap) <= 2 * drift else "fault"}


def _place(sample: Sample, at: int) -> str | None:
    """Source and place in its round of the token that differs."""
    begin = 0
    for round_ in sample.rounds or ():
        if at < begin + round_.num_tokens:
            index = at - begin
            return f"{round_.source(index)}@{index + 1}"
        begin += round_.num_tokens
    return None
