"""Alarms -> the kind of fault they point to, and where in the round.

From the most particular to the most general: a broken hypothesis of the theorem (what drafts are drawn from, the coin,
the residual) says more than a law that is missed, and a law missed at one place more than one missed everywhere.
A kind is a pointer for whoever mends it; the alarms themselves are the evidence.

Does not know: engines; how an alarm came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.certify.features import HISTORY, TRUNCATION
from draftproof.certify.results import Result

_HISTORY = ("features.history.", *(f"features.identity.{feature}" for feature in HISTORY))

KINDS = {
    "ending": "a text goes on past its end, or ends elsewhere than plain decoding's",
    "rules": "the installed rule does not emit the target's law on small cases",
    "draft_law": "drafts are not drawn from the law they are reported with: raw instead of truncated, soft instead of "
    "argmax, another temperature or precision, or tokens dropped after they were drawn",
    "siblings": "a sibling is not judged against what its elders left of the target's law, or its law is not its own",
    "acceptance": "drafts are accepted with another chance than min(1, p/q), or than theorem 6's in a chain "
    "judged as a whole",
    "round_state": "only later places of a round go wrong: a number used twice, a row of another node, or a history "
    "that stands still",
    "history": "penalties, bias or bans do not follow each candidate's own history",
    "correction": "the token after a refusal is not drawn from what the refused drafts left of the target's law",
    "bonus": "the token after full acceptance is not the target's: a wrong row",
    "parameters": "tokens that no draft touched miss the law as well: parameters, or the target itself",
    "excluded_tokens": "tokens are emitted that the target's law excludes: parameters hold on one side only",
    "not_identical": "the text is not plain decoding's, though it is promised to be",
    "numerics": "logits that are declared bit-exact depend on what else is in the step",
    "log_probabilities": "reported log-probabilities are not those of the token's row",
    "seeds": "the same seed does not give the same text again",
    "law": "emitted tokens miss the target's law; the place is not known",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """kind: of KINDS. place: of the round, like "correction" or "accept@2". test: the alarm that names it.

    tests: all alarms.
    """

    kind: str
    place: str
    test: str
    tests: tuple[str, ...]


def diagnose(results: Sequence[Result]) -> Fault | None:
    """None without an alarm."""
    alarms = [result for result in results if result.alarm]
    if not alarms:
        return None
    kind, named = _kind(alarms)
    return Fault(kind, _place(named), named.test, tuple(result.test for result in alarms))


def _place(named: Result) -> str:
    """Where in the round; of a text that differs, where its first different token came from."""
    differences = named.detail.get("differences") or [{}]
    return differences[0].get("place") or named.place


def _kind(alarms: Sequence[Result]) -> tuple[str, Result]:
    placed = [alarm for alarm in alarms if alarm.test.startswith("fit.")]
    history = [alarm for alarm in alarms if alarm.test.startswith(_HISTORY)]
    for prefix, kind in (
        ("endings", "ending"),
        ("oracle", "rules"),
        ("invariance", "numerics"),
        ("features.logprobs", "log_probabilities"),
        ("features.seeds", "seeds"),
    ):
        for alarm in alarms:
            if alarm.test.startswith(prefix):
                return kind, alarm
    if placed:
        return _placed(placed)
    if history:
        return "history", history[0]
    return _rest(alarms)


def _placed(alarms: Sequence[Result]) -> tuple[str, Result]:
    """By the place of a conditional fit."""
    by_place = {alarm.place: alarm for alarm in alarms}

    def first(*places: str) -> Result | None:
        return next((by_place[place] for place in places if place in by_place), None)

    if (found := first("draft")) is not None:
        return "draft_law", found
    if (found := first("younger")) is not None and first("accept@1", "accept@2") is None:
        return "siblings", found
    early = first("accept@1", "tested@1")
    later = first("accept@2", "chain", "tested@2", "tested@3")
    if (found := first("accept@1", "coin_sides")) is not None:
        return "acceptance", found
    if early is None and later is not None:
        return "round_state", later
    if (found := first("correction")) is not None:
        return "correction", found
    if early is not None:
        return "acceptance", early
    if "plain" in by_place:
        return "parameters", by_place["plain"]
    if (found := first("bonus")) is not None:
        return "bonus", found
    if (found := first("support")) is not None:
        return "excluded_tokens", found
    return "law", alarms[0]


def _rest(alarms: Sequence[Result]) -> tuple[str, Result]:
    for alarm in alarms:
        if alarm.test.startswith("features.identity."):
            return ("parameters" if alarm.place in TRUNCATION else "ending"), alarm
        if alarm.test.startswith("features."):
            return _placed([a for a in alarms if a.test.startswith("features.")])
        if alarm.test.startswith("identity"):
            return "not_identical", alarm
    return "law", alarms[0]
