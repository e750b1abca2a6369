"""One certification from the first sample to the certificate: stages in order, state kept, failures turned to verdicts.

Invariant: a subject that breaks off costs no evidence: what was tested before it is in the certificate. An input that
can't be used is an error before or in the first batch, never a verdict.

Does not know: what the tests are, terminals.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from draftproof.certify import certificate, invariance, oracle, stages
from draftproof.certify.certificate import Certificate
from draftproof.certify.fit import Fit
from draftproof.certify.matrix import feature_matrix
from draftproof.certify.plan import Plan
from draftproof.certify.results import Result
from draftproof.certify.sequential import Watch
from draftproof.certify.state import StateFile
from draftproof.certify.subject import Subject
from draftproof.certify.types import LawReference, Reference, Sampler, SubjectFailed
from draftproof.errors import InvalidParams
from draftproof.protocols import Target

Progress = Callable[[str, int, int], None]  # stage, done, of


class Session:
    """`stages.Run` with its stages. Use `run`."""

    def __init__(
        self, sampler: Sampler, reference: Reference, plan: Plan, baseline: Sampler | None, state: Path | None
    ) -> None:
        self.plan = plan
        self.laws = reference if isinstance(reference, LawReference) else None
        self.baseline = baseline or (_sampling(reference))
        if self.laws is None and self.baseline is None:
            raise InvalidParams("a reference must know laws, or be a sampler of plain decoding")
        target = getattr(reference, "target", None)
        self._target: Target | None = target if getattr(sampler, "target", None) is target else None  # else another's
        self.exact = self._target is not None and bool(getattr(reference, "exact", False))
        self.drift: float | None = 0.0 if self.exact else getattr(reference, "drift", None)
        self._parties = {
            "subject": {"name": sampler.name, **dict(sampler.facts())},
            "reference": {"name": reference.name, **dict(reference.facts())},
        }
        self._file = StateFile(state, {"plan": plan.as_json(), **self._parties})
        self._stages: dict[str, Any] = self._file.load()
        self.subject = Subject(sampler, self._stages.get("subject"))
        self._progress: Progress = lambda *_: None

    def kept(self, stage: str) -> dict[str, Any]:
        """What a stage keeps of itself; JSON-ready."""
        found: dict[str, Any] = self._stages.setdefault(stage, {})
        return found

    def save(self) -> None:
        """To the disk, where a state file was asked for."""
        self._stages["subject"] = self.subject.state()
        self._file.save(self._stages)

    def progress(self, stage: str, done: int, of: int) -> None:
        """Tells whoever watches."""
        self._progress(stage, done, of)

    def run(self, progress: Progress) -> Certificate:
        """All stages, then the certificate."""
        self._progress, begin = progress, time.monotonic()
        results: list[Result] = []
        failure = None
        for name, stage in _STAGES.items():
            if name not in self.plan.tests:
                continue
            try:
                results += self._once(name, stage)
            except SubjectFailed as error:
                failure = f"{name}: {error}"
                results += _partial(self, name)
                break
        results.append(self.subject.endings())
        made = certificate.assemble(self.plan, results, self.subject.counts, failure, self._parties)
        made["versions"] = _versions()
        made["elapsed_s"] = round(time.monotonic() - begin, 1)
        return made

    def _once(self, name: str, stage: Callable[[Session], list[Result]]) -> list[Result]:
        """A stage's results, from the state where it is done."""
        kept = self.kept(name)
        if "results" not in kept:
            self.progress(name, 0, 1)
            kept["results"] = [result.as_json() for result in stage(self)]
            kept["drift"] = self.drift
            self.save()
        self.drift = kept["drift"]
        return [Result.from_json(value) for value in kept["results"]]

    def invariance(self) -> list[Result]:
        """Where the reference gives its target away."""
        if self._target is None:
            return []
        result, measured = invariance.check(self._target, thorough=self._target.vocab_size > 1000)
        self.drift = 0.0 if self.exact else max(measured, self.drift or 0.0)
        return [result]

    def oracle(self) -> list[Result]:
        """Of our own rules only: another engine's are not in this process."""
        if self._target is None:
            return []
        rule = "follow" if self.plan.greedy else self.plan.params.resolved_rule
        return [oracle.check(rule, self.plan.seed)] if rule in oracle.RULES else []


def _versions() -> dict[str, str | None]:
    """Of what decides a result."""
    found: dict[str, str | None] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("draftproof", "numpy", "openvino", "torch", "transformers"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _sampling(reference: Reference) -> Sampler | None:
    """The reference as a sampler of plain decoding, where it is one."""
    if not isinstance(reference, Sampler):
        return None
    return None if getattr(reference, "plain", reference) is None else reference


def _partial(session: Session, name: str) -> list[Result]:
    """What a stage that broke off had tested: its tests are fixed in size and filled up, so the rates hold."""
    kept = session.kept(name)
    if name != "fit" or "fit" not in kept:
        return []
    return stages.fit_results(session, Fit.restore(kept["fit"]), Watch.restore(kept["watch"]))


_STAGES: Mapping[str, Callable[[Session], list[Result]]] = {
    "oracle": Session.oracle,
    "invariance": Session.invariance,
    "identity": stages.same_text,
    "fit": stages.fit,
    "joint": stages.joint_law,
    "features": feature_matrix,
}


def run(
    sampler: Sampler,
    reference: Reference,
    plan: Plan,
    *,
    baseline: Sampler | None = None,
    state: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Certificate:
    """Certifies `sampler` against `reference`; the certificate is JSON-ready (`certificate.assemble`).

    reference: a `LawReference`, or a `Sampler` of plain decoding, or both in one. baseline: plain decoding, where the
    reference does not sample. state: a file that keeps a long run's progress; it goes when the certificate is made.
    Raises InputError for a plan or subject that can't be run; a subject that breaks off is a verdict.
    """
    made = carry_out(sampler, reference, plan, baseline=baseline, state=state, progress=progress)
    finish(made, state)
    return made


def carry_out(
    sampler: Sampler,
    reference: Reference,
    plan: Plan,
    *,
    baseline: Sampler | None = None,
    state: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Certificate:
    """As `run`, but the state stays: for whoever has to bring the certificate to the disk before he calls `finish`."""
    return Session(sampler, reference, plan, baseline, state).run(progress)


def finish(made: Certificate, state: Path | None) -> None:
    """The certificate is safe: the state goes, but for that of a subject that broke off, which may come back."""
    if state is not None and not certificate.broke_off(made):
        StateFile(state, {}).drop()
