"""Our engine as a subject: watching changes nothing, rounds add up, laws are those of a fresh forward."""

import numpy as np
import pytest
from setups import setup

from draftproof.certify import EngineReference, SubjectFailed
from draftproof.certify.engine import _clipped, hashes
from draftproof.certify.types import Round
from draftproof.errors import InvalidParams
from draftproof.types import Request


def jobs_of(plan, **changes):
    return [plan.job(1, n, prompt, max_new_tokens=12, **changes) for n, prompt in enumerate(plan.prompts)]


@pytest.mark.parametrize("number", [0, 3, 4, 40, 50])
def test_watching_changes_nothing_and_rounds_add_up(number):
    sampler, _, plan = setup(number)
    engine, jobs = sampler.engine, jobs_of(plan)
    samples = sampler.sample(jobs)
    assert type(engine.drafter).__name__ != "TracedDrafter"
    texts = {}
    for job in jobs:
        engine.submit(Request(job.number, np.array(job.prompt, np.int32), job.params, job.stop_ids))
    while engine.has_work:
        for event in engine.step():
            texts.setdefault(event.request_id, []).extend(event.tokens)
    assert [texts[job.number] for job in jobs] == [list(sample.tokens) for sample in samples]
    for sample in samples:
        rounds = sample.rounds
        assert sum(round_.num_tokens for round_ in rounds) == len(sample.tokens)
        assert [round_.step for round_ in rounds] == sorted(round_.step for round_ in rounds)
        place = 0
        for round_ in rounds:
            for index, depth in enumerate(round_.depths):
                token = sample.tokens[place + index]
                accepted = index < round_.num_accepted
                assert (depth.accepted is not None) == accepted
                assert not accepted or depth.tokens[depth.accepted] == token
                assert depth.law is None or depth.law.sum() == pytest.approx(1)
            place += round_.num_tokens


def test_laws_are_those_of_a_fresh_forward(logits_after):
    sampler, reference, plan = setup(1)
    (job, *_), params = jobs_of(plan), plan.params
    tokens = sampler.sample([job])[0].tokens
    for index, law in enumerate(list(reference.laws(job, tokens))):
        logits = logits_after(reference.target, [*job.prompt, *tokens[:index]])
        weights = np.exp(logits / params.temperature)
        kept = law > 0  # top-p leaves a part, in its old proportions
        assert law[kept] == pytest.approx(weights[kept] / weights[kept].sum(), abs=1e-12)
        assert law[tokens[index]] > 0
    assert list(reference.laws(job, ())) == []
    assert reference.ledger.free_pages == reference.target.num_pages


def test_processors_hold_in_the_reference():
    _, reference, plan = setup(0)
    (job, *_) = jobs_of(plan, logit_bias={0: -np.inf})
    assert all(law[0] == 0 for law in reference.laws(job, (1, 2, 1)))
    assert reference.logits(job, (1,))[0] == -np.inf


def test_a_reference_without_a_sampler_says_so():
    _, reference, plan = setup(0)
    with pytest.raises(SubjectFailed, match="knows laws only"):
        EngineReference(reference.target, reference.ledger).sample(jobs_of(plan))


def test_stop_strings_need_a_tokenizer():
    sampler, _, plan = setup(0)
    with pytest.raises(InvalidParams, match="need a tokenizer"):
        sampler.sample(jobs_of(plan, stop=("x",)))


def test_a_broken_row_is_a_subject_that_failed():
    sampler, _, plan = setup(0)
    nothing = dict.fromkeys(range(sampler.vocab_size), -np.inf)
    with pytest.raises(SubjectFailed, match="no token is possible"):
        sampler.sample(jobs_of(plan, logit_bias=nothing))
    assert sampler.sample(jobs_of(plan))  # and the engine goes on


def test_rounds_behind_a_cut_are_gone():
    rounds = (Round(3, 2, 3, 4), Round(2, 2, 2, 2), Round(1, 0, 0, 0))
    kept = [(r.num_tokens, r.num_accepted, r.num_tested) for r in _clipped(rounds, 4)]
    assert kept == [(3, 2, 3), (1, 1, 1)]


def test_hashes_are_of_what_decides(tmp_path):
    (tmp_path / "graph.bin").write_bytes(b"weights")
    (tmp_path / "notes.txt").write_text("no")
    found = hashes(tmp_path)
    assert list(found) == ["graph.bin"]
    (tmp_path / "graph.bin").write_bytes(b"weightz")
    assert hashes(tmp_path) != found
