"""What fits into memory at once: the pages of the target and of each draft model, for whole texts with their drafts.

If every prompt of a group has its pages to the end, nothing is ever evicted and no draft is cut short, so that results
do not depend on who runs beside whom.

Invariant: a group is a run of prompts in their order; each prompt fits alone, or was refused before.
Does not know: engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftproof.errors import PromptTooLong
from draftproof.measure.encode import Prompt


@dataclass(frozen=True, slots=True)
class Pages:
    """One model's memory. max_len: its context limit; spare: rows a step may need beyond a text's own."""

    num_pages: int
    page_size: int
    max_len: int
    spare: int

    def needed(self, tokens: int) -> int:
        """Pages of a text of so many tokens; a model drafts up to its context limit only."""
        return -(-(min(tokens, self.max_len) + self.spare) // self.page_size)


@dataclass(frozen=True, slots=True)
class Room:
    """max_len: most tokens of a text by the target's context; max_new_tokens: of a completion that is written.

    models: the target's memory, and that of each draft model.
    """

    max_len: int
    max_new_tokens: int | None
    models: tuple[Pages, ...]

    def check(self, prompt: int, completion: int | None) -> None:
        """Raises PromptTooLong for a text that can't be measured. completion: tokens of a logged one, else None."""
        if prompt + (1 if completion is None else completion) > self.max_len:
            what = "the prompt" if completion is None else "prompt and completion"
            tokens = prompt + (completion or 0)
            raise PromptTooLong(f"{what} of {tokens} tokens: the model's context limit is {self.max_len}")
        tokens = self._tokens(prompt, completion)
        for model in self.models:
            if model.needed(tokens) > model.num_pages:
                held = model.num_pages * model.page_size - model.spare
                raise PromptTooLong(f"{tokens} tokens with the completion: the memory holds {held}; raise --kv-memory")

    def groups(self, prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
        """The prompts, cut into runs that fit at once."""
        begin = 0
        while begin < len(prompts):
            end = begin + 1
            while end < len(prompts) and self._fits(prompts[begin : end + 1]):
                end += 1
            yield prompts[begin:end]
            begin = end

    def _fits(self, prompts: Sequence[Prompt]) -> bool:
        lengths = [self._tokens(len(p.tokens), None if p.completion is None else len(p.completion)) for p in prompts]
        return all(sum(map(model.needed, lengths)) <= model.num_pages for model in self.models)

    def _tokens(self, prompt: int, completion: int | None) -> int:
        new = self.max_new_tokens if completion is None else completion
        return self.max_len if new is None else min(self.max_len, prompt + new)
