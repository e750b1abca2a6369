"""The recursion against the process itself: expectation over every text, walked round by round.

The target's law, the draft's law and the draft budget are random functions of the prefix over three tokens, one of
which may end the text. `process` walks rounds over prefixes and adds up what happens, with its probability; the
estimator sees finished texts only. Both must have the same expectation, for each count and each gamma.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from draftproof.planner.sums import Starts, prompt_sums

V, MOST, GAMMA, END = 3, 5, 3, 2
Prefix = tuple[int, ...]


class Process:
    """Laws and budgets by prefix; `rule` is "reject" (drafts drawn) or "fixed" (one draft token a prefix)."""

    def __init__(self, rule: str, ends: bool, seed: int) -> None:
        self.rule, self.ends = rule, ends
        self._rng, self._known = np.random.default_rng(seed), {}

    def law(self, prefix: Prefix, whose: str = "target") -> np.ndarray:
        if (whose, prefix) not in self._known:
            self._known[whose, prefix] = self._rng.dirichlet(np.ones(V))
        return self._known[whose, prefix]

    def budget(self, prefix: Prefix) -> int:
        if prefix not in self._known:
            self._known[prefix] = int(self._rng.integers(0, GAMMA + 1))
        return min(self._known[prefix], MOST - 1 - len(prefix)) if prefix else 0

    def is_over(self, text: Prefix) -> bool:
        return len(text) == MOST or (self.ends and bool(text) and text[-1] == END)

    def accepted_mass(self, prefix: Prefix) -> np.ndarray:
        """float[V]: the chance that the next draft is this token and is accepted."""
        p, q = self.law(prefix), self.law(prefix, "draft")
        return np.minimum(p, q) if self.rule == "reject" else np.where(np.arange(V) == q.argmax(), p, 0)

    def texts(self, text: Prefix = (), chance: float = 1.0) -> Iterator[tuple[Prefix, float]]:
        if self.is_over(text):
            yield text, chance
            return
        for token in range(V):
            yield from self.texts((*text, token), chance * self.law(text)[token])

    def rows(self, text: Prefix) -> Iterator[tuple[int, list[float], list[float]]]:
        """(offered, keep, accept) of each start of a finished text, as they are stored."""
        for start in range(1, len(text)):
            offered, keep, accept = self.budget(text[:start]), [0.0] * GAMMA, [0.0] * GAMMA
            for k in range(min(offered, len(text) - start)):
                prefix, token = text[: start + k], text[start + k]
                mass = self.accepted_mass(prefix)
                keep[k], accept[k] = mass[token] / self.law(prefix)[token], mass.sum()
                if keep[k] == 0:
                    break
            yield offered, keep, accept


class Counts:
    """rounds, tokens, tested[k], accepted[k], drafting[n], added up with their chances."""

    def __init__(self, process: Process, gamma: int) -> None:
        self.process, self.gamma = process, gamma
        self.rounds = self.tokens = 0.0
        self.tested, self.accepted, self.drafting = np.zeros(GAMMA), np.zeros(GAMMA), np.zeros(GAMMA + 1)
        self._round((), 1.0)

    def _round(self, text: Prefix, chance: float) -> None:
        if self.process.is_over(text) or chance == 0:
            return
        drafts = min(self.process.budget(text), self.gamma)
        if text:
            self.rounds += chance
            self.drafting[drafts] += chance
        self._depth(text, 0, drafts, chance)

    def _depth(self, text: Prefix, depth: int, drafts: int, chance: float) -> None:
        """The next token of a round, after `depth` accepted drafts."""
        if self.process.is_over(text) or chance == 0:
            return
        law, mass = self.process.law(text), np.zeros(V)
        if depth < drafts:
            mass = self.process.accepted_mass(text)
            self.tested[depth] += chance
            self.accepted[depth] += chance * mass.sum()
        self.tokens += chance if text else 0
        for token in range(V):
            self._depth((*text, token), depth + 1, drafts, chance * mass[token])
            self._round((*text, token), chance * (law[token] - mass[token]))


def _starts(process: Process) -> tuple[Starts, np.ndarray]:
    """Every possible text as one prompt, and the texts' probabilities."""
    found = [(chance, list(process.rows(text))) for text, chance in process.texts()]
    found = [(chance, rows) for chance, rows in found if rows]
    owner = np.repeat(np.arange(len(found)), [len(rows) for _, rows in found])
    offered, keep, accept = zip(*(row for _, rows in found for row in rows), strict=True)
    arrays = np.array(offered, np.int16), np.array(keep, np.float32), np.array(accept, np.float32)
    return Starts(owner, *arrays), np.array([chance for chance, _ in found])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("rule", ["reject", "fixed"])
def test_has_the_expectation_of_real_rounds(rule: str, ends: bool, seed: int) -> None:
    process = Process(rule, ends, seed)
    starts, chances = _starts(process)
    sums = prompt_sums(starts)
    for gamma in range(GAMMA + 1):
        counts = Counts(process, gamma)
        for name in ("rounds", "tokens", "tested", "accepted", "drafting"):
            mean = np.tensordot(chances, getattr(sums, name)[:, gamma], axes=1)
            np.testing.assert_allclose(mean, getattr(counts, name), atol=1e-7, err_msg=f"{name} at gamma {gamma}")
        assert counts.tokens == pytest.approx(float(chances @ sums.positions)), "every decided token comes from a round"


def test_acceptance_is_one_minus_total_variation() -> None:
    """Known laws: whatever the texts say, the expected acceptance is 1 - TV(p, q), to 1e-6."""
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(50), 2)
    token = rng.choice(50, p=p, size=4000)
    keep = np.minimum(1, q / p)[token]
    rows = np.lib.stride_tricks.sliding_window_view(keep, GAMMA)[:-1]
    alpha = 1 - 0.5 * np.abs(p - q).sum()
    accept = np.full(rows.shape, alpha, np.float32)
    starts = Starts(np.arange(len(rows)) // 100, np.full(len(rows), GAMMA, np.int16), rows.astype(np.float32), accept)
    sums = prompt_sums(starts)
    found = sums.accepted.sum(axis=0) / np.where(sums.tested.sum(axis=0) > 0, sums.tested.sum(axis=0), 1)
    for gamma in range(1, GAMMA + 1):
        np.testing.assert_allclose(found[gamma, :gamma], alpha, atol=1e-6)


def _walk(offered: np.ndarray, keep: np.ndarray, gamma: int) -> dict[str, np.ndarray]:
    """One text with keep 0 or 1, round by round."""
    counts = {"rounds": 0, "tokens": 0}
    tested, accepted, drafting = np.zeros(keep.shape[1]), np.zeros(keep.shape[1]), np.zeros(keep.shape[1] + 1)
    start = 0
    while start < len(keep):
        drafts, kept = min(offered[start], gamma), 0
        counts["rounds"] += 1
        drafting[drafts] += 1
        while kept < drafts and start + kept < len(keep):
            tested[kept] += 1
            if not keep[start, kept]:
                break
            accepted[kept] += 1
            kept += 1
        emitted = min(kept + 1, len(keep) - start)
        counts["tokens"] += emitted
        start += emitted
    return {**counts, "tested": tested, "accepted": accepted, "drafting": drafting}


@pytest.mark.parametrize("gamma_max", [1, 4, 8])
def test_equals_a_literal_walk_where_nothing_is_random(gamma_max: int) -> None:
    rng = np.random.default_rng(gamma_max)
    lengths = rng.integers(1, 40, 50)
    owner = np.repeat(np.arange(50), lengths)
    left = np.concatenate([np.arange(length, 0, -1) for length in lengths])
    offered = np.minimum(rng.integers(0, gamma_max + 1, len(owner)), left)  # up to the end: an end id may be drafted
    depth = np.arange(gamma_max)
    keep = (rng.random((len(owner), gamma_max)) < 0.7) & (depth < offered[:, None])
    keep = np.logical_and.accumulate(keep, axis=1).astype(np.float32)
    sums = prompt_sums(Starts(owner, offered.astype(np.int16), keep, keep))
    for prompt in range(50):
        mine = owner == prompt
        for gamma in range(gamma_max + 1):
            for name, wanted in _walk(offered[mine], keep[mine], gamma).items():
                np.testing.assert_array_equal(getattr(sums, name)[prompt, gamma], wanted, err_msg=name)


def test_many_prompts_equal_each_alone() -> None:
    """More prompts than advance together, more rows than are multiplied together."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 12, 2500)
    owner = np.repeat(rng.permutation(2500), lengths)
    keep = rng.random((len(owner), 2), np.float32)
    starts = Starts(owner, np.full(len(owner), 2, np.int16), keep, keep)
    sums = prompt_sums(starts)
    ends = np.cumsum(lengths)
    for prompt in (0, 1, 1234, 2499):
        rows = slice(ends[prompt] - lengths[prompt], ends[prompt])
        alone = prompt_sums(Starts(owner[rows], starts.offered[rows], keep[rows], keep[rows]))
        for name in ("positions", "rounds", "tokens", "tested", "accepted", "drafting"):
            np.testing.assert_allclose(getattr(sums, name)[prompt], getattr(alone, name)[0], rtol=1e-12)


def test_gamma_0_and_nothing() -> None:
    none = Starts(
        np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)
    )
    assert prompt_sums(none).rounds.shape == (0, 4)
    empty = np.zeros((5, 0), np.float32)
    plain = prompt_sums(Starts(np.array([1, 1, 1, 0, 0]), np.zeros(5, np.int16), empty, empty))
    np.testing.assert_array_equal(plain.rounds, [[3], [2]])
    np.testing.assert_array_equal(plain.tokens, [[3], [2]])


def test_refuses_torn_prompts_and_shapes_that_do_not_fit() -> None:
    lists = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="contiguous"):
        Starts(np.array([0, 1, 0]), np.zeros(3, np.int16), lists, lists)
    with pytest.raises(ValueError, match="3 prompts, 2 offered"):
        Starts(np.array([0, 0, 0]), np.zeros(2, np.int16), lists, lists)
