"""The comparison of the same time: load cancels, long requests do not decide, the interval covers."""

import numpy as np
import pytest

from draftproof.rollout.compare import FEWEST, Arm, Block, Comparison, pair_of


def arm(requests):
    """Of (seconds a token, tokens)."""
    made = Arm()
    for itl, tokens in requests:
        made.add(itl, tokens, False)
    return made


def compared(blocks):
    comparison = Comparison()
    for on, off in blocks:
        block = Block(0.0, arm(on), arm(off))
        comparison.add(block, pair_of(block))
    return comparison


def test_a_block_is_worked_out_by_hand():
    pair = pair_of(Block(0.0, arm([(0.01, 11), (0.02, 31)]), arm([(0.04, 21)])))
    assert pair.on == pytest.approx((0.1 + 0.6) / 40)
    assert pair.off == pytest.approx(0.04)
    n = 40**2 / (10**2 + 30**2)
    assert pair.weight == pytest.approx(n * 1 / (n + 1))
    assert pair.both == pytest.approx((n * pair.on + pair.off) / (n + 1))


def test_long_requests_count_no_more_than_middling_ones():
    one = pair_of(Block(0.0, arm([(0.01, 65), (0.05, 100_000)]), arm([(0.02, 65)])))
    assert one.on == pytest.approx(0.03)


def test_a_load_that_comes_and_goes_cancels():
    """Most speculating requests in slow hours, most plain ones in quick hours: means over all would say 1.2."""
    slow = ([(0.04, 30)] * 60, [(0.05, 30)] * 12)
    quick = ([(0.008, 30)] * 12, [(0.01, 30)] * 60)
    comparison = compared([slow, quick] * 10)
    assert comparison.ratio(0.05).mean == pytest.approx(0.8)
    assert (comparison.blocks, comparison.requests_on, comparison.requests_off) == (20, 720, 720)
    evidence = comparison.to_evidence(0.05)
    assert evidence["itl_on_s"] / evidence["itl_off_s"] == pytest.approx(0.8)


def test_no_interval_from_few_blocks():
    assert Comparison().ratio(0.05) is None
    block = ([(0.01, 9)] * 4, [(0.02, 9)] * 4)
    few = compared([block] * (FEWEST - 1)).ratio(0.05)
    assert (few.mean, few.low, few.high) == (0.5, None, None)
    assert compared([block] * FEWEST).ratio(0.05).low is not None


def test_what_says_nothing_of_time_is_left_out():
    made = Arm()
    made.add(None, 1, False)
    made.add(0.5, 1, False)
    made.add(0.5, 50, True)
    assert (made.requests, made.errors, made.gaps) == (3, 1, 0)
    assert pair_of(Block(0.0, made, arm([(0.02, 9)]))) is None
    assert pair_of(Block(0.0, arm([(0.0, 9)]), arm([(0.0, 9)]))) is None


def test_a_block_needs_time_and_both_kinds():
    block = Block(100.0, arm([(0.01, 9)] * 4), arm([(0.02, 9)] * 3))
    assert not block.is_full(1000.0, 30.0, 4)
    block.off.add(0.02, 9, True)
    assert not block.is_full(129.0, 30.0, 4)
    assert block.is_full(130.0, 30.0, 4)
    assert not block.is_full(50.0, 30.0, 4), "a clock that is set back"
    assert not Block(100.0, block.off, arm([])).is_full(1000.0, 30.0, 4)
    assert not Block(100.0, arm([(0.01, 9)] * 3), block.off).is_full(1000.0, 30.0, 4)
    assert not Block().is_full(130.0, 30.0, 0)


def test_sums_add_up():
    first = [([(0.01, 9)] * 4, [(0.02, 19)] * 5)] * 3
    second = [([(0.03, 9)] * 7, [(0.02, 29)] * 4)] * 4
    both, whole = compared(first).plus(compared(second)), compared(first + second)
    for name in Comparison.__slots__:
        assert getattr(both, name) == pytest.approx(getattr(whole, name))


@pytest.mark.parametrize(("on", "off"), [(4, 40), (40, 4)])
def test_the_interval_covers_at_all_looks(on, off):
    """Requests with their own skewed time, moments that are slow for all, blocks that are slow for half a minute."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(100):
        comparison, covered = Comparison(), True
        for _ in range(120):
            level = 0.02 * np.exp(0.5 * rng.standard_normal())
            arms = []
            for num, cost in ((on, 0.7), (off, 1.0)):
                itl = cost * level * np.exp(0.5 * rng.standard_normal(num))
                arms.append(arm(zip(itl.tolist(), (2 + rng.geometric(1 / 50, num)).tolist(), strict=True)))
            block = Block(0.0, *arms)
            comparison.add(block, pair_of(block))
            if comparison.blocks >= FEWEST:
                interval = comparison.ratio(0.05)
                covered &= interval.low <= 0.7 <= interval.high
        missed += not covered
    assert missed <= 8
