"""Faults planted in the production code path, each as a context manager over monkeypatch. None of them is in src."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from draftproof.drafters import choice as choosing
from draftproof.drafters.scripted import LawDrafter
from draftproof.rules import nodes as node_module
from draftproof.rules.coins import RoundCoins, draw
from draftproof.rules.warp import History, warp
from draftproof.sched import stop
from draftproof.types import Draft, Verdict

deciding = importlib.import_module("draftproof.rules.decide")
rejecting = importlib.import_module("draftproof.rules.reject")
blocking = importlib.import_module("draftproof.rules.block")


def truncated(law: Any, top_p: float) -> Any:
    with np.errstate(divide="ignore"):
        logits = np.log(law)
    from draftproof.types import SamplingParams

    return warp(logits, SamplingParams(temperature=1.0, top_p=top_p)).law(len(law))


def raw_law_in_the_ratio(patch: Any) -> None:
    """Drawn after top-p, reported from before it."""

    patch.setattr(choosing, "warp", lambda row, params: warp(row, replace(params, top_p=1.0)))
    patch.setattr(choosing, "draw", lambda law, uniform: draw(truncated(law, 0.7), uniform))


def soft_law_of_argmax(patch: Any) -> None:
    patch.setattr(choosing, "draw", lambda law, uniform: int(np.argmax(law)))


def draft_without_temperature(patch: Any) -> None:
    """Drawn at temperature 1, reported at 0.5."""
    patch.setattr(choosing, "draw", lambda law, uniform: draw(np.sqrt(law), uniform))


def bfloat16(row: Any) -> Any:
    bits = row.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def draft_in_bfloat16(patch: Any) -> None:
    """Drawn from rounded logits, reported in full; the case of B09: 64 and 64.25 round to the same number."""

    def rounded(law: Any, uniform: float) -> int:
        logits = bfloat16(np.array([64.0, 64.25])).astype(np.float64)
        return draw(np.exp(logits - 64), uniform)

    patch.setattr(choosing, "draw", rounded)


def unsure_tokens_dropped(patch: Any) -> None:
    """A drawn token that its own law finds unlikely is not proposed (D2)."""
    original = choosing.Choice.extend

    def extend(self: Any, row: Any) -> None:
        before = len(self.tokens)
        original(self, row)
        if len(self.tokens) > before and self._laws[before][self.tokens[-1]] < 0.15:
            self.tokens.pop()
            self.ended = True

    patch.setattr(choosing.Choice, "extend", extend)


class OneNumber(RoundCoins):
    """All tests of a round share one uniform number."""

    def accept(self, node: int, target_mass: float, draft_mass: float) -> bool:
        return bool(self._numbers[2] * float(draft_mass) < float(target_mass))


def one_number_for_all_tests(patch: Any) -> None:
    patch.setattr(deciding, "RoundCoins", OneNumber)


class Undivided(RoundCoins):
    """Draws as if the weights summed to 1: what is missing falls to the last token."""

    def draw(self, node: int, weights: Any) -> int:
        spread = np.array(weights)
        spread[-1] += max(0.0, 1 - spread.sum())
        return super().draw(node, spread)


def residual_not_renormalised(patch: Any) -> None:
    patch.setattr(deciding, "RoundCoins", Undivided)
    patch.setattr(rejecting, "residual", lambda p, q: np.maximum(p - q, 0))


def residual_through_a_softmax(patch: Any) -> None:
    def softmax(p: Any, q: Any) -> Any:
        left = np.exp(np.maximum(p - q, 0))
        return left / left.sum()

    patch.setattr(rejecting, "residual", softmax)


def redraw_from_the_target(patch: Any) -> None:
    patch.setattr(rejecting, "residual", lambda p, q: p)


def siblings_without_renormalising(patch: Any) -> None:
    patch.setattr(rejecting, "residual", lambda p, q: left if (left := np.maximum(p - q, 0)).sum() > 0 else None)


def penalties_frozen(patch: Any) -> None:
    """Every node of a round sees the history of the round's start."""
    patch.setattr(node_module.Nodes, "history", lambda self, node: History(self.item.tokens, self.item.prompt_len))


def bonus_from_the_wrong_row(patch: Any) -> None:
    """The row before the last draft token, for the last node of a chain."""
    original = deciding.reject

    def reject(draft: Draft, law: Callable[[int], Any], coins: Any) -> Verdict:
        last = len(draft)
        return original(draft, lambda node: law(node - 1 if node == last and node else node), coins)

    patch.setattr(deciding, "reject", reject)


def first_draft_unverified(patch: Any) -> None:
    original = deciding.RoundCoins

    class Lenient(original):  # type: ignore[misc, valid-type]
        def accept(self, node: int, target_mass: float, draft_mass: float) -> bool:
            return node == 1 or super().accept(node, target_mass, draft_mass)

    patch.setattr(deciding, "RoundCoins", Lenient)


def distinct_judged_as_independent(patch: Any) -> None:
    patch.setattr(rejecting, "without", lambda law, elders: law)


def ending_ignored_inside_a_round(patch: Any) -> None:
    """Only the last token of a run is looked at."""
    original = stop._ending

    def ending(item: Any, run: list[int], max_len: int) -> Any:
        blind = [-1] * (len(run) - 1) + run[-1:]
        return original(item, blind, max_len)

    patch.setattr(stop, "_ending", ending)


def block_correction_from_the_target(patch: Any) -> None:
    """The token after a refusal is drawn from the target's law, not from what the chain left of it."""
    original = blocking.block

    def block(draft: Draft, target_law: Callable[[int], Any], coins: Any) -> Verdict:
        verdict = original(draft, target_law, coins)
        if verdict.source == "bonus":
            return verdict
        last = len(verdict.path)
        return replace(verdict, next_token=coins.draw(last, target_law(last)))

    patch.setattr(deciding, "block", block)


def block_weights_not_capped(patch: Any) -> None:
    """A likely token pays for an unlikely one after it."""

    def weights(tokens: Any, laws: Any, draft_laws: Any) -> list[Any]:
        found = [1.0]
        for token, law, draft_law in zip(tokens, laws, draft_laws, strict=False):
            found.append(found[-1] * float(law[token]) / float(draft_law[token]))
        return [min(each, 1.0) for each in found]

    patch.setattr(blocking, "_weights", weights)


def block_judged_with_one_number(patch: Any) -> None:
    patch.setattr(deciding, "RoundCoins", OneNumber)


class DependentSiblings(LawDrafter):
    """Draws until the candidates differ and keeps the last two: a choice made after seeing them (D2)."""

    def _draw(self, item: Any, noise: Any) -> Draft:
        draft = super()._draw(item, noise)
        if len(draft) == 2 and draft.tokens[0] == draft.tokens[1]:
            number = float(noise.uniform(item.seed, "draft", item.round + 100_000, 1)[0])
            tokens = np.array([draft.tokens[0], draw(self._laws[0], number)], np.int32)
            return Draft(tokens, draft.parents, "iid", draft.laws, draft.law_row)
        return draft


SIBLING_LAW = [0.6, 0.3, 0.1]  # of B15, with the target's


def two_siblings(kind: str = "iid") -> LawDrafter:
    return LawDrafter([SIBLING_LAW], kind, parents=[0, 0], law_row=[0, 0])


@dataclass
class Case:
    """A fault, where it is planted, and what kind it must be found as."""

    plant: Callable[[Any], None]
    kinds: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    toy: dict[str, Any] = field(default_factory=dict)
    drafter: Callable[[], Any] | str = "model"
    tokens: int = 1600
    tests: tuple[str, ...] = ("fit",)

    @property
    def name(self) -> str:
        return self.plant.__name__


def siblings_chosen_after_the_draw(patch: Any) -> None:
    """The fault is in the drafter itself (`DependentSiblings`)."""


THREE = {"vocab_size": 3, "constant": tuple(np.log([0.1, 0.4, 0.5]).tolist())}
CASES = [
    Case(raw_law_in_the_ratio, ("draft_law",), {"top_p": 0.7}),
    Case(soft_law_of_argmax, ("draft_law",)),
    Case(draft_without_temperature, ("draft_law",), {"temperature": 0.5}),
    Case(draft_in_bfloat16, ("draft_law",), toy={"vocab_size": 2, "constant": (64.0, 64.25)}, tokens=9000),
    Case(unsure_tokens_dropped, ("draft_law",)),
    Case(one_number_for_all_tests, ("round_state",), toy={"gamma": 4, "like": 0.9}, tokens=4000),
    Case(residual_not_renormalised, ("correction",)),
    Case(residual_through_a_softmax, ("correction",)),
    Case(redraw_from_the_target, ("correction",), toy={"like": 1.2}),
    Case(penalties_frozen, ("history",), toy={"like": 0.3}, tests=("fit", "features"), tokens=1000),
    Case(bonus_from_the_wrong_row, ("bonus",), toy={"like": 0.3}),
    Case(first_draft_unverified, ("acceptance",)),
    Case(ending_ignored_inside_a_round, ("ending",), toy={"like": 0.3}, tests=("fit",), tokens=600),
    Case(block_correction_from_the_target, ("correction",), {"rule": "block"}, toy={"like": 1.2}),
    Case(block_weights_not_capped, ("acceptance", "round_state"), {"rule": "block"}, toy={"gamma": 4}, tokens=2500),
    Case(
        block_judged_with_one_number,
        ("acceptance", "round_state"),
        {"rule": "block"},
        toy={"gamma": 4, "like": 0.9},
        tokens=4000,
    ),
    Case(siblings_without_renormalising, ("siblings",), toy=THREE, drafter=two_siblings, tokens=4000),
    Case(
        distinct_judged_as_independent, ("siblings",), toy=THREE, drafter=lambda: two_siblings("distinct"), tokens=4000
    ),
    Case(
        siblings_chosen_after_the_draw,
        ("draft_law",),
        toy=THREE,
        drafter=lambda: DependentSiblings([SIBLING_LAW], "iid", parents=[0, 0], law_row=[0, 0]),
        tokens=4000,
    ),
]
