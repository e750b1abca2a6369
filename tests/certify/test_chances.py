"""Tails and power against SciPy, and the stated power against simulated errors of just that size."""

import numpy as np
import pytest
from scipy import stats

from draftproof.certify.chances import chi2_quantile, chi2_tail, needed_noncentrality, noncentral_tail, smallest_tv


@pytest.mark.parametrize("freedom", [1, 2, 9, 40, 333])
def test_tails_are_scipys(freedom):
    for value in [1e-9, 0.1, 1.0, 7.0, 30.0, 100.0, 800.0]:
        assert chi2_tail(value, freedom) == pytest.approx(stats.chi2.sf(value, freedom), rel=1e-9, abs=1e-14)
    for tail in [0.5, 1e-3, 1e-7]:
        assert chi2_quantile(tail, freedom) == pytest.approx(stats.chi2.isf(tail, freedom), rel=1e-9)
    for noncentrality in [0.3, 5.0, 60.0, 900.0]:
        ours = noncentral_tail(30.0, freedom, noncentrality)
        assert ours == pytest.approx(stats.ncx2.sf(30.0, freedom, noncentrality), rel=1e-7, abs=1e-12)


def test_edges():
    assert chi2_tail(0.0, 3) == 1.0
    assert chi2_tail(np.inf, 3) == 0.0
    assert smallest_tv(0, 1e-3, 9) == 1.0
    assert smallest_tv(5, 1e-3, 9) == 1.0
    assert noncentral_tail(5.0, 3, 0.0) == chi2_tail(5.0, 3)


@pytest.mark.parametrize("samples", [1, 2])
def test_an_error_of_the_stated_size_is_found_as_often_as_stated(samples):
    """The worst direction: the same share is missing in one half of the cells and too much in the other."""
    count, cells, alpha, trials = 3000, 10, 1e-3, 4000
    tv = smallest_tv(count, alpha, cells - 1, samples=samples)
    law = np.full(cells, 1 / cells)
    law[: cells // 2] += 2 * tv / cells
    law[cells // 2 :] -= 2 * tv / cells
    rng = np.random.default_rng(1)
    seen = rng.multinomial(count, law, trials)
    if samples == 1:
        statistic = ((seen - count / cells) ** 2).sum(axis=1) * cells / count
    else:
        other = rng.multinomial(count, np.full(cells, 1 / cells), trials)
        statistic = ((seen - other) ** 2 / (seen + other)).sum(axis=1)
    found = (statistic > chi2_quantile(alpha, cells - 1)).mean()
    assert 0.98 < found < 0.998  # 99 %, within five standard errors and the limit's own error


def test_a_smaller_rate_needs_a_larger_error():
    assert needed_noncentrality(1e-3, 9) < needed_noncentrality(1e-5, 9)
    assert smallest_tv(20_000, 1e-4, 9) < smallest_tv(2_000, 1e-4, 9)
