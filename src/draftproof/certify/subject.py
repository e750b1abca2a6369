"""A subject as the stages ask it: answers are checked for shape, and everything it says is counted once.

Endings are checked on every text of every stage; tokens are counted by source.

Does not know: tests of laws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftproof.certify import endings
from draftproof.certify.results import Result
from draftproof.certify.types import Job, Sample, Sampler, SubjectFailed
from draftproof.params import SamplingParams

_SHOWN = 5


class Subject:
    """The sampler under test, and what it has said so far."""

    def __init__(self, sampler: Sampler, state: Mapping[str, Any] | None = None) -> None:
        self._sampler = sampler
        self._vocab_size: int | None = getattr(sampler, "vocab_size", None)
        state = state or {}
        self._totals: Counter[str] = Counter(state.get("totals", {}))
        self._faults: list[Any] = list(state.get("faults", []))

    def sample(self, jobs: Sequence[Job]) -> list[Sample]:
        """The answers. Raises SubjectFailed for answers that are none."""
        samples = ask(self._sampler, jobs)
        found = endings.check("endings.texts", jobs, samples, self._vocab_size)
        self._totals.update({name: found.detail[name] for name in ("texts", "stopped", "inside_rounds")})
        self._totals["tokens"] += found.count
        self._faults = [*self._faults, *found.detail["faults"]][:_SHOWN]
        for sample in samples:
            self._count(sample)
        size = self._vocab_size
        if size is not None and any(not 0 <= token < size for sample in samples for token in sample.tokens):
            raise SubjectFailed(f"{self._sampler.name} gives ids that are not in the vocabulary of {size}")
        return samples

    def _count(self, sample: Sample) -> None:
        if sample.rounds is None:
            return
        self._totals["traced"] += 1
        for round_ in sample.rounds:
            self._totals["rounds"] += 1
            self._totals["drafted"] += round_.num_drafted
            self._totals["tested"] += round_.num_tested
            self._totals.update(round_.source(index) for index in range(round_.num_tokens))

    @property
    def counts(self) -> dict[str, int] | None:
        """Tokens by source, drafts; None where the subject tells of no rounds."""
        names = ("rounds", "drafted", "tested", "accepted", "correction", "bonus", "plain")
        if not self._totals["traced"]:
            return None
        return {"tokens": self._totals["tokens"], **{name: self._totals[name] for name in names}}

    def endings(self) -> Result:
        """Of all texts so far."""
        names = ("texts", "stopped", "inside_rounds")
        detail = {**{name: self._totals[name] for name in names}, "faults": self._faults}
        hypothesis = "nothing follows the end of a text"
        return Result("endings.texts", hypothesis, self._totals["tokens"], failed=bool(self._faults), detail=detail)

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"totals": dict(self._totals), "faults": self._faults}


def ask(sampler: Sampler, jobs: Sequence[Job]) -> list[Sample]:
    """One answer a job. Raises SubjectFailed for anything else."""
    samples = list(sampler.sample(jobs))
    if len(samples) != len(jobs):
        raise SubjectFailed(f"{sampler.name} gave {len(samples)} texts for {len(jobs)} prompts")
    for job, sample in zip(jobs, samples, strict=True):
        if sample.rounds is not None and sum(r.num_tokens for r in sample.rounds) != len(sample.tokens):
            raise SubjectFailed(f"{sampler.name} tells of rounds that don't add up to its text (job {job.number})")
    return samples


class FunctionSampler:
    """Any callable as a sampler: function(prompt ids, parameters with seed and length) -> new token ids."""

    def __init__(
        self,
        function: Callable[[list[int], SamplingParams], Sequence[int]],
        name: str = "callable",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._function, self._facts = function, dict(facts or {})

    def sample(self, jobs: Sequence[Job]) -> list[Sample]:
        """One call a job. An exception of the callable is a SubjectFailed."""
        try:
            texts = [self._function(list(job.prompt), job.params) for job in jobs]
        except Exception as error:
            raise SubjectFailed(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return [Sample(tuple(int(token) for token in text)) for text in texts]

    def facts(self) -> Mapping[str, Any]:
        """What was given."""
        return self._facts
