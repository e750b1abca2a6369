"""What a certificate is made from: the contracts of a subject and of a reference, and what they hand over.

A *subject* (`Sampler`) is whatever is to be certified: prompts and seeds in, token ids out, and where it can, how each
token came about (`Round`). A *reference* says what the target's law is (`LawReference`), or is itself a sampler of
plain decoding (`Sampler`), and then laws are compared with laws by two samples.

Invariant: nothing here depends on an engine; arrays are NumPy, ids are the target's. A subject that can't honour a
parameter raises InputError, one that breaks off raises `SubjectFailed`: neither returns something else quietly.

Does not know: tests, statistics, engines, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from draftproof.errors import EngineError
from draftproof.params import SamplingParams
from draftproof.types import FinishReason, FloatArray, Siblings, TokenLogprobs

SCHEMA = 1  # of the certificate: raised when a field changes its meaning or goes; new fields do not raise it
VerdictName = Literal["lossless", "fault", "not_enough_evidence"]
Source = Literal["accepted", "correction", "bonus", "plain"]


class SubjectFailed(EngineError):
    """The subject or the reference died, stalled or stopped answering: what was sampled before it counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One text to be sampled. `params.seed` and `params.max_new_tokens` are set; bad words are ids.

    stop_ids: ids that end the text, those of the model and of the parameters, resolved.
    """

    number: int
    prompt: tuple[int, ...]
    params: SamplingParams
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Depth:
    """The candidates that stood at one depth of a round whose turn came, and what became of them.

    tokens: in the order they were judged. siblings: as of `types.Draft`. law: float[V] that they were drawn from, as
    reported by the drafter; None for "fixed" ones. accepted: index into tokens, or None after a refusal of all.
    informed: the candidates may know the random number that the emitted token is drawn with (the shared noise of rule
    `coupled`); a test must not let them choose what it looks at. chain: judged as a whole, by theorem 6.
    """

    tokens: tuple[int, ...]
    siblings: Siblings
    law: FloatArray | None
    accepted: int | None
    informed: bool = False
    chain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round of a text, after the cut at its end: the tokens it emitted, in order.

    num_tokens: emitted. num_accepted: of those, the first ones, accepted drafts. num_tested: places at which a draft
    was judged. num_drafted: drafted in all. depths: one for each tested place, or empty where the subject does not
    tell. step: order of the rounds of all texts of one `sample` call in time, where draft lengths may depend on the
    past of other texts; 0 where they do not.
    """

    num_tokens: int
    num_accepted: int
    num_tested: int
    num_drafted: int
    depths: tuple[Depth, ...] = ()
    step: int = 0

    def source(self, index: int) -> Source:
        """Where the token `index` of this round came from."""
        if index < self.num_accepted:
            return "accepted"
        if index < self.num_tested:
            return "correction"
        return "bonus" if self.num_drafted else "plain"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One text. tokens: with the id that ended it. rounds: None where the subject tells none; else they add up."""

    tokens: tuple[int, ...]
    finish: FinishReason | None = None
    rounds: tuple[Round, ...] | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    text: str | None = None


@runtime_checkable
class Sampler(Protocol):
    """What can be certified, or stand as the baseline. Texts of different seeds are independent."""

    name: str

    def sample(self, jobs: Sequence[Job]) -> Sequence[Sample]:
        """One text for each job, in order; same job, same law. Raises SubjectFailed, and InputError as the module says.

        It may run them in one batch; nothing may depend on which jobs come together but speed.
        """
        ...

    def facts(self) -> Mapping[str, Any]:
        """JSON-ready: model, settings, versions, hashes of weights and configuration, as far as known."""
        ...


@runtime_checkable
class LawReference(Protocol):
    """The target's law, by teacher forcing or by enumeration.

    It may have further attributes. target, exact: where the subject has the very same target and `exact` is True, the
    laws are the bits that the subject saw, and what they exclude can't happen. drift: the largest difference of logits
    between the subject's forwards and these, as measured; without it greedy differences are shown, not judged.
    """

    name: str

    def laws(self, job: Job, tokens: Sequence[int]) -> Iterator[FloatArray]:
        """For each i the law float[V] that decides tokens[i] after job.prompt and tokens[:i], under job.params.

        Each row sums to 1 within rounding and is valid until the next is asked for. Raises SubjectFailed.
        """
        ...

    def logits(self, job: Job, tokens: Sequence[int]) -> FloatArray:
        """float[V]: logits after the whole of `tokens`, with penalties, bias and bans, before the temperature."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """As of `Sampler`."""
        ...


Reference = LawReference | Sampler
