"""Certifying: is what a subject emits the target's law, on this model, on this machine?

    certificate = run(sampler, reference, Plan(prompts=[(1, 2, 3)]))

Does not know: command lines, how a report is shown on a terminal.
"""

from draftproof.certify.certificate import EXIT_CODES, Certificate, check_read, dumps
from draftproof.certify.engine import EngineReference, EngineSampler, engine_facts
from draftproof.certify.pit import pit
from draftproof.certify.plan import STAGES, Plan
from draftproof.certify.sequential import Watch
from draftproof.certify.session import run
from draftproof.certify.subject import FunctionSampler
from draftproof.certify.types import (
    SCHEMA,
    Depth,
    Job,
    LawReference,
    Reference,
    Round,
    Sample,
    Sampler,
    SubjectFailed,
)

__all__ = [
    "EXIT_CODES",
    "SCHEMA",
    "STAGES",
    "Certificate",
    "Depth",
    "EngineReference",
    "EngineSampler",
    "FunctionSampler",
    "Job",
    "LawReference",
    "Plan",
    "Reference",
    "Round",
    "Sample",
    "Sampler",
    "SubjectFailed",
    "Watch",
    "check_read",
    "dumps",
    "engine_facts",
    "pit",
    "run",
]
