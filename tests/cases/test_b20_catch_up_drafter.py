"""B20, the drafter's part: with the target as its own drafter every draft token is accepted, whatever came between."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.model import ModelDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, Slots, StepItem

NOISE = PhiloxNoise()
OPTIONS = ToyOptions(num_pages=64, page_size=4, min_rows=2)
V = 40


def plain(tokens, count):
    """The next `count` greedy tokens, each from a forward over an empty cache."""
    out = list(tokens)
    for _ in range(count):
        ids = np.array(out, np.int32)
        slots = Slots(np.arange(64, dtype=np.int32), 0, len(ids))
        output = HashTarget(V, seed=6, options=OPTIONS).verify(flat_batch([Rows(ids, len(ids), slots)], 2))
        out.append(int(output.logits.argmax()[0]))
    return out[len(tokens) :]


def self_draft(kind=ModelDrafter, **options):
    return kind(HashTarget(V, seed=6, options=OPTIONS), PageLedger(64, 4), V, **options)


def play(drafter, schedule, prompt, seq=0):
    """(accepted, drafted) of each round; the text is plain decoding's."""
    tokens, rounds = list(prompt), []
    for round_, gamma in enumerate(schedule):
        item = StepItem(seq, np.array(tokens, np.int32), 10, 1, 1, gamma, SamplingParams(seed=1), round_)
        draft = drafter.propose([item], NOISE)[0]
        truth = plain(tokens, gamma + 1)
        accepted, node = 0, 0
        while True:
            children = [i + 1 for i in range(len(draft)) if draft.parents[i] == node]
            node = next((child for child in children if draft.tokens[child - 1] == truth[accepted]), 0)
            if not node:
                break
            accepted += 1
        emitted = np.array(truth[: accepted + 1], np.int32)
        drafter.observe([Commit(seq, emitted, range(accepted + 1), num_accepted=accepted)])
        tokens += emitted.tolist()
        rounds.append((accepted, len(draft)))
    return rounds


@pytest.mark.parametrize("schedule", [(4, 4, 4, 4), (4, 0, 0, 0, 4), (0, 0, 3, 1, 0, 5), (1, 1, 1), (7, 0, 7)])
def test_acceptance_is_complete_in_every_drafting_round(schedule):
    rounds = play(self_draft(), schedule, range(10))
    assert rounds == [(gamma, gamma) for gamma in schedule]


def test_a_tree_accepts_one_token_a_level():
    rounds = play(self_draft(FixedTreeDrafter, widths=(2, 2, 1)), (10, 10, 0, 0, 10), range(10))
    assert rounds == [(3, 10), (3, 10), (0, 0), (0, 0), (3, 10)]


def test_after_full_acceptance_the_last_draft_and_the_bonus_are_fed():
    target, ledger = HashTarget(V, seed=6, options=OPTIONS), PageLedger(64, 4)
    drafter = ModelDrafter(target, ledger, V)
    assert play(drafter, (4,), range(10)) == [(4, 4)]
    assert ledger.kv_len(0) == 13  # of 15 committed: two to feed
