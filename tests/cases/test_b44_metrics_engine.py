"""B44: rates that can't be impossible: drafted, tested and accepted are counted once, after the text was cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from draftproof.engine.collect import Collector
from draftproof.text.files import TokenizerFiles
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Event, Request, SamplingParams


def _event(drafted, accepted, finish=None):
    tested = min(drafted, accepted + 1)
    return Event(0, tuple(range(accepted + 1)), finish, num_accepted=accepted, num_drafted=drafted, num_tested=tested)


@pytest.fixture(scope="module")
def letters():
    """letters(rounds) -> Output of a request whose rounds were (drafted, accepted)."""
    spec = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(9)}, unk_token="w0"))
    tokenizer = Tokenizer(TokenizerFiles(Path("."), spec.to_str(), {}, None, None))

    def collect(rounds):
        request = Request(0, np.array([1], np.int32), SamplingParams(seed=1, max_new_tokens=None))
        collector = Collector(request, tokenizer, "scripted", 0.0)
        for index, (drafted, accepted) in enumerate(rounds):
            collector.take(_event(drafted, accepted, "length" if index == len(rounds) - 1 else None))
        return collector.output()

    return collect


def test_the_case(letters):
    output = letters([(4, 4), (4, 1), (0, 0)])
    found = output.speculation
    assert (found.drafted, found.accepted, found.rounds, found.drafting_rounds) == (8, 5, 3, 2)
    assert found.draft_acceptance_rate == 5 / 8
    assert found.acceptance == 5 / 6
    assert found.tokens_per_round == 8 / 3
    assert found.acceptance_by_position == (1.0, 0.5, 0.5, 0.5)


def test_without_drafts_there_is_no_rate(letters):
    found = letters([(0, 0), (0, 0)]).speculation
    assert found.acceptance is None
    assert found.draft_acceptance_rate is None
    assert found.tokens_per_round == 1.0
    assert found.acceptance_by_position == ()


@given(st.lists(st.integers(0, 6).flatmap(lambda g: st.tuples(st.just(g), st.integers(0, g))), min_size=1))
def test_rates_are_possible(letters, rounds):
    output = letters(rounds)
    found = output.speculation
    assert 0 <= found.accepted <= found.tested <= found.drafted
    assert found.accepted + found.rounds == len(output.token_ids)
    assert all(0 <= rate <= 1 for rate in found.acceptance_by_position)
    assert list(found.acceptance_by_position) == sorted(found.acceptance_by_position, reverse=True)
