"""What a drafter brings at each draft length: acceptance, by position too, and tokens per round, with intervals.

Two estimates of the same quantities, from one pass over the data:
    estimate   expected: from the laws at every start, rounds by exact recursion (`sums`); every gamma is unbiased
    counted    rounds really run at gamma = G, read as if they had been cut to each smaller gamma: a shorter round would
               have made the next one begin earlier, on other tokens; that is not in it, so only gamma = G is exact
Acceptance counts tested drafts only: those after a refusal were never judged.

Invariant: sums over prompts first, ratios after; intervals take prompts, not tokens, as what is independent.

Does not know: costs, buckets, files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from draftproof.planner.interval import Interval, exactly, ratio_intervals
from draftproof.planner.sums import Floats, Ints, PromptSums, Starts, prompt_sums


@dataclass(frozen=True, slots=True)
class GammaEstimate:
    """What a drafter brings at one draft length."""

    gamma: int
    tokens_per_round: Interval  # with the correction or bonus token
    acceptance: Interval | None  # accepted / tested; None where nothing is tested
    by_position: tuple[Interval | None, ...]  # k = 1..gamma: accepted at k / tested at k; None where none is tested
    rounds: float
    tokens: int  # decided tokens: all but the first of each completion
    prompts: int
    drafted: float  # mean drafts a round
    drafted_histogram: tuple[float, ...]  # [gamma + 1], share of rounds with n drafts


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """Rounds really run at gamma = G, int[R] each; rounds of a prompt are contiguous."""

    prompt: Ints  # int64[R]
    drafted: Ints
    accepted: Ints
    tested: Ints  # accepted, or one more where a draft was refused
    emitted: Ints  # tokens; an ending may leave a round without its bonus token


def estimate(starts: Starts, gammas: Iterable[int] | None = None) -> list[GammaEstimate]:
    """The expected figures for each of these gammas (0..G), in their order."""
    sums = prompt_sums(starts)
    return summarise(sums, range(starts.gamma_max + 1) if gammas is None else gammas)


def counted(rounds: Rounds, gamma_max: int, gammas: Iterable[int] | None = None) -> list[GammaEstimate]:
    """The counted figures for each of these gammas (0..G), in their order."""
    return summarise(counted_sums(rounds, gamma_max), range(gamma_max + 1) if gammas is None else gammas)


def counted_sums(rounds: Rounds, gamma_max: int) -> PromptSums:
    """Sums per prompt of rounds run at gamma_max, cut to each gamma; prompts in the order of their rounds."""
    firsts = np.flatnonzero(np.diff(rounds.prompt, prepend=rounds.prompt[:1] - 1))
    sizes = np.diff(np.append(firsts, len(rounds.prompt)))
    gammas, texts = np.arange(gamma_max + 1), np.repeat(np.arange(len(firsts)), sizes)

    def at_least(values: Ints) -> Floats:
        """float[P, top + 1]: how many rounds have at least 0, 1, ... of it; all above `top` count as top."""
        top = gamma_max + 1
        places = texts * (top + 1) + np.minimum(values, top)
        counts = np.bincount(places, minlength=len(firsts) * (top + 1)).reshape(-1, top + 1)
        return counts[:, ::-1].cumsum(axis=1)[:, ::-1].astype(np.float64)

    within = gammas[1:] <= gammas[:, None]  # [gamma, k]
    tested, accepted, drafted, emitted = map(at_least, (rounds.tested, rounds.accepted, rounds.drafted, rounds.emitted))
    drafting = (drafted[:, :-1] - drafted[:, 1:])[:, None] * (gammas < gammas[:, None])
    drafting[:, gammas, gammas] = drafted[:, :-1]
    return PromptSums(
        positions=np.add.reduceat(rounds.emitted, firsts, dtype=np.float64) if len(firsts) else np.zeros(0),
        rounds=np.repeat(sizes[:, None].astype(np.float64), gamma_max + 1, axis=1),
        tokens=emitted[:, 1:].cumsum(axis=1),
        tested=tested[:, None, 1:-1] * within,
        accepted=accepted[:, None, 1:-1] * within,
        drafting=drafting,
    )


def summarise(sums: PromptSums, gammas: Iterable[int]) -> list[GammaEstimate]:
    """One estimate a gamma from the sums of some prompts."""
    wanted = list(gammas)
    pairs = [(gamma, k) for gamma in wanted for k in range(gamma)]
    g, k = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    size = len(wanted)
    accepted = [sums.accepted[:, g, k], sums.accepted[:, wanted].sum(axis=2), sums.tokens[:, wanted]]
    tested = [sums.tested[:, g, k], sums.tested[:, wanted].sum(axis=2), sums.rounds[:, wanted]]
    least = np.repeat([0.0, 1.0], [len(pairs) + size, size])
    most = np.concatenate([np.ones(len(pairs) + size), np.array(wanted, np.float64) + 1])
    found = ratio_intervals(np.concatenate(accepted, axis=1), np.concatenate(tested, axis=1), least, most)
    places, overall, tokens = iter(found), found[len(pairs) :], found[len(pairs) + size :]
    return [
        _one(sums, gamma, tokens[i] or exactly(1.0), overall[i], tuple(next(places) for _ in range(gamma)))
        for i, gamma in enumerate(wanted)
    ]


def _one(
    sums: PromptSums,
    gamma: int,
    tokens: Interval,
    acceptance: Interval | None,
    by_position: tuple[Interval | None, ...],
) -> GammaEstimate:
    rounds = float(sums.rounds[:, gamma].sum())
    drafting = sums.drafting[:, gamma, : gamma + 1].sum(axis=0) / rounds if rounds else np.eye(1, gamma + 1)[0]
    return GammaEstimate(
        gamma=gamma,
        tokens_per_round=exactly(1.0) if gamma == 0 else tokens,
        acceptance=acceptance,
        by_position=by_position,
        rounds=rounds,
        tokens=int(sums.positions.sum()),
        prompts=len(sums.rounds),
        drafted=float(drafting @ np.arange(gamma + 1)),
        drafted_histogram=tuple(drafting.tolist()),
    )
