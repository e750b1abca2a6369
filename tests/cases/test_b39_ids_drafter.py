"""B39, the drafter's part: what is drawn, reported and tested is in target ids, whatever ids the drafter has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.drafters.draft_vocab import DraftVocab, ids_from_offsets
from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.model import ModelDrafter
from draftproof.errors import PairingError
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import ConstTarget, TableTarget
from draftproof.noise import PhiloxNoise
from draftproof.rules.reject import residual
from draftproof.types import SamplingParams, StepItem

NOISE = PhiloxNoise()
RULES = ("reject", "coupled", "follow")


def step(seed, rule="reject", budget=3, tokens=(1, 3), **params):
    params = SamplingParams(seed=seed, temperature=params.pop("temperature", 1.0), rule=rule, **params)
    return StepItem(0, np.array(tokens, np.int32), len(tokens), 1, 1, budget, params, seed)


def drafter(probabilities, vocab_size, kind=ModelDrafter, **options):
    with np.errstate(divide="ignore"):
        return kind(ConstTarget(np.log(probabilities)), PageLedger(256, 4), vocab_size, **options)


def drafts(made, **options):
    return [made.propose([step(seed, **options)], NOISE)[0] for seed in range(200)]


def test_case_a_the_mapped_law_and_the_rule_on_it():
    for draft in drafts(drafter([0.75, 0.25], 4, mapping=[1, 3])):
        assert np.allclose(draft.laws, [[0, 0.75, 0, 0.25]] * 3, atol=1e-15)
        assert set(draft.tokens.tolist()) <= {1, 3}
    target_law = np.array([0.1, 0.4, 0.2, 0.3])
    assert target_law[1] / draft.laws[0][1] == pytest.approx(8 / 15)
    assert target_law[3] / draft.laws[0][3] >= 1
    assert np.allclose(residual(target_law, draft.laws[0]), [2 / 7, 0, 4 / 7, 1 / 7])


def test_case_b_a_larger_draft_vocabulary_is_masked_before_the_draw():
    wanted = [1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 8, 1 / 8]
    seen = set()
    for draft in drafts(drafter([0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], 6)):
        assert np.allclose(draft.laws, [wanted] * 3, atol=1e-15)
        seen |= set(draft.tokens.tolist())
    assert seen == set(range(6))


def test_case_b_a_smaller_draft_vocabulary_is_padded_with_zeros():
    for draft in drafts(drafter([0.4, 0.3, 0.2, 0.1], 6)):
        assert np.allclose(draft.laws, [[0.4, 0.3, 0.2, 0.1, 0, 0]] * 3, atol=1e-15)
        assert draft.tokens.max() < 4


@pytest.mark.parametrize("kind", [ModelDrafter, FixedTreeDrafter])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("params", [{}, {"temperature": 0.0}, {"presence_penalty": 0.3}, {"top_k": 2}])
def test_no_id_outside_under_any_rule(kind, rule, params):
    """The drafter's favourites are ids that the target lacks; penalties and cuts see target ids only."""
    padded = drafter([0.02, 0.03, 0.05, 0.1, 0.3, 0.5], 4, kind)
    mapped = drafter([0.75, 0.25], 4, kind, mapping=[3, 0])
    for draft in drafts(padded, rule=rule, **params):
        assert draft.tokens.max() < 4
    for draft in drafts(mapped, rule=rule, **params):
        assert set(draft.tokens.tolist()) <= {0, 3}
    greedy = [d.tokens[0] for d in drafts(padded, rule=rule, temperature=0.0)]
    assert set(greedy) == {3}
    assert {d.tokens[0] for d in drafts(mapped, rule=rule, temperature=0.0)} == {3}


def test_penalties_reach_the_mapped_id():
    """Draft id 0 is target id 3: a bias on 3 must forbid it, a bias on 0 must not."""
    made = drafter([0.75, 0.25], 4, mapping=[3, 1])
    first = [made.propose([step(1, temperature=0.0, logit_bias={i: -100.0})], NOISE)[0].tokens[0] for i in (3, 0)]
    assert first == [1, 3]


def test_case_c_offsets_are_not_absolute_ids():
    assert ids_from_offsets([0, 1, 1, 3]).tolist() == [0, 2, 3, 6]
    with pytest.raises(PairingError, match="offsets"):
        DraftVocab(4, 7, [0, 1, 1, 3])
    with pytest.raises(PairingError, match="offsets"):
        DraftVocab(2, 4, [0, 4])
    with pytest.raises(PairingError, match="shape"):
        DraftVocab(2, 4, [0, 1, 2])


def test_a_token_the_drafter_can_not_read_means_no_draft():
    """Four input tokens; 5 is the target's alone. Without the check the table would be read out of bounds."""
    made = ModelDrafter(TableTarget(np.eye(4)), PageLedger(64, 4), 6)
    assert len(made.propose([step(1, tokens=(1, 3))], NOISE)[0]) == 3
    assert len(made.propose([step(1, tokens=(1, 3, 5))], NOISE)[0]) == 0
    assert len(made.propose([step(1, tokens=(1, 3, 2))], NOISE)[0]) == 3


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_a_row_in_target_ids(draft_size, target_size, data):
    row = np.arange(draft_size) + 0.5
    plain = DraftVocab(draft_size, target_size).row(row)
    common = min(draft_size, target_size)
    assert plain[:common].tolist() == row[:common].tolist()
    assert (plain[common:] == -np.inf).all()
    assert len(plain) == target_size
    if draft_size <= target_size:
        mapping = data.draw(st.permutations(range(target_size)))[:draft_size]
        mapped = DraftVocab(draft_size, target_size, mapping).row(row)
        assert mapped[mapping].tolist() == row.tolist()
        assert (mapped > -np.inf).sum() == draft_size
