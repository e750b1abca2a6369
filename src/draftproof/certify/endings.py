"""Texts end where they must: nothing after a stop id, no id outside the vocabulary, no token over the cap.

Certain findings: none of this can happen in an engine that is right. What is counted beside faults is how often an
ending fell inside a round, with accepted drafts before it: without such cases nothing was tried.

Does not know: laws, stop strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.certify.results import Result
from draftproof.certify.types import Job, Sample


def check(name: str, jobs: Sequence[Job], samples: Sequence[Sample], vocab_size: int | None) -> Result:
    """One result over all texts."""
    faults = [fault for job, sample in zip(jobs, samples, strict=True) for fault in _faults(job, sample, vocab_size)]
    detail = {
        "texts": len(jobs),
        "stopped": sum(sample.finish == "stop" for sample in samples),
        "inside_rounds": sum(_inside(sample) for sample in samples),
        "faults": faults[:5],
    }
    count = sum(len(sample.tokens) for sample in samples)
    return Result(name, "nothing follows the end of a text", count, failed=bool(faults), detail=detail)


def _faults(job: Job, sample: Sample, vocab_size: int | None) -> list[dict[str, Any]]:
    params, tokens = job.params, sample.tokens
    where = {"job": job.number, "prompt": list(job.prompt), "seed": params.seed, "tokens": list(tokens)}
    found = []
    for index, token in enumerate(tokens):
        if token < 0 or (vocab_size is not None and token >= vocab_size):
            found.append({**where, "what": f"token {index} is {token}, which is no id of the vocabulary"})
    early = [i for i, token in enumerate(tokens[:-1]) if token in job.stop_ids and i >= params.min_new_tokens]
    if early:
        found.append({**where, "what": f"the text goes on after the stop id {tokens[early[0]]} at token {early[0]}"})
    if params.max_new_tokens is not None and len(tokens) > params.max_new_tokens:
        found.append({**where, "what": f"{len(tokens)} tokens over the cap of {params.max_new_tokens}"})
    soon = [i for i, token in enumerate(tokens[: params.min_new_tokens]) if token in job.stop_ids]
    if soon:
        found.append({**where, "what": f"the stop id {tokens[soon[0]]} before the minimum length"})
    if not tokens and params.max_new_tokens != 0:
        found.append({**where, "what": "no token at all"})
    stopped = bool(tokens) and tokens[-1] in job.stop_ids
    if sample.finish is not None and stopped and sample.finish != "stop" and len(tokens) > params.min_new_tokens:
        found.append({**where, "what": f"a text that ends with a stop id is said to end with {sample.finish!r}"})
    return found


def _inside(sample: Sample) -> bool:
    """True where the end came as an accepted draft."""
    if sample.finish != "stop" or not sample.rounds:
        return False
    last = sample.rounds[-1]
    return last.num_accepted == last.num_tokens > 0
