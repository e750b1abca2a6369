"""The stage that runs the feature matrix.

Does not know: what the features are, verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from draftproof.certify import features
from draftproof.certify.results import Result
from draftproof.certify.stages import Run, against_plain, contexts, fill, identity_jobs, number, path_exact
from draftproof.certify.subject import ask
from draftproof.certify.types import Job
from draftproof.params import SamplingParams

_TEXTS, _LENGTH = 4, 32
_ENDING_TEXTS = 8
_FIT_SHARE, _FIT_LEAST = 20, 600


def feature_matrix(run: Run) -> list[Result]:
    """Identity, law, seeds and log-probabilities, with each parameter on."""
    if run.laws is None or run.baseline is None:
        return []
    prompts = contexts(run, _TEXTS)
    common = _common(run, prompts)
    if not common:
        return []
    results = []
    for index, feature in enumerate(features.FEATURES):
        ending = feature in ("stop_ids", "min_new_tokens")
        starts = run.plan.prompts[:_ENDING_TEXTS] if ending else prompts
        changes = features.changes(feature, common, _ends(run, starts) if ending else ())
        results.append(_identity(run, feature, starts, changes))
        run.progress("features", index + 1, len(features.FEATURES))
    results += _seeds(run, prompts)
    results += _logprobs(run, prompts)
    if not run.plan.greedy:
        results += _fit(run, "history", features.HISTORY, common)
        results += _fit(run, "truncation", features.TRUNCATION, common)
    return results


def _common(run: Run, prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """Tokens that the model says often after these prompts, its own ends left out."""
    assert run.baseline is not None
    plan, stage = run.plan, number("features")
    jobs = [plan.job(stage, n, prompt, max_new_tokens=_LENGTH) for n, prompt in enumerate(prompts)]
    texts = [[t for t in sample.tokens if t not in plan.stop_ids] for sample in ask(run.baseline, jobs)]
    return features.common_tokens(texts)


def _ends(run: Run, prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """Tokens from the middle of the very texts that will be compared: each of them then ends at one, or before."""
    assert run.baseline is not None
    jobs = identity_jobs(run, prompts, _LENGTH, **_mode(run))
    texts = [sample.tokens for sample in ask(run.baseline, jobs)]
    return sorted({text[len(text) // 2] for text in texts if text} - run.plan.stop_ids)


def _mode(run: Run) -> dict[str, float]:
    """At temperature 0; at the plan's own where the same text is promised."""
    seeded = not run.plan.greedy and path_exact(run.plan) and run.exact
    return {} if seeded else {"temperature": 0.0}


def _identity(run: Run, feature: str, prompts: Sequence[tuple[int, ...]], changes: dict[str, object]) -> Result:
    return against_plain(run, f"features.identity.{feature}", prompts, _LENGTH, **_mode(run), **changes)


def _seeds(run: Run, prompts: Sequence[tuple[int, ...]]) -> list[Result]:
    plan, stage = run.plan, number("features")
    jobs = [plan.job(stage, (1 << 20) + n, prompts[n // 2], max_new_tokens=_LENGTH) for n in range(2 * len(prompts))]
    first = run.subject.sample(jobs)
    again = run.subject.sample(jobs[::-1][: len(jobs) - 1])[::-1]  # another order, one neighbour less
    promised = path_exact(plan) and run.exact
    return [features.check_seeds("features.seeds", jobs[1:], first[1:], again, promised)]


def _logprobs(run: Run, prompts: Sequence[tuple[int, ...]]) -> list[Result]:
    """Raw log-probabilities: the law at temperature 1 without parameters."""
    assert run.laws is not None
    plan, stage = run.plan, number("features")
    jobs = [
        plan.job(stage, (2 << 20) + n, prompt, max_new_tokens=_LENGTH, logprobs=0, logprobs_mode="raw")
        for n, prompt in enumerate(prompts)
    ]
    samples = run.subject.sample(jobs)
    raw = [replace(job, params=_untouched(job)) for job in jobs]
    return [features.check_logprobs("features.logprobs", raw, samples, run.laws, run.exact)]


def _untouched(job: Job) -> SamplingParams:
    """Parameters under which the law is the softmax of the untouched logits."""
    return SamplingParams(temperature=1.0, max_new_tokens=job.params.max_new_tokens, seed=job.params.seed)


def _fit(run: Run, group: str, names: Sequence[str], common: Sequence[int]) -> list[Result]:
    plan, stage = run.plan, number("features")
    num_tokens = max(_FIT_LEAST, plan.tokens // _FIT_SHARE)
    offset = (3 + (group == "truncation")) << 20

    def jobs(batch: int) -> list[Job]:
        made = []
        for n in range(batch * plan.batch, (batch + 1) * plan.batch):
            changes = features.changes(names[n % len(names)], common)
            prompt = plan.prompts[n // len(names) % len(plan.prompts)]
            made.append(plan.job(stage, offset + n, prompt, max_new_tokens=_LENGTH, **changes))
        return made

    kept = run.kept("features").setdefault(group, {})
    done = fill(run, f"features.{group}", kept, num_tokens, jobs)
    return done.results(f"features.{group}", run.exact, np.random.default_rng([plan.seed, offset]))
