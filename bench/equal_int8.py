"""int8 against our own plain decoding: every drafter, greedy and coupled, alone and in a batch, whole and chunked.

The truth is plain decoding (drafter none), one request alone. Under invariant numerics every other way to the same
text is the same computation to the last bit, so a single differing token is a fault.

Does not know: transformers, ties: nothing is excused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench import ties
from bench.groups import SEED
from bench.settings import Settings, open_llm, set_chunk
from bench.turns import BATCH
from bench.workloads import Prompt
from draftproof import LLM, SamplingParams

_LAWS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "coupled 0.8": {"temperature": 0.8, "seed": SEED, "rule": "coupled"},
}
_WHOLE = (1024, 8192)  # rows of one prompt in a step, rows of a step: all prompts in one piece
_CHUNKS = (24, 640)  # less than any of the prompts has


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to run the prompts."""

    name: str
    batch: int
    rows: tuple[int, int]  # as in `settings.set_chunk`


_ALONE = _Way("alone", 1, _WHOLE)
_ALONE_CHUNKED = _Way("alone, prompts in chunks", 1, _CHUNKS)
_BATCH = _Way("eight at once", BATCH, _WHOLE)
_BATCH_CHUNKED = _Way("eight at once, prompts in chunks", BATCH, _CHUNKS)
_CHUNKED_ALONE_TOO = ("none", "suffix")  # for the other drafters the batch shows it: chunks there, too


def _ways(drafter: str) -> Iterator[_Way]:
    yield _ALONE
    if drafter in _CHUNKED_ALONE_TOO:
        yield _ALONE_CHUNKED
    yield _BATCH
    yield _BATCH_CHUNKED


class Int8Check:
    """The second half of `bench.equality`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._truth: dict[tuple[str, int], list[int]] = {}  # (law, prompt) -> tokens
        self._checks: list[dict[str, Any]] = []
        self._faults: list[str] = []

    def run(self) -> dict[str, Any]:
        """Everything; the result as JSON-ready values."""
        for drafter in self._settings.drafters:  # "none" comes first: its texts are the truth
            self._settings.say(f"int8: loading {drafter}")
            with open_llm(drafter, "int8", lambda _: None) as llm:
                for law in _LAWS:
                    for way in _ways(drafter):
                        self._check(llm, drafter, law, way)
        return {"checks": self._checks, "faults": self._faults}

    def _check(self, llm: LLM, drafter: str, law: str, way: _Way) -> None:
        what = f"{law}, {drafter}, {way.name}"
        set_chunk(llm, *way.rows)
        meter = llm.built.engine.meter
        meter.reset()
        num_tokens = self._settings.num_tokens // (1 if law == "greedy" else 2)  # the whole is to stay within minutes
        params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True, **_LAWS[law])
        prompts = self._settings.prompts if way.batch == 1 else _mixed(self._settings.prompts, way.batch)
        equal = 0
        for start in range(0, len(prompts), way.batch):
            some = prompts[start : start + way.batch]
            self._settings.say(f"int8: {what}, prompt {', '.join(str(prompt.index) for prompt in some)}")
            outputs = llm.generate([prompt.text for prompt in some], params, chat=True)
            for prompt, output in zip(some, outputs, strict=True):
                truth = self._truth.setdefault((law, prompt.index), output.token_ids)
                equal += self._holds(llm, what, prompt, truth, output.token_ids, output.prompt_token_ids)
        if drafter != "none" or way is not _ALONE:  # that one is the truth itself
            counts = {"drafted": meter.drafted, "accepted": meter.accepted}
            self._checks.append({"what": what, "compared": len(prompts), "equal": equal, **counts})
        if drafter != "none" and not meter.drafted:
            self._faults.append(f"{what}: nothing was drafted, so nothing was shown")

    def _holds(
        self, llm: LLM, what: str, prompt: Prompt, truth: list[int], tokens: list[int], ids: Sequence[int]
    ) -> bool:
        at = ties.first_difference(truth, tokens)
        if at is None:
            return True
        self._faults.append(f"{what}, prompt {prompt.index}: {_shown(llm, ids, truth, tokens, at)}")
        self._settings.say(f"FAULT {self._faults[-1]}")
        return False


def _shown(llm: LLM, ids: Sequence[int], truth: list[int], tokens: list[int], at: int) -> str:
    """The first difference with the target's logits there."""
    if at >= min(len(truth), len(tokens)):
        return f"{len(tokens)} tokens instead of {len(truth)}"
    row = llm.logits_at(ids, truth, at)
    both = (f"{name} {text[at]} (logit {row[text[at]]:.6f})" for name, text in (("plain", truth), ("got", tokens)))
    return f"differs at token {at}: {', '.join(both)}"


def _mixed(prompts: Sequence[Prompt], size: int) -> list[Prompt]:
    """The first `size` prompts, the longest beside the shortest: neighbours of very different lengths."""
    by_length = sorted(prompts, key=lambda prompt: len(prompt.text))
    ends = [*by_length[: size // 2], *by_length[::-1][: size - size // 2]]
    return list(dict.fromkeys(ends))
