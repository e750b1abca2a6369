"""The textbook price of speculation: milliseconds a token, speed-up, best draft length, break-even, money.

A round with gamma drafts costs gamma draft steps and one verify step over gamma + 1 rows, and gives a tokens:
    ITL = (gamma * T_d + T_v(gamma + 1)) / a,    speed-up = T_t / ITL
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, §3.) With constant acceptance,
    a(alpha, gamma) = 1 + alpha + ... + alpha^gamma = (1 - alpha^(gamma+1)) / (1 - alpha).
T_v is T_t * (1 + slope * gamma) here; slope 0 is the textbooks' "verifying is one decode step".

Invariant: gamma 0 is plain decoding, speed-up 1. Does not know: data, intervals, measured curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.errors import InputError

MOST = 256  # the longest draft that has a price, and that is searched for the best
_HALVINGS = 100  # of an interval of length 1: down to the last bit


def tokens_per_round(alpha: float, gamma: int) -> float:
    """a(alpha, gamma), for alpha in [0, 1] and gamma >= 0."""
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha must be within 0 and 1, got {alpha:g}")
    check_gamma(gamma)
    total = 1.0
    for _ in range(gamma):  # Horner: no cancellation near alpha = 1
        total = 1 + alpha * total
    return total


def alpha_of(tokens: float, gamma: int) -> float:
    """The constant acceptance with so many tokens per round at gamma >= 1: the inverse of `tokens_per_round`."""
    check_gamma(gamma)
    if gamma == 0 or not 1 <= tokens <= gamma + 1:
        raise InputError(f"tokens per round at gamma {gamma} lie within 1 and {gamma + 1}, got {tokens:g}")
    if tokens in (1, gamma + 1):
        return 0.0 if tokens == 1 else 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_round(middle, gamma) < tokens else (low, middle)
    return (low + high) / 2


def verify_ms(t_target: float, gamma: int, slope: float = 0.0) -> float:
    """T_v(gamma + 1): the target's step over gamma drafts and the token before them."""
    return t_target * (1 + slope * gamma)


def itl_ms(gamma: int, t_draft: float, t_verify: float, tokens: float) -> float:
    """Milliseconds a token, of a round with gamma drafts that gives so many tokens."""
    check_gamma(gamma)
    if not tokens >= 1:
        raise InputError(f"a round gives at least one token, got {tokens:g}")
    return (gamma * t_draft + t_verify) / tokens


def round_costs(t_target: float, t_draft: float, slope: float = 0.0, longest: int = MOST) -> tuple[float, ...]:
    """Milliseconds of a round with 0, 1, ..., `longest` drafts. Raises InputError for times that make no sense."""
    if not (t_target > 0 and t_draft >= 0 and slope >= 0):
        raise InputError("the target's time must be above 0, the drafter's time and the verify slope at least 0")
    return tuple(gamma * t_draft + verify_ms(t_target, gamma, slope) for gamma in range(longest + 1))


def speedups(alpha: float, costs: Sequence[float]) -> tuple[float, ...]:
    """The speed-up at each gamma under constant alpha; costs[gamma] of a whole round, costs[0] plain."""
    return tuple(costs[0] * tokens_per_round(alpha, gamma) / cost for gamma, cost in enumerate(costs))


def best_gamma(alpha: float, costs: Sequence[float]) -> int:
    """The gamma of the highest speed-up under constant alpha, the smallest such; 0 where nothing beats plain."""
    gains = speedups(alpha, costs)
    return max(range(len(gains)), key=lambda gamma: (gains[gamma], -gamma))


def break_even_alpha(costs: Sequence[float]) -> float | None:
    """The constant acceptance above which some gamma beats plain decoding; None where none can.

    With straight costs it is at gamma 1, T_d / T_t + slope: alpha + ... + alpha^gamma <= gamma * alpha, so no longer
    draft wins earlier. A curved verify cost can have its break-even elsewhere, so every gamma is asked.
    """
    least: float | None = None
    for gamma, cost in enumerate(costs):
        ratio = cost / costs[0]
        wins = gamma > 0 and tokens_per_round(1.0 if least is None else least, gamma) > ratio
        if wins:
            least = alpha_of(max(1.0, ratio), gamma)
    return least


@dataclass(frozen=True, slots=True)
class Calculation:
    """One draft length priced, beside the best one under the same constant acceptance."""

    gamma: int
    tokens_per_round: float
    alpha: float | None  # constant acceptance; None at gamma 0, which tests nothing
    itl_ms: float
    speedup: float
    best_gamma: int | None  # None where alpha is not known
    best_speedup: float | None
    break_even_alpha: float | None  # acceptance above which some gamma wins; None where none can
    notes: tuple[str, ...] = ()  # what a reader must know beside the figures

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def calculate(
    costs: Sequence[float], *, gamma: int | None = None, alpha: float | None = None, tokens: float | None = None
) -> Calculation:
    """Prices a round from alpha or from tokens per round; gamma None (with alpha) is the best one.

    costs[gamma]: milliseconds of a whole round, costs[0] of plain decoding; gamma is one of them.
    Raises InputError for what can't be, such as more tokens per round than gamma + 1.
    """
    if gamma is not None:
        check_gamma(gamma)
    if alpha is None:
        assert tokens is not None
        assert gamma is not None
        if gamma == 0 and tokens != 1:
            raise InputError(f"gamma 0 is plain decoding: 1 token per round, not {tokens:g}")
        alpha = alpha_of(tokens, gamma) if gamma else None
    else:
        gamma = best_gamma(alpha, costs) if gamma is None else gamma
        tokens = tokens_per_round(alpha, gamma)
    best = None if alpha is None else best_gamma(alpha, costs)
    itl = costs[gamma] / tokens
    return Calculation(
        gamma=gamma,
        tokens_per_round=tokens,
        alpha=alpha,
        itl_ms=itl,
        speedup=costs[0] / itl,
        best_gamma=best,
        best_speedup=None if best is None or alpha is None else speedups(alpha, costs)[best],
        break_even_alpha=break_even_alpha(costs),
        notes=_notes(best, len(costs) - 1),
    )


def _notes(best: int | None, longest: int) -> tuple[str, ...]:
    """A peak at the end of what was searched may be none."""
    if not best or best < longest:
        return ()
    return (f"draft lengths were searched up to {longest} only, and there the speed-up still grows",)


def price_per_million(price_per_hour: float, tokens_per_second: float) -> float:
    """Price of a million output tokens, in the unit of price_per_hour."""
    return price_per_hour / (tokens_per_second * 3600) * 1e6


def check_gamma(gamma: int) -> None:
    """Raises InputError for a draft length that has no price."""
    if gamma < 0:
        raise InputError(f"gamma must be an integer >= 0, got {gamma}")
    if gamma > MOST:
        raise InputError(f"gamma must be at most {MOST}, got {gamma}")
