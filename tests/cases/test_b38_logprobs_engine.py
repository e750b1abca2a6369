"""B38 in the engine: one entry a token, of the right row, raw or processed, whatever the token's source."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.model import ModelDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import ConstTarget, HashTarget, ToyOptions
from draftproof.types import SamplingParams

OPTIONS = ToyOptions(min_rows=2)
LOGITS = np.log([1 / 2, 1 / 4, 1 / 8, 1 / 8])


@pytest.mark.parametrize(
    ("params", "own", "top"),
    [
        ({}, -0.693147, (-0.693147, -1.386294)),
        ({"temperature": 2.0, "top_k": 1}, -0.693147, (-0.693147, -1.386294)),
    ],
)
def test_the_case(params, own, top, engine_of, play, always):
    params = SamplingParams(max_new_tokens=9, logprobs=2, seed=1, **params)
    run = play(engine_of(ConstTarget(LOGITS, OPTIONS), always(0, 0, 0)), [([3], params)])[0]
    assert len(run.logprobs) == len(run.tokens) == 9
    for entry in run.logprobs:
        assert entry.logprob == pytest.approx(own, abs=1e-6)
        assert [value for _, value in entry.top] == pytest.approx(top, abs=1e-6)


def test_processed_follows_the_temperature(engine_of, play, always):
    params = SamplingParams(max_new_tokens=30, temperature=2.0, logprobs=1, logprobs_mode="processed", seed=5)
    run = play(engine_of(ConstTarget(LOGITS, OPTIONS), always(0, 0)), [([3], params)])[0]
    best = [entry.top[0][1] for entry in run.logprobs]
    assert best == pytest.approx([-0.995880] * 30, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_entry_is_the_teacher_forced_log_softmax(temperature, engine_of, play, logits_after):
    target = HashTarget(11, seed=4, window=3, options=OPTIONS)
    own = HashTarget(11, seed=4, window=3, jitter=0.5, options=OPTIONS)
    params = SamplingParams(max_new_tokens=40, temperature=temperature, logprobs=3, seed=2)
    run = play(engine_of(target, ModelDrafter(own, PageLedger(256, 4), 11)), [([1, 2], params)])[0]
    kinds = {(event.num_accepted > 0, event.num_accepted < event.num_drafted) for event in run.events}
    assert {(True, False), (True, True)} <= kinds  # full acceptance with a bonus, and corrections
    for index, entry in enumerate(run.logprobs):
        row = logits_after(HashTarget(11, seed=4, window=3, options=OPTIONS), [1, 2, *run.tokens[:index]])
        truth = row - np.log(np.exp(row - row.max()).sum()) - row.max()
        assert entry.token == run.tokens[index]
        assert entry.logprob == pytest.approx(truth[entry.token], abs=1e-10)
        assert [token for token, _ in entry.top] == np.argsort(-truth, kind="stable")[:3].tolist()
