"""The watch of the price: finds a loss, is silent while speculation gains, and keeps its promise in skewed times."""

import math
import random

import pytest

from draftproof.rollout.compare import Arm, Block, Comparison, pair_of
from draftproof.rollout.cusum import Bets
from draftproof.rollout.limits import Limits
from draftproof.rollout.policy import BucketPolicy
from draftproof.rollout.price import PriceWatch

LIMITS = Limits(BucketPolicy())


def block_of(draw, on, off, cost, skew):
    level, arms = math.exp(0.3 * draw.gauss(0, 1)), []
    for num, factor in ((on, cost), (off, 1.0)):
        arms.append(Arm())
        for _ in range(num):
            arms[-1].add(
                0.02 * level * factor * math.exp(skew * draw.gauss(0, 1)), 2 + int(draw.expovariate(0.02)), False
            )
    return Block(0.0, *arms)


def observe(watch, block, limits=LIMITS):
    return watch.observe(block, pair_of(block), limits)


@pytest.mark.parametrize(("on", "off"), [(4, 76), (76, 4), (20, 20)])
def test_a_loss_is_found_after_a_long_gain(on, off):
    draw, watch = random.Random(1), PriceWatch()
    assert not any(observe(watch, block_of(draw, on, off, 0.6, 0.4)) for _ in range(300))
    place, found = 0, None
    while not found:
        found, place = observe(watch, block_of(draw, on, off, 1.4, 0.4)), place + 1
    assert 10 <= place < 120
    ratio = found.evidence["itl_ratio"]
    assert ratio["low"] > 1
    assert ratio["mean"] == pytest.approx(1.4, rel=0.35), "it stops where it looks worst, so it overstates"
    assert found.evidence["blocks"] <= place + 3
    assert "times as long" in found.reason


def test_one_terrible_block_is_no_alarm():
    draw, watch = random.Random(2), PriceWatch()
    for _ in range(40):
        observe(watch, block_of(draw, 20, 20, 0.9, 0.3))
    assert observe(watch, block_of(draw, 20, 20, 50.0, 0.3)) is None
    assert not any(observe(watch, block_of(draw, 20, 20, 0.9, 0.3)) for _ in range(100))


def test_a_limit_above_one_lets_small_losses_pass():
    draw, watch = random.Random(3), PriceWatch()
    limits = Limits(BucketPolicy(max_itl_ratio=1.25))
    assert not any(observe(watch, block_of(draw, 20, 20, 1.15, 0.3), limits) for _ in range(300))
    assert any(observe(watch, block_of(draw, 20, 20, 1.6, 0.3), limits) for _ in range(60))


def test_requests_without_any_noise():
    draw, watch = random.Random(4), PriceWatch()
    found = [observe(watch, Block(0.0, *(arm_of(itl) for itl in (0.03, 0.02)))) for _ in range(50)]
    assert not any(found), "differences that never vary give no variance to bet with"
    assert any(observe(watch, block_of(draw, 20, 20, 1.5, 0.1)) for _ in range(60))


def arm_of(itl):
    arm = Arm()
    for _ in range(5):
        arm.add(itl, 20, False)
    return arm


@pytest.mark.parametrize(("on", "off"), [(4, 36), (36, 4)])
@pytest.mark.parametrize("skew", [0.3, 1.0])
def test_where_speculation_costs_just_as_much_false_alarms_keep_to_the_promise(on, off, skew):
    """Of 3000 blocks at a threshold of 600, five may give one."""
    draw, watch, alarms = random.Random(5), PriceWatch(), 0
    limits = Limits(BucketPolicy(false_alarm_rate=0.01))
    for _ in range(3000):
        if observe(watch, block_of(draw, on, off, 1.0, skew), limits):
            alarms += 1
            watch.bets, watch.seen = Bets(), Comparison()
    assert alarms <= 3000 * 0.01 / 6
