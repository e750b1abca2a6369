"""Events of one request -> its growing text, counts and final output.

Stop strings are text, so they are found here: ids, log-probabilities, counts and text are cut at the same token.

Does not know: sequences, pages, other requests.
"""

from __future__ import annotations

import time
from collections import Counter

from draftproof.engine.outputs import Output, Speculation, StreamChunk, Timing
from draftproof.text.stream import TextStream
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Event, FinishReason, Request, TokenLogprobs


class Collector:
    """One request from submission to output."""

    def __init__(self, request: Request, tokenizer: Tokenizer, drafter: str, load_s: float) -> None:
        params = request.params
        self.request = request
        self._drafter = drafter
        self._load_s = load_s
        self._stream = TextStream(tokenizer, params.stop, params.min_new_tokens)
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprobs] = []
        self._counts: Counter[str] = Counter()
        self._accepted_at: Counter[int] = Counter()
        self._begin = time.perf_counter()
        self._first: float | None = None
        self._num_first = 0
        self._last = self._begin
        self.finish: FinishReason | None = None
        self._error: str | None = None
        self._cached = 0

    @property
    def done(self) -> bool:
        """True when the output is final."""
        return self.finish is not None

    def take(self, event: Event) -> StreamChunk:
        """Adds one event. Afterwards `done` may be True although the engine goes on: then cancel the sequence."""
        if self.done:
            return StreamChunk("", (), 0)
        tokens = list(event.tokens)
        shown = tokens[:-1] if event.finish == "stop" else tokens  # the end id is counted, and is no text
        delta = self._stream.push(shown, finished=event.finish is not None)
        finish, kept = event.finish, len(tokens)
        if delta.stop_hit is not None:
            kept = delta.stop_hit.num_tokens - len(self._tokens)
            finish = "stop"
        self._add(event, tokens[:kept])
        self._texts.append(delta.text)
        self.finish, self._error, self._cached = finish, event.error, event.num_cached
        accepted = min(event.num_accepted, kept)
        output = self.output() if self.done else None
        return StreamChunk(delta.text, tuple(tokens[:kept]), accepted, output)

    def _add(self, event: Event, tokens: list[int]) -> None:
        now = time.perf_counter()
        if tokens and self._first is None:
            self._first, self._num_first = now, len(tokens)
        if tokens:
            self._last = now
        self._tokens += tokens
        self._logprobs += event.logprobs[: len(tokens)]
        if not event.decided or not tokens:
            return
        accepted = min(event.num_accepted, len(tokens))
        self._counts.update(
            rounds=1,
            drafting=int(event.num_drafted > 0),
            drafted=event.num_drafted,
            tested=min(event.num_tested, len(tokens)),
            accepted=accepted,
        )
        self._accepted_at.update(range(accepted))

    def output(self) -> Output:
        """The final output; only when `done`."""
        assert self.finish is not None
        params = self.request.params
        assert params.seed is not None
        return Output(
            text="".join(self._texts),
            token_ids=list(self._tokens),
            prompt_token_ids=self.request.prompt.tolist(),
            finish_reason=self.finish,
            logprobs=None if params.logprobs is None else list(self._logprobs),
            speculation=self._speculation(),
            timing=self._timing(),
            seed=params.seed,
            error=self._error,
            cached_tokens=self._cached,
        )

    def _speculation(self) -> Speculation:
        counts = self._counts
        positions = range(max(self._accepted_at, default=-1) + 1)
        rounds, drafting = counts["rounds"], counts["drafting"]
        return Speculation(
            drafter=self._drafter,
            rule=self.request.params.resolved_rule,
            rounds=rounds,
            drafting_rounds=drafting,
            drafted=counts["drafted"],
            tested=counts["tested"],
            accepted=counts["accepted"],
            acceptance=counts["accepted"] / counts["tested"] if counts["tested"] else None,
            draft_acceptance_rate=counts["accepted"] / counts["drafted"] if counts["drafted"] else None,
            acceptance_by_position=tuple(self._accepted_at[i] / drafting for i in positions),
            tokens_per_round=len(self._tokens) / rounds if rounds else None,
        )

    def _timing(self) -> Timing:
        if self._first is None:
            return Timing(self._load_s, None, 0.0, None)
        decode_s = self._last - self._first
        later = len(self._tokens) - self._num_first
        return Timing(self._load_s, self._first - self._begin, decode_s, later / decode_s if decode_s > 0 else None)
