"""Suffix drafter: continue the longest suffix of the text that occurred before, as far as the past makes it likely.

The draft walks down a suffix automaton from that match. The next token is the one that followed the most recent
occurrence, or, where less than half of the occurrences agree with it, the most frequent one. With w the matched
string, its estimated probability is count(w token) / (count(w) + 1/|w|): the escape term is the doubt about a context
that is short and was seen seldom. The draft ends when the product falls below `min_probability`: after a match of L
tokens seen once that is at (1/min_probability - 1) * L tokens, so long matches get long drafts. At the end of the text
the walk backs off to a shorter context, hence loops are drafted around. (Counts as in Oliaro et al., "SuffixDecoding",
arXiv 2411.04975, section 3; escape as in prediction by partial matching.)

Invariant: counts hold committed tokens only; the length depends on them alone (D2). "fixed" siblings, no laws.
Does not know: models, laws. Exactness never depends on any estimate here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from draftproof.drafters.automaton import SuffixAutomaton
from draftproof.drafters.history import History
from draftproof.drafters.memory import Cursor, Memory
from draftproof.errors import UnknownDrafter
from draftproof.protocols import Noise
from draftproof.types import EMPTY_DRAFT, Commit, Draft, Ids, StepItem, chain


@dataclass(slots=True)
class _Match:
    """A string of `length` that is a suffix of the running text and occurs in the automaton's text, at `state`."""

    automaton: SuffixAutomaton
    state: int
    length: int


class _Sequence:
    """The automaton of one running text, and its places in the memory."""

    def __init__(self) -> None:
        self.history = History()
        self.automaton = SuffixAutomaton()
        self._cursors: tuple[Cursor, ...] = ()

    def catch_up(self, tokens: Ids, memory: Memory | None) -> None:
        """Takes in what is new in tokens int32[L]."""
        self.automaton.extend(self.history.catch_up(tokens))
        if memory is not None:
            ids = self.history.ids
            known = {id(cursor.automaton): cursor for cursor in self._cursors}
            self._cursors = tuple(known.get(id(a)) or Cursor(a) for a in memory.generations)
            for cursor in self._cursors:
                cursor.follow(ids)

    def longest_match(self) -> _Match:
        """In the own text, or in the memory where the match there is longer."""
        own = self.automaton
        state = own.links[own.last]
        best = _Match(own, state, own.lengths[state])
        for cursor in self._cursors:
            if cursor.length > best.length:
                best = _Match(cursor.automaton, cursor.state, cursor.length)
        return best


class SuffixDrafter:
    """Chains from the request's own past and, optionally, from finished requests.

    min_match: shortest suffix worth continuing. One token is not too short: what matches by chance has a low estimate.
    min_probability: the draft stops before its estimated probability falls below this; about what one more row costs
        as a share of a step.
    memory_tokens: size of the memory across requests; None for none.
    """

    name = "suffix"
    wants: frozenset[str] = frozenset()

    def __init__(self, min_match: int = 1, min_probability: float = 0.2, memory_tokens: int | None = None) -> None:
        if min_match < 1:
            raise UnknownDrafter(f"suffix needs min_match >= 1, got {min_match}")
        if not 0 < min_probability < 1:
            raise UnknownDrafter(f"suffix needs min_probability between 0 and 1, got {min_probability}")
        if memory_tokens is not None and memory_tokens < 1:
            raise UnknownDrafter(f"suffix needs memory_tokens >= 1 or None, got {memory_tokens}")
        self._min_match, self._min_probability = min_match, min_probability
        self._memory = Memory(memory_tokens) if memory_tokens is not None else None
        self._sequences: dict[int, _Sequence] = {}

    def propose(self, items: Sequence[StepItem], noise: Noise) -> Sequence[Draft]:
        """One chain for each item; empty where nothing long enough matches."""
        return [self._draft(item) if item.budget > 0 else EMPTY_DRAFT for item in items]

    def observe(self, commits: Sequence[Commit]) -> None:
        """Nothing: committed tokens come with the next item."""

    def forget(self, seq: int) -> None:
        """Drops the sequence; what it had committed by its last draft goes into the memory, if there is one."""
        gone = self._sequences.pop(seq, None)
        if gone is not None and self._memory is not None:
            self._memory.add(gone.history.ids)

    def _draft(self, item: StepItem) -> Draft:
        sequence = self._sequences.get(item.seq)
        if sequence is None or not sequence.history.precedes(item.tokens):
            sequence = self._sequences[item.seq] = _Sequence()
        sequence.catch_up(item.tokens, self._memory)
        tokens = self._walk(sequence.longest_match(), item.budget, item.stop_ids)
        return chain(tokens) if tokens else EMPTY_DRAFT

    def _walk(self, match: _Match, budget: int, stop_ids: Collection[int]) -> list[int]:
        automaton, doubtful = match.automaton, self._min_probability
        draft: list[int] = []
        sure = 1.0
        while len(draft) < budget and self._backed_off(match):
            token, share = _likeliest(automaton, match.state, match.length)
            sure *= share
            if token < 0 or sure < doubtful:
                break
            draft.append(token)
            if token in stop_ids:
                break
            match.state, match.length = automaton.next[match.state][token], match.length + 1
        return draft

    def _backed_off(self, match: _Match) -> bool:
        """Shortens the match until something followed it; False where that leaves less than `min_match`."""
        automaton = match.automaton
        while match.length >= self._min_match and match.state:
            if _followed(automaton, match.state):
                return True
            match.state = automaton.links[match.state]
            match.length = automaton.lengths[match.state]
        return False


def _followed(automaton: SuffixAutomaton, state: int) -> int:
    """How many occurrences of the state's strings are followed by a token: all but one at the end of the text."""
    return automaton.counts[state] - (automaton.ends[state] == len(automaton.text) - 1)


def _likeliest(automaton: SuffixAutomaton, state: int, length: int) -> tuple[int, float]:
    """The token to follow a string of `length` in `state`, and its estimated probability."""
    end = automaton.ends[state]
    recent = automaton.earlier[state] if end == len(automaton.text) - 1 else end
    token = automaton.text[recent + 1]
    followed, children, counts = _followed(automaton, state), automaton.next[state], automaton.counts
    count = counts[children[token]]
    if 2 * count < followed:
        ends = automaton.ends
        token = max(children, key=lambda other: (counts[children[other]], ends[children[other]]))
        count = counts[children[token]]
    return token, min(count, followed) / (followed + 1.0 / length)
