"""The transform is uniform under any score, and the filled cells keep their rate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.certify.chances import chi2_quantile
from draftproof.certify.pit import CELLS, Cells, equal_cells, pit


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=5).filter(any), st.data())
def test_every_cell_is_hit_with_its_share(weights, data):
    """The exact chance of U < c, for c on a grid, is c: laws with rational entries, no sampling."""
    law = np.array(weights, float) / sum(weights)
    score = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(law), max_size=len(law))), float)
    for cut in (0.1, 0.35, 0.5, 0.9):
        mass = 0.0
        for token in np.flatnonzero(law):
            low, high = pit(law, score, int(token), 0.0), pit(law, score, int(token), 1 - 1e-15)
            mass += law[token] * np.clip((cut - low) / (high - low), 0, 1)
        assert mass == pytest.approx(cut, abs=1e-12)


def test_high_scores_come_first_and_excluded_tokens_have_no_room():
    law = np.array([0.5, 0.3, 0.2, 0.0])
    assert pit(law, law, 0, 0.5) == 0.25
    assert pit(law, law, 2, 0.5) == pytest.approx(0.9)
    assert pit(law, law, 3, 0.3) > 0.999
    assert pit(law, -law, 3, 0.3) == 0.0


def test_numbers_in_are_counted_up_to_the_quota_and_the_rest_is_filled():
    cells = Cells(quota=5)
    for number in (0.05, 0.95, 0.999999, 0.5, 0.5, 0.5):
        cells.add(number)
    assert (cells.taken, cells.seen) == (5, 6)
    assert cells.counts[0] == 1
    assert cells.counts[-1] == 2
    half = Cells(quota=1000)
    half.add(0.3)
    assert sum(half.filled(np.random.default_rng(0))) == 1000


def test_the_rate_of_the_cells_test():
    """At 200 numbers and three rates, twenty thousand times: within five standard errors."""
    rng, trials = np.random.default_rng(5), 20_000
    counts = rng.multinomial(200, np.full(CELLS, 1 / CELLS), trials)
    statistic = ((counts - 20.0) ** 2 / 20).sum(axis=1)
    for alpha in (0.05, 0.01, 0.001):
        seen = (statistic > chi2_quantile(alpha, CELLS - 1)).mean()
        assert abs(seen - alpha) < 5 * np.sqrt(alpha / trials) + 0.1 * alpha
    assert equal_cells(counts[0].tolist())[0] == pytest.approx(statistic[0])
    assert equal_cells([0] * CELLS) == (0.0, 1.0)
