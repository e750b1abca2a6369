"""Rounds without a model: production drafting and judging on laws, or logits, that are functions of the tokens so far.

`reject_round` draws a tree through the coins and judges it, so that `law.sequence_law` enumerates drafting and judging
together. `play` repeats `decide` on a function in the model's place: small counter-examples, certificates, tests.

Invariant: nothing is computed here that a rule computes; the shape of a tree is fixed before its tokens are drawn (D2).
Does not know: models, caches, endings other than a number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftproof.protocols import Coins, Noise
from draftproof.rules.decide import decide
from draftproof.rules.follow import emitted
from draftproof.rules.host import HostLogits
from draftproof.rules.reject import reject, without
from draftproof.types import Draft, FloatArray, SamplingParams, Siblings, StepItem, Verdict

Tokens = tuple[int, ...]
LawOf = Callable[[Tokens], FloatArray]  # tokens so far -> law float[V], or an object array of Fractions
LogitsOf = Callable[[Tokens], FloatArray]  # tokens so far -> logits float[V]


def draw_tree(draft_law: LawOf, prefix: Tokens, branching: Sequence[int], siblings: Siblings, coins: Coins) -> Draft:
    """A tree whose nodes at depth d have branching[d] children drawn from draft_law(path to the node).

    "distinct" siblings are drawn without replacement, as many as the law has tokens if those are fewer.
    """
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[FloatArray] = []
    law_row: list[int] = []
    level: list[tuple[int, Tokens]] = [(0, prefix)]
    for width in branching:
        below: list[tuple[int, Tokens]] = []
        for parent, path in level:
            laws.append(draft_law(path))
            for token in _draw_siblings(laws[-1], width, siblings, coins):
                tokens.append(token)
                parents.append(parent)
                law_row.append(len(laws) - 1)
                below.append((len(tokens), (*path, token)))
        level = below
    stacked = np.stack(laws) if laws else None
    return Draft(
        np.array(tokens, np.int32), np.array(parents, np.int32), siblings, stacked, np.array(law_row, np.int32)
    )


def _draw_siblings(law: FloatArray, width: int, siblings: Siblings, coins: Coins) -> list[int]:
    drawn: list[int] = []
    left: FloatArray | None = law
    while left is not None and len(drawn) < width:
        drawn.append(coins.draw(0, left))
        left = without(law, drawn) if siblings == "distinct" else law
    return drawn


def path_tokens(draft: Draft, node: int) -> Tokens:
    """Tokens of the nodes from the root's child down to `node`."""
    tokens: Tokens = ()
    while node:
        tokens = (int(draft.tokens[node - 1]), *tokens)
        node = int(draft.parents[node - 1])
    return tokens


def judge(target_law: LawOf, prefix: Tokens, draft: Draft, coins: Coins) -> Verdict:
    """`reject` with target laws that are functions of the tokens so far."""
    return reject(draft, lambda node: target_law((*prefix, *path_tokens(draft, node))), coins)


def reject_round(
    target_law: LawOf, draft_law: LawOf, prefix: Tokens, branching: Sequence[int], siblings: Siblings, coins: Coins
) -> Tokens:
    """The tokens that one round of `reject` emits after `prefix`."""
    draft = draw_tree(draft_law, prefix, branching, siblings, coins)
    return emitted(draft, judge(target_law, prefix, draft, coins))


def rows_of(logits_of: LogitsOf, item: StepItem, draft: Draft) -> HostLogits:
    """What one forward returns for one sequence: a row for the root and one for each node."""
    so_far = tuple(item.tokens.tolist())
    return HostLogits(np.stack([logits_of(so_far + path_tokens(draft, node)) for node in range(len(draft) + 1)]))


def play(
    logits_of: LogitsOf,
    propose: Callable[[StepItem], Draft],
    prompt: Sequence[int],
    params: SamplingParams,
    noise: Noise,
) -> tuple[list[int], list[Verdict]]:
    """params.max_new_tokens tokens after `prompt`, and the verdict of each round (the last may run past the cut)."""
    if params.max_new_tokens is None:
        raise ValueError("a rehearsal has no context limit: max_new_tokens must be a number")
    tokens = list(prompt)
    verdicts: list[Verdict] = []
    while len(tokens) < len(prompt) + params.max_new_tokens:
        item = StepItem(
            seq=0,
            tokens=np.array(tokens, np.int32),
            prompt_len=len(prompt),
            pending=1,
            feed=1,
            budget=len(prompt) + params.max_new_tokens - len(tokens),
            params=params,
            round=len(verdicts),
            stop_ids=frozenset(params.stop_ids),
        )
        draft = propose(item)
        rows = rows_of(logits_of, item, draft)
        verdicts.append(decide(item, draft, rows, 0, len(rows.row(0)), noise))
        tokens += emitted(draft, verdicts[-1])
    return tokens[len(prompt) :][: params.max_new_tokens], verdicts
