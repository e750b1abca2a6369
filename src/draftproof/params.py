"""What one request asks of the sampler, checked on construction: an accepted value is honoured, any other is an error.

Does not know: tokenizers (strings in bad words and stop are resolved by `LLM`), vocabularies, laws.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from draftproof.errors import InvalidParams

RuleName = Literal["auto", "reject", "block", "follow", "coupled"]
RULES: tuple[RuleName, ...] = ("auto", "reject", "block", "follow", "coupled")
# float32 logits times or over these, and sums of a million of them, are finite: a parameter makes no NaN, no infinity
LARGEST, SMALLEST = 1e30, 1e-30
_FINITE = sys.float_info.max
_FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_LARGEST_ID = 2**31 - 1  # token ids are int32


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What one request asks of the sampler. Checked on construction; nothing is ignored.

    temperature: 0 is greedy (a one-hot law, ties to the lowest id), not a mode.
    top_k, top_p, min_p: applied in this order, after the temperature; None, 1.0 and 0.0 switch them off.
    repetition_penalty: over prompt and output tokens (> 1 discourages); presence_ / frequency_penalty: over output
        tokens only, subtracted from the logits.
    logit_bias: token id -> number added to the logit; -inf forbids a token.
    These numbers, and the temperature, are at most 1e30 in size (a repetition_penalty at least 1e-30): what is beyond
        has no float32 law.
    bad_words: token id sequences (or strings, resolved by `LLM`) that must not be completed.
    min_new_tokens: stop ids are forbidden, and stop strings not looked for, before this many tokens; the cap wins.
    max_new_tokens: None is "up to the context limit".
    stop_ids: ids that end the text, beside the model's own end-of-sequence ids (dropped by ignore_eos).
    stop: strings that end the text; the text is cut before them.
    seed: None draws a fresh one; same seed, same tokens under the path-exact rules.
    logprobs: None, or how many top log-probabilities each token reports beside its own.
    logprobs_mode: "raw" of the untouched logits, "processed" of the law really sampled from.
    rule: how drafts are judged; "auto" is `follow` at temperature 0 and `coupled` above (both path-exact).
    max_draft_tokens: cap on this request's draft length; None leaves it to the engine, 0 is plain decoding.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: Sequence[str | Sequence[int]] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = 128
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    seed: int | None = None
    logprobs: int | None = None
    logprobs_mode: Literal["raw", "processed"] = "raw"
    rule: RuleName = "auto"
    max_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, holds, must in _checks(self):
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {_shown(getattr(self, name))}")
        for name in _FLOATS:  # an integer or a NumPy scalar would take part in arithmetic of another precision
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def has_processors(self) -> bool:
        """True where the logits of a row depend on more than the row: penalties, bias, bans, a minimum length."""
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
            or self.bad_words
            or self.min_new_tokens
        )

    @property
    def draws_drafts(self) -> bool:
        """True under the ratio rules: drafts are drawn, and their length may change the text (never its law)."""
        return self.temperature > 0 and self.resolved_rule in ("reject", "block")

    @property
    def resolved_rule(self) -> RuleName:
        """The rule with "auto" replaced by what it stands for."""
        if self.rule != "auto":
            return self.rule
        return "follow" if self.temperature == 0 else "coupled"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python prints no integer of more than 4300 digits
        return "an integer of thousands of digits"


def _within(value: object, low: float, high: float) -> bool:
    """A number (NaN is none) in [low, high]; comparing an integer of any size is exact."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def _integer(value: object, low: int, high: float = np.inf) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(low <= value <= high)


def _id(value: object) -> bool:
    return _integer(value, 0, _LARGEST_ID)


def _strings(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and all(map(_text, value))


def _text(value: object) -> bool:
    """A non-empty string that some text can hold: a lone surrogate never occurs in one."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= char <= "\udfff" for char in value)


def _bias(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _id(token) and (_within(number, -_FINITE, LARGEST) or number == -np.inf) for token, number in value.items()
    )


def _ids(value: object) -> bool:
    return isinstance(value, (Sequence, Set)) and not isinstance(value, str) and all(map(_id, value))


def _words(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(_text(w) or (_ids(w) and len(w) > 0) for w in value)


def _checks(p: SamplingParams) -> list[tuple[str, bool, str]]:
    """(field, does it hold, what it must be) of every parameter."""
    signed = f"a number in [{-LARGEST:g}, {LARGEST:g}]"
    return [
        ("temperature", _within(p.temperature, 0, _FINITE), "a finite number >= 0"),
        ("temperature", _within(p.temperature, 0, LARGEST), f"at most {LARGEST:g}"),
        ("top_k", p.top_k is None or _integer(p.top_k, 1), "None or an integer >= 1"),
        ("top_p", _within(p.top_p, 0, 1) and p.top_p > 0, "in (0, 1]"),
        ("min_p", _within(p.min_p, 0, 1), "in [0, 1]"),
        (
            "repetition_penalty",
            _within(p.repetition_penalty, SMALLEST, LARGEST),
            f"a number in [{SMALLEST:g}, {LARGEST:g}]",
        ),
        ("presence_penalty", _within(p.presence_penalty, -LARGEST, LARGEST), signed),
        ("frequency_penalty", _within(p.frequency_penalty, -LARGEST, LARGEST), signed),
        (
            "logit_bias",
            _bias(p.logit_bias),
            f"a mapping of token id to number, at most {LARGEST:g} (-inf forbids a token)",
        ),
        ("bad_words", _words(p.bad_words), "a sequence of non-empty strings or token id sequences"),
        ("min_new_tokens", _integer(p.min_new_tokens, 0), "an integer >= 0"),
        ("max_new_tokens", p.max_new_tokens is None or _integer(p.max_new_tokens, 0), "None or an integer >= 0"),
        ("stop_ids", _ids(p.stop_ids), "a sequence of token ids"),
        ("stop", _strings(p.stop), "a sequence of non-empty strings"),
        ("seed", p.seed is None or _integer(p.seed, 0, 2**64 - 1), "None or an integer in [0, 2**64)"),
        ("logprobs", p.logprobs is None or _integer(p.logprobs, 0), "None or an integer >= 0"),
        ("logprobs_mode", p.logprobs_mode in ("raw", "processed"), "'raw' or 'processed'"),
        ("rule", p.rule in RULES, f"one of {', '.join(RULES)}"),
        ("max_draft_tokens", p.max_draft_tokens is None or _integer(p.max_draft_tokens, 0), "None or an integer >= 0"),
    ]
