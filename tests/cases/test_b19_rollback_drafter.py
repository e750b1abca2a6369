"""B19, the drafter's part: its own cache is cut by what was refused, never by another number."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.model import ModelDrafter
from draftproof.errors import EngineError
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, StepItem

NOISE = PhiloxNoise()
OPTIONS = ToyOptions(num_pages=64, page_size=4, min_rows=2)


def step(tokens, budget, round_=0):
    ids = np.array(tokens, np.int32)
    return StepItem(0, ids, 10, 1, 1, budget, SamplingParams(seed=1), round_)


class Watched(PageLedger):
    """A ledger that shows the last page table it gave out, and can be told to keep a wrong number of rows."""

    def __init__(self, wrong_by=0):
        super().__init__(64, 4)
        self.wrong_by = wrong_by

    def reserve(self, seq, rows):
        slots = super().reserve(seq, rows)
        self.table = slots.table.copy()
        return slots

    def commit(self, seq, kept):
        return super().commit(seq, range(len(kept) + self.wrong_by))


@pytest.mark.parametrize("accepted", range(5))
@pytest.mark.parametrize("observes", [True, False])
def test_ten_committed_gamma_four(accepted, observes):
    """After drafting 13 rows; with two accepted 12 stay (cut by 1), of 13 committed tokens."""
    target, ledger = HashTarget(50, seed=4, options=OPTIONS), Watched()
    drafter, tokens = ModelDrafter(target, ledger, 50), list(range(10, 20))
    draft = drafter.propose([step(tokens, 4)], NOISE)[0].tokens.tolist()
    assert len(draft) == 4
    correction = next(token for token in range(50) if accepted == 4 or token != draft[accepted])
    emitted = [*draft[:accepted], correction]
    right = 10 + min(accepted, 3)  # the fourth draft token was never fed
    if observes:
        drafter.observe([Commit(0, np.array(emitted, np.int32), range(accepted + 1), num_accepted=accepted)])
        assert ledger.kv_len(0) == right
        assert target.read(ledger.table, right)[0].tolist() == [*tokens, *emitted][:right]
    committed = tokens + emitted
    before = target.num_rows
    again = drafter.propose([step(committed, 1, 1)], NOISE)[0].tokens.tolist()
    assert target.num_rows - before == max(len(committed) - right, 2)  # a single row is padded to two
    assert target.read(ledger.table, len(committed))[0].tolist() == committed
    fresh = ModelDrafter(HashTarget(50, seed=4, options=OPTIONS), PageLedger(64, 4), 50)
    assert again == fresh.propose([step(committed, 1, 1)], NOISE)[0].tokens.tolist()


@pytest.mark.parametrize("wrong_by", [-2, -1, 1])
def test_a_cut_by_another_number_is_refused(wrong_by):
    """The fault of the report, planted in the ledger: it can't pass in silence."""
    drafter = ModelDrafter(HashTarget(50, seed=4, options=OPTIONS), Watched(wrong_by), 50)
    drafter.propose([step(range(10, 20), 4)], NOISE)
    with pytest.raises(EngineError, match="holds"):
        drafter.propose([step([*range(10, 20), 1], 4)], NOISE)
