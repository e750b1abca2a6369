"""From samples to a verdict: all stages, runs that go on after a kill, subjects that break off, unknown laws."""

import json

import numpy as np
import pytest
from setups import certify, setup

from draftproof.certify import FunctionSampler, Plan, Sample, SubjectFailed, dumps, run
from draftproof.errors import InputError, InvalidParams
from draftproof.types import SamplingParams

STAGES = ("oracle", "invariance", "identity", "fit", "joint", "features")


def number_of(drafter, rule):
    """A set-up without truncation."""
    from setups import DRAFTERS, RULES

    return 12 * DRAFTERS.index(drafter) + 4 * RULES.index(rule)


@pytest.mark.parametrize(("drafter", "rule"), [("model", "reject"), ("model", "coupled"), ("ngram", "follow")])
def test_every_stage_of_a_correct_engine(drafter, rule):
    made = certify(number_of(drafter, rule), tokens=2000)
    assert made["verdict"] == "lossless", made["summary"]
    assert "no fault found" in made["summary"]
    by_name = {test["test"]: test for test in made["tests"]}
    assert {name.partition(".")[0] for name in by_name} == {*STAGES, "sequential", "endings"}
    assert by_name["joint.context1"]["detail"]["cells"] > 1
    assert all(test["detail"]["equal"] == test["detail"]["texts"] for n, test in by_name.items() if "identity" in n)
    assert ("identity.seeded" in by_name) == (rule != "reject")
    assert by_name["fit.law"]["tv_99"] < 0.12
    assert made["speculation"]["accepted"] > 100
    assert json.loads(dumps(made))["schema"] == 1


def test_greedy_is_certified_by_identity():
    sampler, reference, plan = setup(number_of("model", "follow"), tokens=600)
    greedy = Plan(plan.prompts, SamplingParams(), tokens=600, text_tokens=16, batch=8)
    made = run(sampler, reference, greedy)
    assert made["verdict"] == "lossless", made["reasons"]
    assert "greedy" in made["summary"]
    assert not [test for test in made["tests"] if test["p_value"] is not None]


@pytest.mark.parametrize(
    ("drafter", "changes", "reason"),
    [
        ("model", {"tokens": 400, "max_tv": 0.05}, "raise the tokens"),
        ("none", {"tokens": 1500}, "drafts were judged"),
    ],
)
def test_too_little_is_no_verdict(drafter, changes, reason):
    made = certify(number_of(drafter, "reject"), tests=("fit",), **changes)
    assert made["verdict"] == "not_enough_evidence"
    assert any(reason in each for each in made["reasons"]), made["reasons"]


def strip(made):
    value = json.loads(dumps(made))
    del value["elapsed_s"]
    return value


def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    number, asked = number_of("model", "reject"), {"tests": ("identity", "fit", "joint", "features"), "tokens": 900}
    whole = run(*setup(number, **asked))
    state = tmp_path / "cert.json.part"
    for stop_at in (1, 1, 2):  # a few batches, then killed; again and again
        left = [stop_at]

        def kill(stage, done, of, left=left):
            left[0] -= done > 0 and stage == "fit"
            if not left[0]:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(*setup(number, **asked), state=state, progress=kill)
        assert state.exists()
    resumed = run(*setup(number, **asked), state=state)
    assert strip(resumed) == strip(whole)
    assert not state.exists()


def test_another_plan_does_not_go_on_with_it(tmp_path):
    state = tmp_path / "state"

    def kill(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(*setup(0), state=state, progress=lambda stage, done, of: kill() if done else None)
    with pytest.raises(InputError, match="another plan"):
        run(*setup(0, tokens=500), state=state)
    state.write_text("{}")
    with pytest.raises(InputError, match="delete it"):
        run(*setup(0), state=state)


class Dying:
    """Answers a number of calls, then no more."""

    name = "dying"

    def __init__(self, inner, calls):
        self._inner, self.calls = inner, calls

    def sample(self, jobs):
        self.calls -= 1
        if self.calls < 0:
            raise SubjectFailed("connection refused")
        return self._inner.sample(jobs)

    def facts(self):
        return {}


def test_a_subject_that_dies_leaves_what_it_said(tmp_path):
    sampler, reference, plan = setup(number_of("model", "reject"), tests=("fit",), tokens=600)
    state = tmp_path / "state"
    made = run(Dying(sampler, 3), reference, plan, state=state)
    assert made["verdict"] == "not_enough_evidence"
    assert made["reasons"][0] == "broke off: fit: connection refused"
    assert made["speculation"]["tokens"] == 3 * 8 * 16
    assert {test["test"] for test in made["tests"]} >= {"fit.law", "sequential.law"}
    assert state.exists()
    again = run(Dying(sampler, 100), reference, plan, state=state)  # it is back: the run goes on
    assert again["verdict"] == "lossless"


def test_a_fault_found_before_it_died_is_a_fault():
    _, reference, plan = setup(number_of("model", "reject"), tests=("fit",), tokens=900)
    likeliest = FunctionSampler(lambda prompt, params: [1] * (params.max_new_tokens or 1))
    made = run(Dying(likeliest, 4), reference, plan)
    assert made["verdict"] == "fault"
    assert made["fault"]["kind"] in ("law", "excluded_tokens")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda jobs: [], "0 texts for 8 prompts"),
        (lambda jobs: [Sample(()) for _ in jobs], "no text has a token"),
    ],
)
def test_answers_that_are_none(answer, words):
    _, reference, plan = setup(0, tests=("fit",))
    mute = Dying(None, 1)
    mute.sample = answer
    made = run(mute, reference, plan)
    assert any(words in reason for reason in made["reasons"])


def table_sampler(seed_offset, sharpen=1.0):
    """A callable that draws from a law of its own, by the seed."""

    def function(prompt, params):
        rng = np.random.default_rng([params.seed, seed_offset])
        tokens = list(prompt)
        for _ in range(params.max_new_tokens):
            weights = np.array([1.0, 2.0, 3.0, 4.0]) ** (sharpen if len(tokens) % 2 else 1.0)
            tokens.append(int(rng.choice(4, p=weights / weights.sum())))
        return tokens[len(prompt) :]

    return function


@pytest.mark.parametrize(("sharpen", "verdict"), [(1.0, "lossless"), (2.0, "fault")])
def test_a_callable_against_a_baseline_by_two_samples(sharpen, verdict):
    plan = Plan(((1, 2), (3,)), SamplingParams(temperature=1.0), tokens=20_000, max_tv=0.3, batch=64)
    subject = FunctionSampler(table_sampler(1, sharpen), "mine")
    made = run(subject, FunctionSampler(table_sampler(2), "plain"), plan)
    assert made["verdict"] == verdict, made["summary"]
    found = {test["test"] for test in made["tests"]}
    assert found == {"identity.greedy", "joint.context1", "joint.context2", "endings.texts"}
    assert made["speculation"] is None


def test_another_engine_is_not_held_to_our_bits():
    """It has another target, however alike: differences are shown, and what its law excludes is no certain fault."""
    sampler, reference, plan = setup(number_of("model", "coupled"), tests=("identity", "fit"), tokens=600)
    other = Dying(sampler, 1000)  # hides the engine behind it
    made = run(other, reference, plan)
    assert made["verdict"] == "lossless"
    shown = {test["test"]: test["counts"] for test in made["tests"]}
    assert (shown["identity.greedy"], shown["fit.support"], shown["fit.law"]) == (False, False, True)
    assert "identity.seeded" not in shown
    reference.drift = 1e-5
    made = run(other, reference, plan)
    assert {test["test"]: test["counts"] for test in made["tests"]}["identity.greedy"]


def test_a_callable_that_raises_is_a_subject_that_failed():
    def broken(prompt, params):
        raise RuntimeError("out of memory")

    made = run(FunctionSampler(broken), setup(0)[1], setup(0, tests=("fit",))[2])
    assert "RuntimeError: out of memory" in made["reasons"][0]


def test_a_reference_must_be_one():
    with pytest.raises(InvalidParams, match="know laws"):
        run(setup(0)[0], object.__new__(type("Nothing", (), {"name": "x", "facts": lambda self: {}})), setup(0)[2])


@pytest.mark.parametrize("token", [10**30, -1])
def test_ids_outside_the_vocabulary_are_a_fault_and_no_crash(token):
    _, reference, plan = setup(0, tests=("fit",))
    strange = FunctionSampler(lambda prompt, params: [token])
    strange.vocab_size = 4
    made = run(strange, reference, plan)
    assert made["verdict"] == "fault"
    assert made["fault"]["kind"] == "ending"
    assert "not in the vocabulary of 4" in made["reasons"][0]
    assert "no id of the vocabulary" in made["worst"]["detail"]["faults"][0]["what"]
