"""A bounded memory of finished requests as suffix automata, and cursors that follow a running text through it.

A suffix automaton can't forget its oldest text, so there are two *generations* of half the capacity each: the young one
grows; when it is full it becomes the old one, and the old one goes. Texts are kept apart by separators, negative and
each used once, so that no match crosses from one request into the next.

Invariant: never more than `capacity` tokens, separators included; about 0.4 KiB of memory a token.
Only committed tokens come in. A memory shared by requests speeds up what was said before: whoever can time a request
learns something about the others, which is why the memory is off unless asked for.

Does not know: drafts, budgets, which request a text came from.
"""

from __future__ import annotations

from draftproof.drafters.automaton import SuffixAutomaton

_LOOK_BACK = 32  # tokens of a running text that are read again; a longer match would say nothing more


class Memory:
    """Two generations of finished texts."""

    def __init__(self, capacity: int) -> None:
        self._half = capacity // 2
        self.generations: tuple[SuffixAutomaton, ...] = (SuffixAutomaton(),)  # old, young
        self._separator = 0

    def __len__(self) -> int:
        return sum(len(generation.text) for generation in self.generations)

    def add(self, tokens: list[int]) -> None:
        """Takes in one finished text, its last part where it is longer than a generation."""
        kept = tokens[-(self._half - 1) :] if self._half > 1 else []
        if not kept:
            return
        young = self.generations[-1]
        if len(young.text) + len(kept) + 1 > self._half:
            self.generations = (young, SuffixAutomaton())
        self._separator -= 1
        self.generations[-1].extend([*kept, self._separator])


class Cursor:
    """The longest suffix of a running text, of its last `_LOOK_BACK` tokens at least, that occurs in one generation."""

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self.automaton = automaton
        self.state = 0
        self.length = 0
        self._read = 0  # tokens of the running text
        self._grown = -1  # size of the generation when it was read

    def follow(self, text: list[int]) -> None:
        """Reads what is new in the running text; its last part again when the generation has grown meanwhile."""
        if self._grown != len(self.automaton.text):
            self._grown = len(self.automaton.text)
            self.state = self.length = 0
            self._read = max(0, len(text) - _LOOK_BACK)
        for token in text[self._read :]:
            self.state, self.length = self.automaton.step(self.state, self.length, token)
        self._read = len(text)
