"""B19: a cache trimmed by the wrong number. Kind: rows kept that are not those of the committed tokens, or too few."""

from hypothesis import given
from hypothesis import strategies as st

from draftproof.kv.ledger import PageLedger


def ledger_with(rows):
    ledger = PageLedger(64, 4)
    ledger.reserve(0, rows)
    ledger.commit(0, range(rows))
    return ledger


def test_two_of_four_accepted():
    """10 committed, caches hold 9; target 14 -> 12, draft 13 -> 12; 13 committed."""
    target, draft = ledger_with(9), ledger_with(9)
    written = target.reserve(0, 1 + 4)
    assert written.start + written.rows == 14
    written = draft.reserve(0, 4)  # the last committed token and d1, d2, d3; d4 is never fed
    assert written.start + written.rows == 13
    target.commit(0, range(3))  # the fed token, d1, d2
    draft.commit(0, range(3))
    committed = 10 + 2 + 1
    assert (target.kv_len(0), draft.kv_len(0), committed - 1) == (12, 12, 12)


@given(
    rounds=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20),
    page_size=st.integers(1, 9),
)
def test_every_round_ends_one_row_before_the_committed_tokens(rounds, page_size):
    """Target and draft ledgers over any rounds; the drafter feeds what it has not seen, so full acceptance leaves 2."""
    target, draft = PageLedger(300, page_size), PageLedger(300, page_size)
    committed = 1
    for gamma, accepted in rounds:
        accepted = min(gamma, accepted)
        target.reserve(0, 1 + gamma)
        target.commit(0, range(1 + accepted))
        if gamma:
            behind = committed - draft.kv_len(0)
            draft.reserve(0, behind + gamma - 1)
            draft.commit(0, range(behind + min(accepted, gamma - 1)))
        committed += accepted + 1
        assert target.kv_len(0) == committed - 1
        if gamma:
            assert draft.kv_len(0) == committed - 1 - (accepted == gamma)
        for ledger in (target, draft):
            ledger.check()
            assert ledger.free_pages == 300 - ledger.pages_for(ledger.kv_len(0))
