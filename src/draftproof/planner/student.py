"""Quantiles of Student's t for any real degrees of freedom, many at once.

With t = sqrt(nu) * tan(theta) the central probability is an integral without tails,
    P(|T| < t) = 2 * c * integral of cos(phi)^(nu - 1) over 0..theta,   c = gamma((nu+1)/2) / (sqrt(pi) * gamma(nu/2)),
whose integrand is smooth on a range that shrinks with nu, so that 20 Gauss-Legendre nodes give t to ten digits. It is
increasing and concave in theta, so Newton's steps from below never overshoot, and the normal quantile lies below.

Does not know: what the quantiles are for.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_STEPS = 60  # far more than needed: convergence is quadratic, so what a step below _CLOSE leaves is rounding
_CLOSE = 1e-10


def t_quantile(freedom: ArrayLike, level: float = 0.95) -> NDArray[np.float64]:
    """float64[...]: t with P(|T| < t) = level, for each degrees of freedom >= 1 (any real number)."""
    nu = np.asarray(freedom, np.float64)
    if (nu < 1).any() or not 0 < level < 1:
        raise ValueError("degrees of freedom must be >= 1 and the level within (0, 1)")
    logs = [math.lgamma((v + 1) / 2) - math.lgamma(v / 2) for v in nu.flat]
    density = 2 * np.exp(np.reshape(logs, nu.shape)) / math.sqrt(math.pi)  # of theta, at 0
    theta = np.arctan(NormalDist().inv_cdf((1 + level) / 2) / np.sqrt(nu))
    for _ in range(_STEPS):
        angles = theta[..., None] * (1 + _NODES) / 2  # [..., nodes] in (0, theta)
        inside = np.cos(angles) ** (nu[..., None] - 1) @ _WEIGHTS * theta / 2
        step = (level - density * inside) / (density * np.cos(theta) ** (nu - 1))
        theta = theta + step
        if np.all(np.abs(step) <= _CLOSE * theta):
            break
    return np.asarray(np.sqrt(nu) * np.tan(theta))
