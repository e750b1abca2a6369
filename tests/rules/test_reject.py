"""The ratio rule at its edges in floats: empty residuals, laws that are none, equal siblings."""

import numpy as np
import pytest

from draftproof.rules import reject
from draftproof.rules.reject import residual, without
from draftproof.types import Draft, chain


class Told:
    """Coins that refuse or accept as told, and draw the largest weight."""

    def __init__(self, *accepts):
        self.accepts = list(accepts)
        self.drawn_from = []

    def accept(self, node, target_mass, draft_mass):
        return self.accepts.pop(0)

    def draw(self, node, weights):
        self.drawn_from.append((node, weights.tolist()))
        return int(np.argmax(weights))


def siblings(tokens, law, kind):
    nodes = np.zeros(len(tokens), np.int32)
    return Draft(np.array(tokens, np.int32), nodes, kind, np.array([law]), nodes)


def test_an_empty_residual_falls_back_to_the_target_law_and_is_counted():
    half, coins = np.array([0.5, 0.5]), Told(False)
    verdict = reject(chain([0], "iid", half[None]), lambda node: half, coins)
    assert (verdict.empty_residuals, verdict.source) == (1, "correction")
    assert coins.drawn_from == [(0, [0.5, 0.5])]


@pytest.mark.parametrize("law", [[np.nan, np.nan], [np.nan, 0.5], [0.0, 0.0], [3.0, 1.0], [np.inf, 0.0]])
@pytest.mark.parametrize("kind", ["iid", "distinct"])
def test_a_draft_law_that_is_no_law_is_never_used(law, kind):
    coins = Told()  # asked for nothing: the candidate is refused unseen
    verdict = reject(siblings([0], law, kind), lambda node: np.array([0.25, 0.75]), coins)
    assert (verdict.next_token, verdict.empty_residuals) == (1, 1)
    assert coins.drawn_from == [(0, [0.25, 0.75])]


def test_a_refused_candidate_can_not_pass_as_its_equal_sibling():
    seen = []

    class Watch(Told):
        def accept(self, node, target_mass, draft_mass):
            seen.append(float(target_mass))
            return super().accept(node, target_mass, draft_mass)

    reject(siblings([0, 0], [0.5, 0.5], "iid"), lambda node: np.array([0.25, 0.75]), Watch(False, False))
    assert seen == [0.25, 0.0]


def test_more_distinct_siblings_than_the_law_has_tokens_are_ignored():
    coins = Told(False)
    verdict = reject(siblings([0, 1], [1.0, 0.0], "distinct"), lambda node: np.array([0.5, 0.5]), coins)
    assert (verdict.next_token, verdict.empty_residuals) == (1, 1)


def test_drawn_siblings_without_laws_are_a_fault_of_the_drafter():
    with pytest.raises(ValueError, match="laws"):
        reject(chain([0], "iid"), lambda node: np.ones(1), Told())


def test_laws_are_read_only_for_nodes_that_are_reached():
    asked = []

    def target_law(node):
        asked.append(node)
        return np.array([0.5, 0.5])

    reject(chain([0, 0], "iid", np.full((2, 2), 0.5)), target_law, Told(True, False))
    assert asked == [0, 1]


def test_helpers_say_none_where_nothing_is_left():
    assert residual(np.array([0.5, 0.5]), np.array([0.5, 0.5])) is None
    assert residual(np.array([0.5, 0.5]), np.array([1.0, 0.0])).tolist() == [0.0, 1.0]
    assert without(np.array([1.0, 0.0]), [0]) is None
    law = np.array([0.5, 0.5])
    assert without(law, [0]).tolist() == [0.0, 1.0]
    assert law.tolist() == [0.5, 0.5]
