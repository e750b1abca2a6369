"""An any-time test: may be looked at after every token, for ever, and keeps its false-alarm rate.

Hypothesis. U_1, U_2, ... are uniform, each given those before it (`places`: tokens under the target's law).
Construction. Many gamblers start with the same share of 1 and bet on U_t by the factor 1 + b cos(k pi U_t), |b| < 1:
the factor is positive and has mean 1, for cos(k pi u) integrates to 0 over [0, 1]. W is the sum of their wealths.
Statement (Ville 1939). P(W_t >= 1/alpha for some t) <= alpha.
Proof. Each wealth is multiplied by a factor of conditional mean 1, so W is a non-negative martingale that starts at 1.
Stop it the first time it reaches 1/alpha, or at time n: its mean is still 1, so the chance to have stopped by n is at
most alpha, for each n. [] Nothing is asked of n, of the end of the watch, or of which streams come how often: a gambler
who skips a number multiplies by 1. A restart would spend alpha anew.

Power is that of the best gambler, up to the share he started with: for a shift of mass, about as many tokens as a fixed
test needs, times two or three.

Does not know: models, engines. For production traffic: feed it `pit` of any token whose law is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_BETS = (0.05, 0.15, 0.4)
_WAVES = (1, 2, 3)
_SIGNED = np.array([(wave, sign * bet) for wave in _WAVES for bet in _BETS for sign in (1, -1)])


class Watch:
    """Wealth of all gamblers over named streams of numbers. Serialisable: `state` and `Watch.restore`."""

    def __init__(self, streams: Sequence[str] = ("law",)) -> None:
        self._logs = {name: np.zeros(len(_SIGNED)) for name in streams}
        self._highest = 0.0
        self.count = 0

    def add(self, stream: str, number: float) -> None:
        """One uniform-if-right number in [0, 1]. Raises KeyError for a stream that was not named at the start."""
        waves, bets = _SIGNED[:, 0], _SIGNED[:, 1]
        self._logs[stream] += np.log1p(bets * np.cos(waves * math.pi * number))
        self.count += 1
        self._highest = max(self._highest, self.log_wealth)

    @property
    def log_wealth(self) -> float:
        """Natural logarithm of W now."""
        logs = np.concatenate(list(self._logs.values()))
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean()))

    @property
    def p_value(self) -> float:
        """1 / the highest W so far: at most alpha with chance at most alpha, whenever one looks."""
        return math.exp(-self._highest)

    def alarm(self, alpha: float) -> bool:
        """True once W has been 1/alpha or more."""
        return self.p_value <= alpha

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        logs = {name: each.tolist() for name, each in self._logs.items()}
        return {"logs": logs, "highest": self._highest, "count": self.count}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Watch:
        """The watch that `state` was taken of."""
        watch = cls(list(state["logs"]))
        watch._logs = {name: np.array(each) for name, each in state["logs"].items()}
        watch._highest, watch.count = state["highest"], state["count"]
        return watch
