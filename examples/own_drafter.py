"""A drafter of one's own in ten lines: guess that the last two tokens alternate. Exactness does not depend on it.

python examples/own_drafter.py
"""

from draftproof import LLM, Draft, SamplingParams, StepItem, chain


class Alternate:
    """Proposes a, b, a, b, ... after a text that ends in a, b."""

    name = "alternate"
    wants: frozenset[str] = frozenset()

    def propose(self, items, noise) -> list[Draft]:
        return [self._one(item) for item in items]

    def observe(self, commits) -> None: ...

    def forget(self, seq: int) -> None: ...

    def _one(self, item: StepItem) -> Draft:
        return chain([int(item.tokens[-2 + i % 2]) for i in range(item.budget)] if len(item.tokens) > 1 else [])


PROMPT = "The refrain: la la la la la la la la la la la la la la la la"

with LLM("demo", drafter=Alternate(), gamma=4) as llm:
    drafted = llm.generate(PROMPT, SamplingParams(max_new_tokens=48))[0]
    plain = llm.generate(PROMPT, SamplingParams(max_new_tokens=48, max_draft_tokens=0))[0]

print(PROMPT + drafted.text)
print(f"{drafted.speculation.accepted} of {drafted.speculation.tested} tested drafts accepted")
assert drafted.token_ids == plain.token_ids
