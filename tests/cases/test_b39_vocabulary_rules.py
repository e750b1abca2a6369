"""B39, its law: a draft law must speak in the target's ids and over the target's vocabulary."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.rules import emitted, reject
from draftproof.rules.law import outcomes
from draftproof.types import chain


def law(*numbers):
    return np.array([Fraction(x) for x in numbers], dtype=object)


TARGET = law("1/10", "2/5", "1/5", "3/10")
MAPPED, UNMAPPED = law(0, "3/4", 0, "1/4"), law("3/4", "1/4", 0, 0)


def masses_of(reported, target=TARGET, drawn_from=MAPPED):
    def run(coins):
        token = coins.draw(0, drawn_from)
        draft = chain([token], "iid", reported[None])
        verdict = reject(draft, lambda node: target, coins)
        return token, verdict.source, emitted(draft, verdict)[0]

    return outcomes(run)


def emitted_law(masses, vocab=4):
    return [sum(m for (_, _, token), m in masses.items() if token == i) for i in range(vocab)]


def test_case_a_mapped():
    masses = masses_of(MAPPED)
    assert masses[1, "bonus", 1] / MAPPED[1] == Fraction(8, 15)
    assert masses[3, "bonus", 3] / MAPPED[3] == 1
    refused = sum(m for (_, source, _), m in masses.items() if source == "correction")
    replaced = [masses.get((1, "correction", i), 0) / refused for i in range(4)]
    assert replaced == [Fraction(2, 7), 0, Fraction(4, 7), Fraction(1, 7)]
    assert emitted_law(masses) == list(TARGET)


def test_case_a_unmapped_is_seen():
    """Ids mapped but the law not: token 3 has no mass in it, passes always, and 1 passes with 1/4 < 2/5 too."""
    assert emitted_law(masses_of(UNMAPPED)) == [0, Fraction(3, 4), 0, Fraction(1, 4)]


def test_case_b_masked_and_padded_laws_are_exact():
    drafted = law("1/5", "1/5", *["1/10"] * 6)
    masked = drafted[:6] / drafted[:6].sum()
    assert list(masked) == list(law("1/4", "1/4", "1/8", "1/8", "1/8", "1/8"))
    six = law("1/2", "1/10", "1/10", "1/10", "1/10", "1/10")
    assert emitted_law(masses_of(masked, six, masked), 6) == list(six)
    padded = np.concatenate([law("1/4", "1/4", "1/4", "1/4"), law(0, 0)])
    assert emitted_law(masses_of(padded, six, padded), 6) == list(six)


@settings(max_examples=80, deadline=None)
@given(
    st.permutations(range(5)),
    st.integers(1, 5),
    st.lists(st.integers(0, 4), min_size=5, max_size=5).filter(any),
    st.lists(st.integers(1, 4), min_size=5, max_size=5),
)
def test_kind_any_renumbering_of_a_reduced_vocabulary(order, size, target_weights, draft_weights):
    target = law(*(Fraction(w, sum(target_weights)) for w in target_weights))
    scattered = law(*[0] * 5)
    scattered[order[:size]] = [Fraction(w, sum(draft_weights[:size])) for w in draft_weights[:size]]
    assert emitted_law(masses_of(scattered, target, scattered), 5) == list(target)
