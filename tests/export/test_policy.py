"""The policy of a plan: nothing is enabled that the plan does not enable, and the lengths are the plan's own."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from plans import EARLY, LOADS, MODEL, NGRAM, SUFFIX, Drafter, make_plan

from draftproof.drafters.ngram import NgramDrafter
from draftproof.errors import InputError
from draftproof.export import policy as policies
from draftproof.export.exported import steps
from draftproof.export.policy import Tier, policy_of, tiers_of

KINDS = {"ngram", "suffix", "model"}


def test_lengths_are_the_plans_own() -> None:
    plan = make_plan(SUFFIX, NGRAM)
    policy = policy_of(plan)
    bucket = plan.bucket("all")
    for candidate in policy.candidates:
        for tier in candidate.by_load:
            curve = bucket.band(tier.concurrency).curve(candidate.name)
            low = curve.best.speedup.low
            assert tier.gamma == (curve.best_gamma if low is not None and low > 1 else 0)
            assert tier.speedup == (curve.points[tier.gamma].speedup.mean)
    assert policy.best(KINDS, KINDS) == policy.candidates[0]
    assert policy.concurrency == LOADS
    assert not policy.one_load


def test_an_interval_with_a_loss_is_not_enabled() -> None:
    unsure = replace(SUFFIX, doubt=0.9)
    policy = policy_of(make_plan(unsure))
    assert [tier.gamma for tier in policy.candidates[0].by_load] == [0, 0, 0]
    assert policy.best(KINDS, KINDS) is None
    unknown = make_plan(SUFFIX)
    points = unknown.buckets[0].bands[0].curves[0].points
    assert points[1].speedup.low is not None  # and where there is no interval at all, nothing is sure
    assert not policies._is_worth(replace(points[1], speedup=replace(points[1].speedup, low=None)))


def test_a_fixed_length_loses_at_no_load() -> None:
    bands = make_plan(SUFFIX).bucket("all").bands
    assert policy_of(make_plan(SUFFIX)).candidates[0].fixed is None  # at 64 every length loses
    light = policy_of(make_plan(SUFFIX, loads=(1, 8))).candidates[0].fixed
    assert light is not None
    gamma = light[0].gamma
    gains = {g: [band.curve("suffix").points[g].speedup for band in bands[:2]] for g in range(1, 9)}
    safe = {g: a.mean * b.mean for g, (a, b) in gains.items() if min(a.low or 0, b.low or 0) > 1}
    assert gamma == max(safe, key=safe.__getitem__)
    assert [tier.gamma for tier in light] == [gamma, gamma]


def test_the_best_candidate_is_of_a_kind_that_the_engine_has() -> None:
    policy = policy_of(make_plan(EARLY, NGRAM, SUFFIX))
    best = [policy.best(kinds, kinds) for kinds in ({"early_exit"}, {"ngram"}, {"ngram", "suffix"}, {"model"})]
    assert [candidate and candidate.name for candidate in best] == ["early", "ngram", "suffix", None]


def test_the_floor_is_where_a_round_costs_what_plain_decoding_does() -> None:
    point = make_plan(MODEL).bucket("all").bands[0].curve("small").best
    (tier, *_) = policy_of(make_plan(MODEL)).candidates[0].by_load
    assert tier.floor is not None
    tokens = 1 + tier.floor * point.drafted  # of a round, if so many drafts are accepted
    assert (point.draft_ms + point.verify_ms) / tokens == pytest.approx(100.0, rel=1e-12)
    assert tier.floor < point.tokens_per_round.mean - 1


def test_one_load_only() -> None:
    plan = make_plan(SUFFIX)
    policy = policy_of(plan, 8)
    assert policy.one_load
    assert policy.concurrency == (8,)
    (tier,) = policy.candidates[0].by_load
    assert tier.gamma == plan.bucket("all").band(8).curve("suffix").best_gamma
    fixed = policy.candidates[0].fixed
    assert fixed is not None
    assert fixed[0].gamma == tier.gamma
    with pytest.raises(InputError, match=r"load 5 was not planned \(planned: 1, 8, 64\)"):
        policy_of(plan, 5)


def test_models_must_have_names() -> None:
    with pytest.raises(InputError, match="model of its drafter small"):
        policy_of(make_plan(replace(MODEL, model=None)))
    with pytest.raises(InputError, match="model of its target"):
        policy_of(replace(make_plan(SUFFIX), target={}))
    early = Drafter("early", "early_exit", 8.0, {"all": 0.9}, "org/target-model")
    assert policy_of(make_plan(early)).candidates[0].model is None  # the target's own layers: no second model to load


def test_steps_merge_equal_neighbours_and_cover_every_size() -> None:
    tiers = [Tier(1, 4, 2.0, None), Tier(8, 4, 1.5, None), Tier(64, 0, 1.0, None), Tier(128, 2, 1.1, None)]
    assert steps(tiers) == [(1, 8, 4), (9, 64, 0), (65, 128, 2)]
    assert steps(tiers[2:3]) == [(1, 64, 0)]


def test_tiers_of_a_candidate_without_a_fixed_length() -> None:
    candidate = policy_of(make_plan(SUFFIX)).candidates[0]
    assert tiers_of(candidate, {"ngram"}) == ()
    assert tiers_of(candidate, {"suffix"}) == candidate.by_load


def test_ngram_lengths_are_the_drafters() -> None:
    defaults = {name: p.default for name, p in inspect.signature(NgramDrafter).parameters.items()}
    assert defaults == {"max_ngram": policies.NGRAM_MAX, "min_ngram": policies.NGRAM_MIN}
