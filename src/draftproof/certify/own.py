"""Our own engine made ready to be certified: subject with its drafter, plain baseline, target as reference, prompts.

Both engines stand over one target and one ledger and take turns. The built-in prompts are short, some of them repeat
themselves so that lookup drafters have something to copy, and none is a chat: each model reads them alike.

Does not know: tests, command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from draftproof.certify.engine import EngineReference, EngineSampler, engine_facts
from draftproof.certify.plan import Plan
from draftproof.certify.session import Progress, carry_out
from draftproof.engine import prompts as prompting
from draftproof.engine.build import Built, build_each
from draftproof.engine.options import EngineOptions
from draftproof.errors import InvalidParams
from draftproof.params import SamplingParams

PROMPTS = (
    "north, east, south, west, north, east, south, west, north,",
    "The river was high that spring, and the old bridge",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n",
    "To bake bread you need flour, water, salt and",
    "Q: What is the capital of France?\nA: Paris.\nQ: What is the capital of Italy?\nA:",
    '{"name": "Ann", "age": 31}\n{"name": "Ben", "age": 27}\n{"name": "Cleo", "age": ',
    "She opened the letter, read the first line, and",
    "Monday: rain. Tuesday: rain. Wednesday: sun. Thursday: rain. Friday:",
)


class OwnEngine:
    """What `run` needs to certify our engine; build it with `prepare`."""

    def __init__(self, options: EngineOptions, built: Built, plain: Built) -> None:
        self.options = options
        self.built = built
        facts = {"kind": "engine", "options": asked(options), **engine_facts(built)}
        self.sampler = EngineSampler(built.engine, built.tokenizer, facts)
        baseline = EngineSampler(plain.engine, plain.tokenizer, name="plain decoding")
        self.reference = EngineReference(built.engine.target, built.ledger, baseline)

    def plan(self, texts: Sequence[str], params: SamplingParams, **settings: Any) -> Plan:
        """A plan over prompts as text. Raises InputError for what this model can't run."""
        tokenizer, vocab_size = self.built.tokenizer, self.built.engine.target.vocab_size
        resolved = replace(prompting.resolve(params, tokenizer, vocab_size), seed=None)
        prompts = tuple(tuple(prompting.encode(text, tokenizer, vocab_size, None).tolist()) for text in texts)
        ends = frozenset(end for end in prompting.stop_ids(params, tokenizer) if end < vocab_size)
        return Plan(prompts, resolved, ends, **settings)

    def certify(self, plan: Plan, *, state: Any = None, progress: Progress = lambda *_: None) -> dict[str, Any]:
        """The certificate; the state stays, as of `session.carry_out`."""
        return carry_out(self.sampler, self.reference, plan, state=state, progress=progress)


def prepare(options: EngineOptions, report: Callable[[str], None] = lambda _: None) -> OwnEngine:
    """Builds both engines. Raises InputError as `LLM` does."""
    plain = replace(options, drafter="none", draft_model=None, draft_weights="auto", exit_layer=None, tree=None)
    plain = replace(plain, gamma=None, cost_file=None)
    built = build_each([options, plain], report)
    return OwnEngine(options, built[0], built[1])


def asked(options: EngineOptions) -> dict[str, Any]:
    """Engine options, JSON-ready; `options_of` is the inverse. Where models are cached says nothing of what runs."""
    if not isinstance(options.drafter, str):
        raise InvalidParams("a certificate of a drafter object can't be run again: certify it by certify.run")
    value = asdict(options)
    del value["cache_dir"]
    return {
        name: None if each is None else each if isinstance(each, int) else str(each) for name, each in value.items()
    }


def options_of(value: dict[str, Any], cache_dir: str | None) -> EngineOptions:
    """The options that `asked` was taken of. Raises InvalidParams for anything else."""
    try:
        return EngineOptions(**value, cache_dir=cache_dir)
    except (TypeError, AttributeError) as error:
        raise InvalidParams(f"the certificate's engine options can't be used: {error}") from error
