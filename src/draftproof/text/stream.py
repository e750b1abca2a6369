"""The text of one output as it grows: nothing is given out that could still change or belong to a stop string.

A step may bring several tokens at once, so the end of a text can lie anywhere inside a run. Stop strings are looked for
after each token, as a loop of single tokens would: the token that completes one first ends the output, and the text is
cut before the occurrence that starts first. Then no later token, and no token of the run behind it, counts.

Invariant: the joined deltas are the decode of all tokens that count, cut before the stop string; they do not depend on
how the tokens were cut into runs. A stop string complete within the first `min_new_tokens` tokens does not count.

Does not know: the engine, ids that end a text, log-probabilities (cut them by `StopHit.num_tokens`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.text.detokenize import Detokenizer
from draftproof.text.stops import Match, StopSearch
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StopHit:
    """A stop string was completed: the output is its first `num_tokens` tokens, the last one completes `stop`."""

    stop: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text, final for good; and the stop string that ended the output, if one did."""

    text: str
    stop_hit: StopHit | None = None


class TextStream:
    """Incremental text of one output."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), min_new_tokens: int = 0) -> None:
        """stop: non-empty strings. min_new_tokens: a stop string counts from the token after these on."""
        self._detokenizer = Detokenizer(tokenizer)
        self._min_new_tokens = min_new_tokens
        self._search = StopSearch(stop)
        self._trial: StopSearch | None = None  # the search carried on over text that is whole but still open
        self._tried = ""  # that text
        self._watched = bool(stop)
        self._num_tokens = 0
        self._num_sent = 0
        self._held = ""
        self._done = False

    def push(self, tokens: Sequence[int], finished: bool = False) -> TextDelta:
        """The text that these tokens make final; `finished` says that no more will come, and gives out the rest.

        Tokens that come after a stop string or after `finished` are dropped.
        """
        if self._done:
            return TextDelta("")
        match = self._read(tokens, finished) if self._watched else self._settle(self._decode(tokens, finished))
        if match:
            return self._stop(match)
        self._done = finished
        return self._send(0 if finished else self._search.held)

    def _decode(self, tokens: Sequence[int], finished: bool) -> str:
        text = self._detokenizer.push(tokens)
        return text + self._detokenizer.finish() if finished else text

    def _read(self, tokens: Sequence[int], finished: bool) -> Match | None:
        """The stop string that is completed first, token by token; what the end settles belongs to the last one."""
        for index, token in enumerate(tokens, start=1):
            self._num_tokens += 1
            match = self._read_one(self._decode([token], finished and index == len(tokens)))
            if match:
                return match
        return self._settle(self._detokenizer.finish()) if finished and not tokens else None

    def _read_one(self, settled: str) -> Match | None:
        """What the last token completed, in final text or in text that is whole but still open."""
        if settled:
            return self._settle(settled)
        newest = self._detokenizer.newly_open
        if not newest:
            return None
        self._trial = self._trial or self._search.copy()
        self._tried += newest
        return self._counted(self._trial.feed(newest))

    def _settle(self, settled: str) -> Match | None:
        """Final text; what was already tried as open text is not looked at again, if it came out as it was."""
        self._held += settled
        if self._trial is not None and settled.startswith(self._tried):
            self._search, settled = self._trial, settled[len(self._tried) :]
        self._trial, self._tried = None, ""
        return self._counted(self._search.feed(settled))

    def _counted(self, match: Match | None) -> Match | None:
        return match if self._num_tokens > self._min_new_tokens else None

    def _stop(self, match: Match) -> TextDelta:
        self._done = True
        text = (self._held + self._detokenizer.open)[: match.start - self._num_sent]
        return TextDelta(text, StopHit(match.stop, self._num_tokens))

    def _send(self, hold: int) -> TextDelta:
        """Gives out all final text but its last `hold` characters."""
        split = len(self._held) - hold
        text, self._held = self._held[:split], self._held[split:]
        self._num_sent += split
        return TextDelta(text)
