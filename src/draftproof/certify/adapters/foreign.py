"""A foreign subject made ready to be certified: a server or a peer, what it is held against, and a plan in its ids.

Held against: our own target where a model is given (laws), or the peer's own rows where it gives them (laws); and
always plain decoding by the same engine: a second server, the same server with its speculation switched off, or the
same peer without its speculation.

*Drift.* Greedy texts may differ by ties where two forwards round differently. By how much they do is measured where the
plain subject reports log-probabilities: the largest difference of an emitted token's, to that of the laws at the same
prefix. Else it is not known, and no first difference is judged.

Does not know: tests, command lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.certify.adapters.registry import PEER_TESTS, open_peer
from draftproof.certify.adapters.sampler import PeerReference, PeerSampler
from draftproof.certify.certificate import Certificate
from draftproof.certify.endpoint import Endpoint, EndpointOptions
from draftproof.certify.engine import EngineReference, engine_facts, hashes
from draftproof.certify.plan import Plan
from draftproof.certify.session import Progress, carry_out
from draftproof.certify.types import Job, LawReference, Reference, Sampler, SubjectFailed
from draftproof.engine import prompts as prompting
from draftproof.engine.build import Built, build
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.params import SamplingParams
from draftproof.text.tokenizer import Tokenizer

_DRIFT_TEXTS, _DRIFT_TOKENS, _LEAST_CHANCE = 4, 32, 1e-4
WITH_ROWS = ("transformers", "llama-cpp")  # peers that give their own logits
_SPECULATION = ("lookup", "assistant", "assistant_layers", "assistant_noise", "assistant_tokens", "ngram")


class TargetLaws:
    """Our target, teacher-forced, as the laws of another engine's model. Its own numerics promise nothing here."""

    exact = False

    def __init__(self, built: Built) -> None:
        self._laws = EngineReference(built.engine.target, built.ledger)
        self._facts = engine_facts(built)
        self.vocab_size = built.engine.target.vocab_size
        self.name = "our target, teacher-forced"
        self.drift: float | None = None
        self.laws, self.logits = self._laws.laws, self._laws.logits

    def facts(self) -> Mapping[str, Any]:
        """As of `LawReference`."""
        return {**self._laws.facts(), **self._facts}


class Foreign:
    """What `run` needs; close it, or use it as a context manager."""

    def __init__(self, subject: Any, plain: Any, laws: LawReference | None, tokenizer: Tokenizer) -> None:
        self.sampler: Sampler = subject
        self.baseline: Sampler = plain
        self._laws, self._tokenizer = laws, tokenizer
        self._opened = (subject, plain)
        if isinstance(laws, TargetLaws):
            subject.vocab_size = laws.vocab_size  # a server does not tell it

    def plan(self, texts: Sequence[str], params: SamplingParams, **settings: Any) -> Plan:
        """A plan over prompts as text. Raises InputError for what can't be run."""
        tokenizer = self._tokenizer
        size = tokenizer.vocab_size
        resolved = replace(prompting.resolve(params, tokenizer, size), seed=None)
        prompts = tuple(tuple(prompting.encode(text, tokenizer, size, None).tolist()) for text in texts)
        ends = frozenset(prompting.stop_ids(params, tokenizer))
        tests = settings.pop("tests", None) or PEER_TESTS
        if other := [name for name in tests if name not in PEER_TESTS]:
            raise InvalidParams(f"stage {other[0]!r} is of our own engine: another's has {', '.join(PEER_TESTS)}")
        return Plan(prompts, resolved, ends, tests=tuple(tests), **settings)

    def certify(self, plan: Plan, *, state: Path | None = None, progress: Progress = lambda *_: None) -> Certificate:
        """The certificate; the state stays, as of `session.carry_out`."""
        reference: Reference = self.baseline if self._laws is None else self._laws
        if isinstance(self._laws, TargetLaws) and isinstance(self.baseline, Endpoint):
            # who fails here fails in the first stage, too, and there it is a verdict; a server that gives no
            # log-probabilities can be certified all the same, its greedy differences are not judged then
            with suppress(SubjectFailed, InputError):
                self._laws.drift = drift_of(self.baseline, self._laws, plan)
        return carry_out(self.sampler, reference, plan, baseline=self.baseline, state=state, progress=progress)

    def close(self) -> None:
        """Servers go on, workers end."""
        for each in self._opened:
            each.close()

    def __enter__(self) -> Foreign:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def drift_of(plain: Endpoint, laws: LawReference, plan: Plan, length: int = _DRIFT_TOKENS) -> float:
    """Largest difference of an emitted token's log-probability, over a few texts of this length at temperature 1."""
    worst = 0.0
    for number in range(_DRIFT_TEXTS):
        prompt = plan.prompts[number % len(plan.prompts)]
        params = SamplingParams(temperature=1.0, max_new_tokens=length, seed=number, logprobs=0)
        job = Job(number, prompt, params, plan.stop_ids)
        (sample,) = plain.sample([job])
        for entry, law in zip(sample.logprobs or (), laws.laws(job, sample.tokens), strict=False):
            if law[entry.token] > _LEAST_CHANCE:
                worst = max(worst, abs(entry.logprob - math.log(law[entry.token])))
    return worst


def open_endpoint(
    options: EndpointOptions, baseline: str | None, target: EngineOptions | None, folder: str | Path | None = None
) -> Foreign:
    """A server against a second one (`baseline`), or draftproof's own against itself with speculation off.

    target: the model as laws. folder: of the tokenizer, where no target is given. Raises InputError.
    """
    built = None if target is None else build(replace(target, drafter="none"), lambda _: None)
    if built is None and folder is None:
        raise InvalidParams("a server's prompts need its tokenizer: give the model (or its folder)")
    tokenizer = built.tokenizer if built is not None else Tokenizer.from_folder(Path(str(folder)))
    options = replace(options, tokenizer=tokenizer)
    if baseline is None:
        options = replace(options, speculation=True)
    subject = Endpoint(options, "endpoint")
    off = replace(options, speculation=False) if baseline is None else replace(options, url=baseline, speculation=None)
    try:
        plain = Endpoint(off, "endpoint without speculation")
    except BaseException:
        subject.close()
        raise
    return Foreign(subject, plain, None if built is None else TargetLaws(built), tokenizer)


def open_engine(name: str, options: Mapping[str, Any], folder: str | Path, python: str | Path | None = None) -> Foreign:
    """A peer against itself without speculation; its own rows are the laws where it gives them.

    options: `model` is a folder or a file. folder: of its tokenizer. Raises InputError.
    """
    tokenizer = Tokenizer.from_folder(Path(folder))
    subject = open_peer(name, options, python=python)
    subject.files = hashes(Path(options["model"]))
    try:
        bare = {key: value for key, value in options.items() if key not in _SPECULATION}
        plain = open_peer(name, bare, python=python)
    except BaseException:
        subject.close()
        raise
    return Foreign(subject, plain, _own_laws(name, plain, tokenizer), tokenizer)


def _own_laws(name: str, plain: PeerSampler, tokenizer: Tokenizer) -> LawReference | None:
    if name not in WITH_ROWS:
        return None
    return PeerReference(plain.peer, plain, _own_drift(plain, tokenizer))


def _own_drift(plain: PeerSampler, tokenizer: Tokenizer) -> float | None:
    """Of a peer that measures it: one row, two, five, against all at once. None where it breaks off."""
    prompt = tuple(tokenizer.encode("Monday: rain. Tuesday: rain. Wednesday:"))
    job = Job(0, prompt, SamplingParams(max_new_tokens=_DRIFT_TOKENS, seed=0))
    try:
        (sample,) = plain.sample([job])
        found: Mapping[str, float] = plain.peer.drift([*prompt, *sample.tokens], len(prompt), [1, 2, 5])
    except SubjectFailed:  # the run that follows will say so, with a verdict
        return None
    return max(found.values())
