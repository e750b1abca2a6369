"""Exactness as pure functions: laws from logits, and the rules that judge drafts.

Start at `decide` (which theorem judges what) or at `follow`, `reject`, `block`, `coupled` (theorems and proofs).
Does not know: models, engines, text; draws no random number that was not handed in.
"""

from draftproof.rules.batched import decide_batch
from draftproof.rules.block import block
from draftproof.rules.coins import RoundCoins, draw
from draftproof.rules.coupled import race, race_top, sample
from draftproof.rules.decide import decide
from draftproof.rules.follow import children_of, emitted, follow
from draftproof.rules.host import HostLogits
from draftproof.rules.logprobs import token_logprobs, verdict_logprobs
from draftproof.rules.nodes import Nodes
from draftproof.rules.reject import reject
from draftproof.rules.warp import History, Warped, best_id, processed, warp

__all__ = [
    "History",
    "HostLogits",
    "Nodes",
    "RoundCoins",
    "Warped",
    "best_id",
    "block",
    "children_of",
    "decide",
    "decide_batch",
    "draw",
    "emitted",
    "follow",
    "processed",
    "race",
    "race_top",
    "reject",
    "sample",
    "token_logprobs",
    "verdict_logprobs",
    "warp",
]
