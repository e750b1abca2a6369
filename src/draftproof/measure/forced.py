"""One teacher-forced pass of the target over several texts: the rows that decide each of their tokens, in chunks.

Rows come from the target's own forward and pages, prompt rows as prompt rows and later rows as later rows, so under
invariant numerics they are the bits that decoding saw, whatever is beside them. So are the hidden states after them,
which whoever drafts from them is told of.

Invariant: the pages of all texts are free again when the pass is closed; rows are valid until the next chunk.
Does not know: laws, drafters. Uses sequence numbers that no scheduler gives out; call between steps of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from draftproof.errors import EngineError, PromptTooLong
from draftproof.measure.texts import Text
from draftproof.models.batch import Rows, flat_batch
from draftproof.protocols import KVCache, Target
from draftproof.types import FloatArray, Ids, Logits, StepBatch

_CHUNK = 256  # prompt rows of one forward
_ROW_BYTES = 1 << 26  # of float32 logits held at once
Heard = Callable[[int, int, FloatArray], None]  # text, position of its first row, states [n, F]


class ForcedPass:
    """Use as a context manager: prompts are fed on entering, pages freed on leaving.

    heard: told of the hidden states after every row of a forward, text by text, before its logits are given out.
    """

    def __init__(self, target: Target, ledger: KVCache, texts: Sequence[Text], heard: Heard | None = None) -> None:
        self._target, self._ledger, self._texts, self._heard = target, ledger, texts, heard
        rows = max(1, _ROW_BYTES // (4 * target.vocab_size))
        self.chunk = max(1, rows // max(1, len(texts)))  # positions of one chunk

    def __enter__(self) -> ForcedPass:
        try:
            for index, text in enumerate(self._texts):
                prompt = text.prompt.tokens
                for begin in range(0, len(prompt), _CHUNK):
                    part = prompt[begin : begin + _CHUNK]
                    self._feed([(index, part)], wide=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(len(self._texts)):
            self._ledger.release(_seq(index))

    def chunks(self) -> Iterator[tuple[Logits, list[tuple[int, range, int]]]]:
        """For each chunk of positions the logits, and (text, its positions in this chunk, row of the first of them).

        Position 0 is left out: no draft is judged there.
        """
        longest = max((text.length for text in self._texts), default=0)
        for begin in range(1, longest, self.chunk):
            spans = [
                (index, range(begin, min(begin + self.chunk, text.length)))
                for index, text in enumerate(self._texts)
                if begin < text.length
            ]
            # The row after a token decides the next position.
            parts = [(i, self._texts[i].completion[span.start - 1 : span.stop - 1]) for i, span in spans]
            output = self._feed(parts, wide=False)
            first, places = 0, []
            for index, span in spans:
                places.append((index, span, first))
                first += len(span)
            yield output, places

    def _feed(self, parts: Sequence[tuple[int, Ids]], *, wide: bool) -> Logits:
        """One forward over the next tokens of some texts; logits of every row that is no prompt row."""
        rows, starts = [], []
        for index, part in parts:
            slots = self._ledger.reserve(_seq(index), max(len(part), self._target.min_rows))
            if slots is None:
                raise PromptTooLong(f"no free pages to score {len(part)} tokens more: raise the KV memory budget")
            rows.append(Rows(part, 1, slots, wants_logits=not wide, wide=wide))
            starts.append(slots.start)
        batch = flat_batch(rows, self._target.packed_rows)
        output = self._target.verify(batch)
        for index, part in parts:
            self._ledger.commit(_seq(index), range(len(part)))
        if self._heard is not None:
            self._tell(parts, starts, batch, output.features)
        return output.logits

    def _tell(
        self, parts: Sequence[tuple[int, Ids]], starts: Sequence[int], batch: StepBatch, features: FloatArray | None
    ) -> None:
        if features is None:
            raise EngineError("a drafter reads hidden states, and the target gives none")
        assert self._heard is not None
        for (index, part), start, first in zip(parts, starts, batch.offsets.tolist(), strict=False):
            self._heard(index, start, features[first : first + len(part)].copy())


def _seq(index: int) -> int:
    return -1 - index
