"""What a built drafter runs, beside the target.

Does not know: how it is loaded, how it drafts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.kv.ledger import PageLedger
from draftproof.models.head_source import HeadSource, MedusaSource
from draftproof.models.source import ModelSource
from draftproof.protocols import Target


@dataclass(frozen=True, slots=True, eq=False)
class DraftModel:
    """The second model of a drafter; num_layers None is all of them.

    target, ledger: the model and the pages it writes; None for heads that keep no cache.
    folder: its files as they were loaded. weights: how they are kept, for a model of its own; a head's are as its
        target's. head: where it was found, of a draft head.
    """

    target: Target | None
    ledger: PageLedger | None
    source: ModelSource
    num_layers: int | None
    folder: Path
    weights: str | None = None
    head: HeadSource | MedusaSource | None = None
