"""Rounds really run: texts written by the engine with one drafter, and how each of their tokens came.

A token is *plain* (its round had no draft), *accepted* (a draft that was kept), a *correction* (the target's, after a
refusal) or a *bonus* (the target's, after full acceptance). `round` counts from 0 within a text, `depth` the accepted
drafts before the token in its round, `drafted` the drafts its round really made.

Invariant: one entry for each token, also where a stop string or an id ends the text inside a round.
Does not know: laws, other drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from draftproof.engine.step import Engine
from draftproof.errors import EngineError
from draftproof.text.stream import TextStream
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Event, Request

OUTCOMES = ("plain", "accepted", "correction", "bonus")
PLAIN, ACCEPTED, CORRECTION, BONUS = range(4)
Tick = Callable[[int], None]


@dataclass(slots=True, eq=False)
class Rounds:
    """One text's tokens and, for each, its round, depth, outcome (index into OUTCOMES) and its round's drafts."""

    tokens: list[int] = field(default_factory=list)
    round: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    num_rounds: int = 0
    finish: str | None = None

    def add(self, tokens: Sequence[int], num_accepted: int, last: int, num_drafted: int) -> None:
        """One round: its first num_accepted tokens were accepted drafts, the one after them, if any, is `last`."""
        for depth, token in enumerate(tokens):
            self.tokens.append(token)
            self.round.append(self.num_rounds)
            self.depth.append(depth)
            self.outcome.append(ACCEPTED if depth < num_accepted else last)
            self.drafted.append(num_drafted)
        self.num_rounds += 1


class _Listener:
    """Takes the events of one request; finds stop strings, as the engine's own callers do."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        params = request.params
        self.rounds = Rounds()
        self._stream: TextStream | None = None
        if params.stop:
            if tokenizer is None:
                raise EngineError("stop strings need a tokenizer")
            self._stream = TextStream(tokenizer, params.stop, params.min_new_tokens)

    @property
    def done(self) -> bool:
        return self.rounds.finish is not None

    def take(self, event: Event) -> None:
        if self.done:
            return
        tokens, finish = list(event.tokens), event.finish
        if self._stream is not None:
            shown = tokens[:-1] if finish == "stop" else tokens
            hit = self._stream.push(shown, finished=finish is not None).stop_hit
            if hit is not None:
                tokens, finish = tokens[: hit.num_tokens - len(self.rounds.tokens)], "stop"
        if event.decided and tokens:
            self.rounds.add(tokens, event.num_accepted, _last(event), event.num_drafted)
        self.rounds.finish = finish


def _last(event: Event) -> int:
    """How the token after the accepted ones came."""
    if not event.num_drafted:
        return PLAIN
    return CORRECTION if event.num_tested > event.num_accepted else BONUS


def run_rounds(engine: Engine, requests: Sequence[Request], tokenizer: Tokenizer | None, tick: Tick) -> list[Rounds]:
    """All requests in one batch, to their ends; in their order. tick(n) is told of n more tokens after each step.

    A request whose logits broke ends with finish "error" and keeps the tokens before.
    """
    listeners = {request.id: _Listener(request, tokenizer) for request in requests}
    seqs: dict[int, int] = {}
    try:
        for request in requests:
            seqs[request.id] = engine.submit(request)
        while not all(listener.done for listener in listeners.values()):
            events = engine.step()
            for event in events:
                listener = listeners[event.request_id]
                listener.take(event)
                if listener.done and event.finish is None:  # a stop string: the engine would go on
                    engine.cancel(seqs[event.request_id])
            tick(sum(len(event.tokens) for event in events))
    finally:
        for number, seq in seqs.items():
            if not listeners[number].done:
                engine.cancel(seq)
    while engine.has_work:  # the events of what was cancelled
        engine.step()
    return [listeners[request.id].rounds for request in requests]
