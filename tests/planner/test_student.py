"""Quantiles of Student's t against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from draftproof.planner.student import t_quantile

FREEDOM = np.concatenate([np.linspace(1, 6, 101), [10, 29.5, 100, 1e3, 1e5]])


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_equals_scipy(level: float) -> None:
    np.testing.assert_allclose(t_quantile(FREEDOM, level), stats.t.ppf((1 + level) / 2, FREEDOM), rtol=1e-8)


def test_textbook_values_and_shape() -> None:
    assert t_quantile(1.0).shape == ()
    assert float(t_quantile(1.0)) == pytest.approx(12.7062, abs=1e-4)
    np.testing.assert_allclose(t_quantile([[2, 11], [29, 1e7]]), [[4.3027, 2.2010], [2.0452, 1.9600]], atol=1e-4)


@pytest.mark.parametrize(("freedom", "level"), [(0.5, 0.95), (3, 0.0), (3, 1.0)])
def test_refuses_what_has_no_quantile(freedom: float, level: float) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile(freedom, level)
