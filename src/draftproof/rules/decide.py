"""Which theorem judges a draft: one sequence, one round, one verdict. The readable truth beside `batched`.

- temperature 0, or rule `follow` or `coupled`: theorem 1's walk. The choice at a node is the race of theorem 5 with
  noise keyed by position (temperature 0 needs none), so both rules give the same tokens.
- rule `reject` with drawn siblings ("iid", "distinct"): theorems 2 and 3, with numbers keyed by round and node.
- rule `block`: theorem 6 for a drawn chain, the same as `reject` for everything else.
- rule `reject` with "fixed" siblings: the draft law is a point mass, the test min(1, p(x)/1) and the residual "p
  without x"; emitting a draw from p and accepting when it is x has the same law, so theorem 1 judges it.

Invariant: only rows of nodes that are reached are read; a NaN in such a row is a RowError for this sequence alone.
Does not know: the rest of the batch, models, endings (a verdict may run past a stop; the engine cuts it).
"""

from __future__ import annotations

from draftproof.protocols import Noise
from draftproof.rules.block import block, is_chain
from draftproof.rules.coins import RoundCoins
from draftproof.rules.coupled import sample
from draftproof.rules.follow import follow
from draftproof.rules.nodes import Nodes
from draftproof.rules.reject import reject
from draftproof.types import Draft, Logits, StepItem, Verdict


def decide(item: StepItem, draft: Draft, logits: Logits, first_row: int, vocab_size: int, noise: Noise) -> Verdict:
    """The verdict on `draft`; row `first_row + node` of `logits` is what the target says after that node.

    Raises RowError if a row that is reached has a NaN or leaves no token.
    """
    nodes = Nodes(item, draft, logits, first_row)
    if item.params.draws_drafts and draft.siblings != "fixed":
        coins = RoundCoins(noise, item.seed, item.round, len(draft))
        rule = block if item.params.resolved_rule == "block" and is_chain(draft) else reject
        return rule(draft, lambda node: nodes.warped(node).law(vocab_size), coins)
    return follow(
        draft, lambda node: sample(nodes.warped(node), noise, _seed(item), nodes.position_after(node), vocab_size)
    )


def _seed(item: StepItem) -> int:
    """Temperature 0 looks up no number, so it needs no seed."""
    return 0 if item.params.temperature == 0 else item.seed
