"""The state of one running request: its tokens, and how many of them are in the cache.

There is no prefill phase and no decode phase: a sequence has tokens and a count of cached rows, and each step closes
the gap between the two. Invariant: 0 <= kv_len <= len(tokens); tokens only grow, and what a view showed stays so.

Does not know: the ledger, other sequences, models. Only the scheduler writes it.
"""

from __future__ import annotations

import numpy as np

from draftproof.types import Commit, Event, FinishReason, FloatArray, Ids, Request


class SequenceState:
    """One request on its way. `seq` is its number, `order` its place in the line (arrival, then number)."""

    __slots__ = (
        "_buffer",
        "_view",
        "cached",
        "end",
        "features",
        "kv_len",
        "num_tokens",
        "order",
        "prompt_len",
        "request",
        "round",
        "running",
        "seq",
    )

    def __init__(self, seq: int, request: Request, max_len: int) -> None:
        """max_len: most tokens of prompt and output together."""
        self.seq = seq
        self.request = request
        self.order = (request.arrival, seq)
        self.prompt_len = len(request.prompt)
        self.num_tokens = self.prompt_len
        self.kv_len = 0
        self.cached = 0  # prompt rows that were there when it was first admitted
        self.round = 0
        self.running = False
        self.features: FloatArray | None = None
        cap = request.params.max_new_tokens
        self.end = max_len if cap is None else min(max_len, self.prompt_len + cap)  # tokens at which the text is full
        self._allocate(self.prompt_len + 64)
        self._buffer[: self.prompt_len] = request.prompt

    def _allocate(self, capacity: int) -> None:
        self._buffer: Ids = np.empty(capacity, np.int32)  # [capacity], the first num_tokens of it count
        self._view: Ids = self._buffer.view()
        self._view.setflags(write=False)

    @property
    def tokens(self) -> Ids:
        """int32[num_tokens], read-only: prompt and everything committed. No copy."""
        return self._view[: self.num_tokens]

    @property
    def pending(self) -> int:
        """Tokens whose rows are not in the cache yet."""
        return self.num_tokens - self.kv_len

    @property
    def num_emitted(self) -> int:
        """Tokens decided so far."""
        return self.num_tokens - self.prompt_len

    @property
    def room(self) -> int:
        """Tokens that may still be decided."""
        return self.end - self.num_tokens

    def adopt(self, rows: int) -> None:
        """So many of its rows are in the cache already."""
        self.kv_len = rows
        if self.round == 0:
            self.cached = rows

    def extend(self, tokens: Ids) -> None:
        """Appends committed tokens int32[k]; amortised constant time a token."""
        end = self.num_tokens + len(tokens)
        if end > len(self._buffer):
            old = self.tokens  # earlier views keep the old memory, and with it their contents
            self._allocate(2 * end)
            self._buffer[: len(old)] = old
        self._buffer[self.num_tokens : end] = tokens
        self.num_tokens = end


def event_of(state: SequenceState, commit: Commit) -> Event:
    """What a stream sees of a commit."""
    return Event(
        request_id=state.request.id,
        tokens=tuple(commit.tokens.tolist()),
        finish=commit.finish,
        logprobs=commit.logprobs,
        num_accepted=commit.num_accepted,
        num_drafted=commit.num_drafted,
        num_tested=commit.num_tested,
        decided=commit.verdict is not None,
        error=commit.error,
        num_cached=state.cached,
    )


def ended(state: SequenceState, finish: FinishReason) -> Event:
    """The end of a sequence that no step caused."""
    return Event(state.request.id, (), finish, decided=False)
