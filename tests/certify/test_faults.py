"""Every planted fault is found and named; the same set-up without the fault is not."""

import pytest
from planted import CASES

from draftproof.certify import run

STOPS = frozenset({4})


def certify(case, toy, params, seed=0):
    drafter = case.drafter if isinstance(case.drafter, str) else case.drafter()
    made = toy(drafter, seed=11, **case.toy)
    ends = STOPS if case.name.startswith("ending") else frozenset()
    prompts = tuple(tuple(t % made.vocab_size for t in prompt) for prompt in made.plan().prompts)
    plan = made.plan(
        params=params(**case.params), tokens=case.tokens, tests=case.tests, stop_ids=ends, prompts=prompts, seed=seed
    )
    return run(made.sampler, made.reference, plan)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_fault_is_found_and_named(case, toy, params, monkeypatch):
    case.plant(monkeypatch)
    certificate = certify(case, toy, params)
    assert certificate["verdict"] == "fault", certificate["summary"]
    assert certificate["fault"]["kind"] in case.kinds, certificate["fault"]
