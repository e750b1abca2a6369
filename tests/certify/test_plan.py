"""A plan: checked, JSON there and back, seeds that never meet."""

import json

import pytest

from draftproof.certify import Plan
from draftproof.errors import InputError
from draftproof.types import SamplingParams

PARAMS = SamplingParams(
    temperature=0.7, logit_bias={3: -1.5}, bad_words=((1, 2),), stop_ids=(4,), stop=("x",), rule="reject"
)
PLAN = Plan(((1, 2), (3,)), PARAMS, frozenset({4, 9}), tokens=5000, seed=3)


def test_there_and_back():
    assert Plan.from_json(json.loads(json.dumps(PLAN.as_json()))) == PLAN


def test_tokens_are_shared_out():
    assert PLAN.fit_tokens + PLAN.joint_texts * len(PLAN.joint_prompts) * 4 == PLAN.tokens
    assert Plan(((1,),), tests=("fit",)).fit_tokens == 20_000


def test_no_two_texts_share_a_seed():
    seeds = [PLAN.job(stage, n, (1,)).params.seed for stage in range(7) for n in (0, 1, 1 << 20, (1 << 24) + 1)]
    other = Plan(((1,),), PARAMS, seed=4).job(0, 0, (1,)).params.seed
    assert len({*seeds, other}) == len(seeds) + 1


def test_a_job_carries_every_stop():
    job = PLAN.job(1, 0, (1,), stop_ids=(7,), max_new_tokens=5)
    assert job.stop_ids == {4, 7, 9}
    assert job.params.logit_bias == {3: -1.5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": ()}, "at least one prompt"),
        ({"prompts": ((),)}, "none of them empty"),
        ({"tokens": 0}, "tokens must be"),
        ({"alpha": 1.0}, "alpha must be"),
        ({"max_tv": 0.0}, "max_tv must be"),
        ({"seed": 1 << 16}, "seed must be"),
        ({"tests": ("fit", "magic")}, "tests must be some of oracle, invariance"),
        ({"tests": ()}, "tests must be"),
    ],
)
def test_what_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        Plan(**{"prompts": ((1,),), **changes})


@pytest.mark.parametrize(
    "value", [{}, {"prompts": 3}, {**PLAN.as_json(), "magic": 1}, {**PLAN.as_json(), "params": {}}]
)
def test_what_is_no_plan(value):
    with pytest.raises(InputError):
        Plan.from_json(value)
