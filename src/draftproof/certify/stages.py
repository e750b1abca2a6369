"""The stages that sample: conditional fit, joint law, identity. Each goes on from its own saved state.

A stage takes the run and returns results; what it would not like to do again it keeps in `run.kept(stage)` and saves
after each batch.

Does not know: verdicts, files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from draftproof.certify import identity, joint
from draftproof.certify.fit import Fit
from draftproof.certify.places import CERTAIN, Seen, observe
from draftproof.certify.plan import JOINT_DEPTH, STAGES, Plan
from draftproof.certify.results import Result
from draftproof.certify.sequential import Watch
from draftproof.certify.subject import Subject, ask
from draftproof.certify.types import Job, LawReference, Round, Sample, Sampler, SubjectFailed

_BEGINNING = 8  # sampled tokens that make a context of its own out of a prompt
_GREEDY_TEXTS = 8  # beside a law that is sampled


class Run(Protocol):
    """What a stage may use."""

    plan: Plan
    subject: Subject
    laws: LawReference | None
    baseline: Sampler | None
    drift: float | None  # of logits; 0 where they are the same bits, None where it is not known
    exact: bool

    def kept(self, stage: str) -> dict[str, Any]: ...

    def save(self) -> None: ...

    def progress(self, stage: str, done: int, of: int) -> None: ...


def number(stage: str) -> int:
    """Of a stage: keys its seeds."""
    return 1 + STAGES.index(stage)


# -- conditional fit ---------------------------------------------------------------------------------------------------


def fit(run: Run) -> list[Result]:
    """The conditional fit, and the any-time test on the same numbers."""
    if run.laws is None or run.plan.greedy:
        return []
    plan, watch = run.plan, Watch(("law", "tested"))
    kept = run.kept("fit")
    if "watch" in kept:
        watch = Watch.restore(kept["watch"])

    def taken(numbers: Sequence[Seen]) -> None:
        for seen in numbers:
            if seen.test in ("law", "tested"):
                watch.add(seen.test, seen.number)
        kept["watch"] = watch.state()

    def jobs(batch: int) -> list[Job]:
        numbers = range(batch * plan.batch, (batch + 1) * plan.batch)
        length = {"max_new_tokens": plan.text_tokens}
        return [plan.job(number("fit"), n, plan.prompts[n % len(plan.prompts)], **length) for n in numbers]

    done = fill(run, "fit", kept, plan.fit_tokens, jobs, taken)
    return fit_results(run, done, watch)


def fit_results(run: Run, done: Fit, watch: Watch) -> list[Result]:
    """Of a fit that is full, or broke off."""
    results = done.results("fit", run.exact, np.random.default_rng([run.plan.seed, number("fit")]))
    detail = {"log_wealth": watch.log_wealth, "streams": ["law", "tested"]}
    hypothesis = "every emitted token has the target's law (any-time test: it may be looked at after each)"
    return [*results, Result("sequential.law", hypothesis, done.count, watch.p_value, detail=detail)]


def fill(
    run: Run,
    name: str,
    kept: dict[str, Any],
    num_tokens: int,
    jobs: Callable[[int], list[Job]],
    taken: Callable[[Sequence[Seen]], None] = lambda _: None,
) -> Fit:
    """Batch after batch until num_tokens tokens have been tested."""
    done = Fit.restore(kept["fit"]) if "fit" in kept else Fit(num_tokens)
    while not done.full:
        batch = kept.get("batches", 0)
        asked = jobs(batch)
        samples = run.subject.sample(asked)
        if not any(sample.tokens for sample in samples):
            raise SubjectFailed("no text has a token: nothing can be tested")
        taken(done.add(_numbers(run, asked, samples, batch)))
        done.end_batch()
        kept["fit"], kept["batches"] = done.state(), batch + 1
        run.save()
        run.progress(name, done.count, num_tokens)
    return done


def _numbers(run: Run, jobs: Sequence[Job], samples: Sequence[Sample], batch: int) -> list[Seen]:
    """Of all texts of one batch, in order of time."""
    assert run.laws is not None
    rng = np.random.default_rng([run.plan.seed, jobs[0].number, batch])
    numbers: list[Seen] = []
    for job, sample in zip(jobs, samples, strict=True):
        numbers += [_located(seen, job, sample) for seen in observe(sample, run.laws.laws(job, sample.tokens), rng)]
    return sorted(numbers, key=lambda seen: seen.step)


def _located(seen: Seen, job: Job, sample: Sample) -> Seen:
    """What can't happen, with the text it happened in."""
    if seen.test not in CERTAIN:
        return seen
    where = {"prompt": list(job.prompt), "seed": job.params.seed, "tokens": list(sample.tokens), **(seen.where or {})}
    return seen._replace(where=where)


# -- joint law ---------------------------------------------------------------------------------------------------------


def joint_law(run: Run) -> list[Result]:
    """One result a context: against the law where it is known, else against the baseline."""
    plan = run.plan
    if plan.greedy or not plan.joint_texts or (run.laws is None and run.baseline is None):
        return []
    return [_context(run, index) for index in range(len(plan.joint_prompts))]


def _context(run: Run, index: int) -> Result:
    plan, name = run.plan, f"joint.context{index + 1}"
    kept = run.kept("joint")

    def job(n: int) -> Job:
        return plan.job(number("joint"), (index << 24) + n, plan.prompts[index], max_new_tokens=JOINT_DEPTH)

    def texts(who: str, sample: Callable[[list[Job]], Sequence[Sample]], first: int, count: int) -> list[list[int]]:
        found: list[list[int]] = kept.setdefault(f"{index}.{who}", [])
        while len(found) < count:
            begin = first + len(found)
            asked = [job(n) for n in range(begin, min(begin + 2 * plan.batch, first + count))]
            found += [list(each.tokens) for each in sample(asked)]
            run.save()
            run.progress(name, len(found), count)
        return found

    count = plan.joint_texts
    if run.laws is not None:
        tree = joint.known_tree(run.laws, job(0), JOINT_DEPTH, count)
        result = joint.against_law(tree, texts("subject", run.subject.sample, 0, count), name)
    else:
        baseline = run.baseline
        assert baseline is not None

        def plain(asked: list[Job]) -> list[Sample]:
            return ask(baseline, asked)

        tree = joint.pilot_tree(texts("pilot", plain, 1 << 22, count // 4), JOINT_DEPTH, count)
        ours = texts("subject", run.subject.sample, 0, count)
        result = joint.against_baseline(tree, ours, texts("baseline", plain, 1 << 23, count), name)
    result.detail["prompt"] = list(plan.prompts[index])
    return result


# -- identity ----------------------------------------------------------------------------------------------------------


def path_exact(plan: Plan) -> bool:
    """True where the rule promises plain decoding's tokens for the same seed."""
    return plan.greedy or plan.params.resolved_rule in ("follow", "coupled")


def same_text(run: Run) -> list[Result]:
    """Greedy texts, and at a temperature those of a path-exact rule, against plain decoding."""
    if run.baseline is None:
        return []
    plan, results = run.plan, []
    count = -(-plan.tokens // plan.text_tokens) if plan.greedy else _GREEDY_TEXTS
    prompts = contexts(run, count)
    results.append(against_plain(run, "identity.greedy", prompts, plan.text_tokens, temperature=0.0))
    if not plan.greedy and path_exact(plan) and run.exact:
        results.append(against_plain(run, "identity.seeded", prompts, plan.text_tokens))
    return results


def contexts(run: Run, count: int) -> list[tuple[int, ...]]:
    """Distinct contexts: each prompt carried on by a sampled beginning of its own. Equal ones would show nothing."""
    plan = run.plan
    assert run.baseline is not None
    prompts = [plan.prompts[n % len(plan.prompts)] for n in range(count)]
    beginning = {"temperature": 1.0, "max_new_tokens": _BEGINNING, "min_new_tokens": _BEGINNING}
    asked = [plan.job(0, n, prompt, **beginning) for n, prompt in enumerate(prompts)]
    found: list[tuple[int, ...]] = []
    for begin in range(0, count, 2 * plan.batch):
        part = asked[begin : begin + 2 * plan.batch]
        found += [(*job.prompt, *sample.tokens) for job, sample in zip(part, ask(run.baseline, part), strict=True)]
    return found


def against_plain(run: Run, name: str, prompts: Sequence[tuple[int, ...]], length: int, **changes: Any) -> Result:
    """Subject and baseline with the same seeds."""
    assert run.baseline is not None
    judge = None if run.laws is None else (run.laws, run.drift)
    plan, asked = run.plan, identity_jobs(run, prompts, length, **changes)
    kept: list[Any] = run.kept("identity").setdefault(name, [])
    while len(kept) < len(asked):
        part = asked[len(kept) : len(kept) + plan.batch]
        both = zip(run.subject.sample(part), ask(run.baseline, part), strict=True)
        kept += [[_plainly(ours), _plainly(plain)] for ours, plain in both]
        run.save()
        run.progress(name, len(kept), len(asked))
    pairs = [[Sample(tuple(t), f, _rounds(r)) for t, f, r in pair] for pair in kept]
    return identity.compare(name, asked, [p[0] for p in pairs], [p[1] for p in pairs], judge)


def identity_jobs(run: Run, prompts: Sequence[tuple[int, ...]], length: int, **changes: Any) -> list[Job]:
    """A text a prompt; what is changed changes no seed."""
    stage = number("identity")
    return [run.plan.job(stage, n, prompt, max_new_tokens=length, **changes) for n, prompt in enumerate(prompts)]


def _plainly(sample: Sample) -> list[Any]:
    """JSON-ready: tokens, finish, and of each round what tells places apart."""
    rounds = [[r.num_tokens, r.num_accepted, r.num_tested, r.num_drafted] for r in sample.rounds or ()]
    return [list(sample.tokens), sample.finish, rounds]


def _rounds(counts: list[list[int]]) -> tuple[Round, ...] | None:
    return tuple(Round(tokens, accepted, tested, drafted) for tokens, accepted, tested, drafted in counts) or None
