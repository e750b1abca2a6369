"""What `chains` claims of a chain judged as a whole, enumerated in fractions with the production rule."""

from fractions import Fraction

import numpy as np
import pytest

from draftproof.certify import run
from draftproof.certify.chains import judged
from draftproof.certify.places import observe
from draftproof.certify.types import Depth, Round, Sample
from draftproof.rules.block import block
from draftproof.rules.law import outcomes
from draftproof.rules.rehearse import draw_tree, path_tokens


def law(*weights):
    return np.array([Fraction(w) / sum(weights) for w in weights], dtype=object)


def varying(laws):
    return lambda tokens: laws[sum((i + 2) * (t + 1) for i, t in enumerate(tokens)) % len(laws)]


TARGET = varying([law(1, 4, 5), law(1, 1, 8), law(2, 5, 3), law(4, 4, 2)])
DRAFTED = varying([law(6, 3, 1), law(3, 4, 3), law(1, 7, 2)])


def rounds(depth):
    """(chain, number accepted, next token) -> chance, by the production rule."""

    def one(coins):
        tree = draw_tree(DRAFTED, (), (1,) * depth, "iid", coins)
        verdict = block(tree, lambda node: TARGET(path_tokens(tree, node)), coins)
        return (tuple(tree.tokens.tolist()), len(verdict.path), verdict.next_token)

    return outcomes(one)


def weight_of(tokens):
    weight = Fraction(1)
    for index, token in enumerate(tokens):
        place = judged(TARGET(tokens[:index]), DRAFTED(tokens[:index]), token, weight, index == 0)
        if place is None:
            return None
        weight = place.weight
    return weight


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_drafts_coins_and_corrections_are_what_is_claimed(depth):
    runs, checked = rounds(depth), 0
    for prefix in {chain[:k] for chain, _, _ in runs for k in range(depth)}:
        place, weight = len(prefix), weight_of(prefix)
        reached = {o: m for o, m in runs.items() if o[0][:place] == prefix and o[1] >= place}
        total = sum(reached.values())
        if not total or not weight:
            continue
        for candidate in range(3):
            drawn = sum(m for (chain, _, _), m in reached.items() if chain[place] == candidate)
            found = judged(TARGET(prefix), DRAFTED(prefix), candidate, weight, place == 0)
            assert found.drawn[candidate] == drawn / total
            accepted = sum(m for (c, t, _), m in reached.items() if c[place] == candidate and t > place)
            assert not drawn or found.chance == accepted / drawn
            refused = {o: m for o, m in reached.items() if o[0][place] == candidate and o[1] == place}
            for token in range(3):
                said = sum(m for (_, _, said), m in refused.items() if said == token)
                assert said == found.left[token] * sum(refused.values())
            checked += 1
    assert checked > 2 * 3 ** (depth - 1)


P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.4, 0.5])


def test_each_number_of_a_chain_has_its_name():
    depths = (Depth((2,), "iid", Q, 0, chain=True), Depth((2,), "iid", Q, None, chain=True))
    sample = Sample((2, 0), "length", (Round(2, 1, 2, 3, depths),))
    names = [seen.test for seen in observe(sample, iter([P, P]), np.random.default_rng(0))]
    assert names == [
        *("law", "tested", "tested@1", "draft", "accept@1"),
        *("law", "tested", "tested@2", "chain", "accept@2", "correction"),
    ]


def test_a_draft_without_a_law_is_no_number():
    depths = (Depth((2,), "iid", np.zeros(3), None, chain=True),)
    sample = Sample((0,), "length", (Round(1, 0, 1, 1, depths),))
    names = [seen.test for seen in observe(sample, iter([P]), np.random.default_rng(0))]
    assert names == ["law", "tested", "tested@1"]


def test_a_right_chain_passes_every_test(toy, params):
    made = toy("model", seed=11, gamma=4)
    plan = made.plan(params=params("block"), tokens=4000, tests=("oracle", "fit", "joint"))
    certificate = run(made.sampler, made.reference, plan)
    assert certificate["verdict"] == "lossless", certificate["reasons"] or certificate["summary"]
    names = {test["test"] for test in certificate["tests"]}
    inside = {"fit.draft", "fit.chain", "fit.accept@1", "fit.accept@2", "fit.correction"}
    assert names >= {"oracle.law", "joint.context1", *inside}


def test_numbers_are_uniform_under_the_right_rule(toy, params):
    """Several targets: no test of the chain leans."""
    found: dict[str, list[float]] = {}
    for seed in range(10):
        made = toy("model", seed=seed, gamma=3, like=0.9)
        plan = made.plan(params=params("block"), tokens=1000, tests=("fit",), seed=seed)
        for test in run(made.sampler, made.reference, plan)["tests"]:
            if test["p_value"] is not None:
                found.setdefault(test["test"], []).append(test["p_value"])
    for name in ("fit.draft", "fit.chain", "fit.accept@1", "fit.accept@2", "fit.correction"):
        assert 0.2 < np.mean(found[name]) < 0.8, (name, np.mean(found[name]))
        assert min(found[name]) > 1e-4
