"""B26, B27, B30 in the engine: a text ends at the same token whatever gamma, drafter and place in the round."""

from __future__ import annotations

import pytest

from draftproof.drafters.model import ModelDrafter
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.none import NoneDrafter
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import CycleTarget, ToyOptions
from draftproof.types import SamplingParams

OPTIONS = ToyOptions(min_rows=2)
DRAFTERS = {
    "none": NoneDrafter,
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "model": lambda: ModelDrafter(CycleTarget(options=OPTIONS), PageLedger(256, 4), 8),
    "perfect": lambda: ScriptedDrafter(lambda item: [(int(item.tokens[-1]) + 1 + i) % 8 for i in range(16)]),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("gamma", range(7))
@pytest.mark.parametrize("stops", [{3}, {1}, {6}, {3, 5}, {7}])
def test_the_text_ends_at_the_first_end_id(drafter, gamma, stops, engine_of, play):
    engine = engine_of(CycleTarget(options=OPTIONS), DRAFTERS[drafter](), gamma=gamma)
    run = play(engine, [([0], SamplingParams(max_new_tokens=20))], stop_ids=stops)[0]
    assert run.tokens == list(range(1, min(stops) + 1))
    assert run.finish == "stop"
    assert [event.finish for event in run.events].count("stop") == 1


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("gamma", [1, 3, 8])
@pytest.mark.parametrize("cap", range(8))
def test_the_cap_is_exact(drafter, gamma, cap, engine_of, play):
    engine = engine_of(CycleTarget(options=OPTIONS), DRAFTERS[drafter](), gamma=gamma)
    run = play(engine, [([0], SamplingParams(max_new_tokens=cap, logprobs=0))])[0]
    assert run.tokens == [1, 2, 3, 4, 5, 6, 7][:cap]
    assert run.finish == "length"
    assert len(run.logprobs) == cap


@pytest.mark.parametrize(
    ("cap", "tokens", "finish"), [(5, [1, 2, 3], "stop"), (3, [1, 2, 3], "stop"), (2, [1, 2], "length")]
)
@pytest.mark.parametrize("gamma", [0, 1, 2, 5])
def test_stop_and_cap_in_one_run(cap, tokens, finish, gamma, engine_of, play):
    engine = engine_of(CycleTarget(options=OPTIONS), DRAFTERS["perfect"](), gamma=gamma)
    run = play(engine, [([0], SamplingParams(max_new_tokens=cap))], stop_ids={3})[0]
    assert (run.tokens, run.finish) == (tokens, finish)


def test_unlimited_ends_at_the_context(engine_of, play):
    options = ToyOptions(max_len=30, min_rows=2)
    run = play(
        engine_of(CycleTarget(options=options), DRAFTERS["perfect"]()), [([0], SamplingParams(max_new_tokens=None))]
    )[0]
    assert len(run.tokens) == 29
    assert run.finish == "length"
