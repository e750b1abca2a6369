"""B31 in the engine: the look-ahead never passes the context limit, the target's or the drafter's."""

from __future__ import annotations

import pytest

from draftproof.drafters.model import ModelDrafter
from draftproof.errors import PromptTooLong
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.types import SamplingParams

SHORT = ToyOptions(max_len=16, min_rows=2)
PARAMS = SamplingParams(max_new_tokens=100)


def target(options=SHORT):
    return HashTarget(9, seed=1, window=2, options=options)


def drafter(max_len=16):
    options = ToyOptions(max_len=max_len, min_rows=2)
    return ModelDrafter(target(options), PageLedger(256, 4), 9)


@pytest.mark.parametrize("length", [12, 13, 14, 15])
@pytest.mark.parametrize("own_limit", [16, 8, 13])
def test_the_case(length, own_limit, engine_of, play, truth):
    prompt = [i % 9 for i in range(length)]
    run = play(engine_of(target(), drafter(own_limit), gamma=8), [(prompt, PARAMS)])[0]
    assert (run.tokens, run.finish) == truth(target(), prompt, PARAMS)
    assert len(run.tokens) == 16 - length
    assert run.finish == "length"


def test_a_prompt_without_room_is_refused(engine_of, play):
    with pytest.raises(PromptTooLong, match="16"):
        play(engine_of(target(), drafter()), [([1] * 16, PARAMS)])


def test_batch_mates_keep_their_gamma(engine_of, play):
    long = ToyOptions(max_len=64, min_rows=2)
    full = target(long)
    engine = engine_of(full, ModelDrafter(target(long), PageLedger(256, 4), 9), gamma=8)
    near, far = play(engine, [([1] * 58, PARAMS), ([2, 3], SamplingParams(max_new_tokens=30))])
    assert len(near.tokens) == 6
    assert max(event.num_drafted for event in far.events) == 8
