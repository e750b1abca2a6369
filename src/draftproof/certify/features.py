"""Feature matrix: what each sampling parameter does under speculation, against what it does without.

One small set of texts a feature, with the parameter aimed at tokens the model really says (found in a pilot of plain
texts), so that it does something. At temperature 0 the text must be plain decoding's own. At a temperature, where the
rule promises the same text for the same seed, too; else the tokens are tested against the law with that parameter, the
features that look at the history (penalties, bias, bans, a minimum length) together, and those that cut a law together.

Does not know: engines, statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.certify.results import Result
from draftproof.certify.types import Job, LawReference, Sample

HISTORY = ("repetition_penalty", "presence_and_frequency", "logit_bias", "bad_words", "min_new_tokens")
TRUNCATION = ("top_k", "top_p", "min_p")
ENDINGS = ("stop_ids",)
FEATURES = (*HISTORY, *TRUNCATION, *ENDINGS)

_TOLERANCE = 1e-4  # of log-probabilities where logits are the same bits: they went through float32 once


def common_tokens(texts: Sequence[Sequence[int]], count: int = 8) -> list[int]:
    """The tokens said most often, ties to the lower id; repeated to `count`."""
    counts = Counter(token for text in texts for token in text)
    best = [token for token, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0]))]
    return (best * count)[:count] if best else []


def changes(feature: str, common: Sequence[int], ends: Sequence[int] = ()) -> dict[str, Any]:
    """Parameters that switch a feature on. ends: tokens that end a text where it is to end."""
    often = list(common)
    table: Mapping[str, dict[str, Any]] = {
        "repetition_penalty": {"repetition_penalty": 1.3},
        "presence_and_frequency": {"presence_penalty": 0.6, "frequency_penalty": 0.4},
        "logit_bias": {"logit_bias": {often[0]: -1.5, often[1]: 1.0}},
        "bad_words": {"bad_words": ((often[0], often[1]), (often[2], often[3]), (often[0], often[0]))},
        "min_new_tokens": {"min_new_tokens": 8, "stop_ids": tuple(ends or often[4:6])},
        "top_k": {"top_k": 8},
        "top_p": {"top_p": 0.8},
        "min_p": {"min_p": 0.1},
        "stop_ids": {"stop_ids": tuple(ends or often[5:7])},
    }
    return table[feature]


def check_seeds(
    name: str, jobs: Sequence[Job], first: Sequence[Sample], again: Sequence[Sample], promised: bool
) -> Result:
    """The same seed says the same again, in another order of the batch; other seeds say something else."""
    changed = [
        {"job": job.number, "prompt": list(job.prompt), "seed": job.params.seed}
        for job, one, two in zip(jobs, first, again, strict=True)
        if one.tokens != two.tokens
    ]
    by_prompt: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for job, sample in zip(jobs, first, strict=True):
        by_prompt.setdefault(job.prompt, []).append(tuple(sample.tokens))
    alike = sum(len(texts) > 1 and len(set(texts)) == 1 for texts in by_prompt.values())
    detail = {"changed": changed[:3], "prompts_that_ignore_seeds": alike}
    hypothesis = "same seed, same text, whatever runs beside it"
    return Result(name, hypothesis, len(jobs), failed=bool(changed), counts=promised, detail=detail)


def check_logprobs(
    name: str, jobs: Sequence[Job], samples: Sequence[Sample], reference: LawReference, exact: bool
) -> Result:
    """The reported log-probability of every token, against the reference's raw logits at its prefix."""
    worst, count, missing = 0.0, 0, 0
    for job, sample in zip(jobs, samples, strict=True):
        reported = sample.logprobs or ()
        missing += len(reported) != len(sample.tokens)
        laws = reference.laws(job, sample.tokens)
        for token, entry, law in zip(sample.tokens, reported, laws, strict=False):
            said = entry.logprob if entry.token == token else float("inf")
            worst = max(worst, abs(said - _log(law[token])))
            count += 1
    failed = bool(missing) or (exact and worst > _TOLERANCE)
    detail = {"largest_difference": worst if worst < float("inf") else None, "texts_without": missing}
    return Result(name, "log-probabilities are those of the token's own row", count, failed=failed, detail=detail)


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf
