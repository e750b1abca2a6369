"""B06 b: a row of NaN ends its own request with an error; batch mates are unchanged, no odd token is ever emitted."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.models.toy import TableTarget, ToyOptions
from draftproof.types import SamplingParams

OPTIONS = ToyOptions(min_rows=2)


def table(bad):
    rows = np.roll(np.eye(6), 1, axis=1) * 3.0
    rows[4] = bad
    return TableTarget(rows, OPTIONS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_only_the_broken_request_ends(bad, temperature, engine_of, play, truth, always):
    healthy = SamplingParams(max_new_tokens=12, temperature=temperature, seed=1, logit_bias={4: -np.inf})
    broken = SamplingParams(max_new_tokens=12, temperature=0.0, seed=1)
    engine = engine_of(table(bad), always(1, 2, 3))
    sick, well = play(engine, [([1], broken), ([1], healthy)])
    assert sick.finish == "error"
    assert sick.tokens == [2, 3, 4]
    assert "broken" in sick.error
    assert (well.tokens, well.finish) == truth(table(0.0), [1], healthy)
    assert all(0 <= token < 6 for token in well.tokens + sick.tokens)
    assert all(event.tokens or event.finish == "error" for event in sick.events)


def test_a_draft_behind_a_broken_row_is_not_accepted(engine_of, play, always):
    run = play(engine_of(table(np.nan), always(3, 4, 5, 0)), [([2, 2], SamplingParams(max_new_tokens=12))])[0]
    assert run.finish == "error"
    assert run.tokens == [3, 4]
