"""float32 against transformers: every drafter's greedy text, and where it differs, why.

Invariant: a text counts as equal when each of its differences from the reference is a shown tie, and the text behind
each tie, continued from the reference's tokens, is equal too.

Does not know: sampling, 8-bit weights.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import ties
from bench.settings import Settings, open_llm
from bench.ties import Difference, Rows
from bench.worker import Worker
from draftproof import LLM, SamplingParams
from draftproof.engine.score import score
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve


@dataclass(slots=True)
class _Case:
    """One prompt: its ids, the reference's text, and what was measured along it."""

    index: int
    prompt: list[int]
    reference: list[int]
    rows: tuple[Rows, Rows] | None = None  # teacher-forced float32[N, V] of the reference and ours
    drift: float | None = None
    own_drift: float | None = None  # the reference against itself: decoding rows against teacher-forced ones


@dataclass(slots=True)
class _Text:
    """One drafter on one prompt."""

    tokens: list[int]
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return all(difference.is_tie for difference in self.differences)


class Float32Check:
    """The first half of `bench.equality`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults: list[str] = []
        self._texts: dict[tuple[str, int], _Text] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._scratch = settings.scratch / "reference"

    def run(self) -> dict[str, Any]:
        """Everything; the result as JSON-ready values."""
        settings = self._settings
        self._scratch.mkdir(parents=True, exist_ok=True)
        source = resolve("demo")
        folder = Loader(Cache(None), settings.say).folder(source)
        with ExitStack() as stack:
            log = settings.scratch / "logs" / "reference.log"
            reference = stack.enter_context(
                Worker("transformers", [sys.executable, "-m", "bench.reference", str(folder)], log)
            )
            cases = self._references(reference)
            for drafter in settings.drafters:
                settings.say(f"float32: loading {drafter}")
                with open_llm(drafter, "float32", lambda _: None) as llm:
                    self._drafter(drafter, llm, cases, reference)
                    self._count(drafter, llm)
                    if drafter == "none":
                        self._measure_drift(llm, cases, reference)
            versions = reference.hello["versions"]
        return self._result(cases, versions)

    def _references(self, reference: Worker) -> list[_Case]:
        cases = []
        for prompt in self._settings.prompts:
            self._settings.say(f"float32: transformers' own text of prompt {prompt.index}")
            ids = reference.ask("prompt", text=prompt.text)["ids"]
            case = _Case(prompt.index, ids, [])
            where, num_tokens = str(self._decoded(case)), self._settings.num_tokens
            case.reference = reference.ask("generate", ids=ids, num_tokens=num_tokens, path=where)["ids"]
            cases.append(case)
        return cases

    def _drafter(self, drafter: str, llm: LLM, cases: Sequence[_Case], reference: Worker) -> None:
        texts = {prompt.index: prompt.text for prompt in self._settings.prompts}
        for case in cases:
            self._settings.say(f"float32: {drafter}, prompt {case.index}")
            output = llm.generate(texts[case.index], _params(len(case.reference)), chat=True)[0]
            if output.prompt_token_ids != case.prompt:
                self._faults.append(f"prompt {case.index}: our chat template gives other tokens than transformers'")
                continue
            text = self._texts[drafter, case.index] = _Text(output.token_ids)
            plain = self._texts.get(("none", case.index), text)
            at = ties.first_difference(plain.tokens, text.tokens)
            if plain is not text and at is None:
                text.differences = plain.differences  # the very text that was compared before
                continue
            if at is not None:
                self._faults.append(f"{drafter}, prompt {case.index}: parts from plain decoding at token {at}")
            self._compare(drafter, text, case, llm, reference)

    def _count(self, drafter: str, llm: LLM) -> None:
        meter = llm.built.engine.meter
        self._counts[drafter] = {"drafted": meter.drafted, "accepted": meter.accepted}
        if drafter != "none" and not meter.drafted:
            self._faults.append(f"{drafter}: nothing was drafted, so nothing was shown")

    def _compare(self, drafter: str, text: _Text, case: _Case, llm: LLM, reference: Worker) -> None:
        """Walks along the reference; at each difference asks whether it is a tie, and goes on behind it."""
        begin, tokens = 0, text.tokens
        while (at := ties.first_difference(case.reference[begin:], tokens)) is not None:
            position = begin + at
            if at >= len(tokens) or position >= len(case.reference):
                self._faults.append(f"{drafter}, prompt {case.index}: {len(tokens)} tokens, not as many as asked for")
                return
            found = self._examine(case, position, tokens[at], llm, reference)
            text.differences.append(found)
            self._settings.say(f"float32: {drafter}, prompt {case.index}: {_describe(found)}")
            if not found.is_tie:
                self._faults.append(f"{drafter}, prompt {case.index}: {_describe(found)}")
                return
            begin = position + 1
            if begin == len(case.reference):
                return
            again = llm.generate(case.prompt + case.reference[:begin], _params(len(case.reference) - begin))[0]
            tokens = again.token_ids

    def _examine(self, case: _Case, position: int, our_token: int, llm: LLM, reference: Worker) -> Difference:
        self._rows(case, llm, reference)
        assert case.rows is not None
        assert case.drift is not None
        pair = (case.rows[0][position], case.rows[1][position])
        return ties.examine(position, (case.reference[position], our_token), pair, case.drift, ties.DRIFT_CEILING)

    def _rows(self, case: _Case, llm: LLM, reference: Worker) -> None:
        """Both sides' logits along the reference's text, and how far they are apart."""
        if case.rows is not None:
            return
        tokens, num_rows = case.prompt + case.reference[:-1], len(case.reference)
        path = self._scratch / f"forced-{case.index}.npy"
        reference.ask("logits", ids=tokens, num_rows=num_rows, path=str(path))
        theirs = np.load(path)
        built = llm.built
        first = len(tokens) - num_rows
        rows = score(built.engine.target, built.ledger, tokens)
        ours = np.array([row.copy() for index, row in enumerate(rows) if index >= first])
        case.rows, case.drift = (theirs, ours), ties.drift(theirs, ours)
        path.unlink()

    def _measure_drift(self, llm: LLM, cases: Sequence[_Case], reference: Worker) -> None:
        """Along every prompt's text, equal or not: the yardstick is to be there before it is needed."""
        for case in cases:
            self._settings.say(f"float32: drift along prompt {case.index}")
            self._rows(case, llm, reference)
            assert case.rows is not None
            assert case.drift is not None
            decoded = self._decoded(case)
            case.own_drift = ties.drift(np.load(decoded), case.rows[0])
            decoded.unlink()
            case.rows = None  # 50 MB a prompt; made again where a later drafter differs
            if case.drift > ties.DRIFT_CEILING:
                self._faults.append(f"prompt {case.index}: logits drift by {case.drift:.2e}: rounding can't explain it")

    def _decoded(self, case: _Case) -> Path:
        return self._scratch / f"decoded-{case.index}.npy"

    def _result(self, cases: Sequence[_Case], versions: dict[str, str]) -> dict[str, Any]:
        checks = []
        for drafter in self._settings.drafters:
            texts = [self._texts[drafter, case.index] for case in cases if (drafter, case.index) in self._texts]
            checks.append(
                {
                    "what": f"greedy, {drafter} against transformers",
                    "compared": len(cases),
                    "equal": sum(text.is_equal for text in texts),
                    "ties": sum(len(text.differences) for text in texts if text.is_equal),
                    **self._counts[drafter],
                }
            )
        return {
            "reference": versions,
            "drift_ceiling": ties.DRIFT_CEILING,
            "drift": [
                {"prompt": case.index, "ours_against_transformers": case.drift, "transformers_itself": case.own_drift}
                for case in cases
            ],
            "checks": checks,
            "differences": [
                {"drafter": drafter, "prompt": index, **difference.as_dict()}
                for (drafter, index), text in self._texts.items()
                for difference in text.differences
            ],
            "faults": self._faults,
        }


def _params(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)


def _describe(found: Difference) -> str:
    verdict = "a tie within the drift" if found.is_tie else "NOT a tie"
    return (
        f"token {found.position} is {found.our_token}, transformers has {found.reference_token}; logits there "
        f"{found.our_logits[1]:.6f} > {found.our_logits[0]:.6f} (ours), {found.reference_logits[0]:.6f} > "
        f"{found.reference_logits[1]:.6f} (transformers); gaps {found.our_gap:.1e} and {found.reference_gap:.1e}, "
        f"drift {found.drift:.1e}: {verdict}"
    )
