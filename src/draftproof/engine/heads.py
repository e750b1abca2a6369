"""Draft heads for an engine: found and checked before the target is loaded, made to run once it is there.

Invariant: a head of another target is refused before anything is loaded, with the difference named.
Does not know: other drafters, draft lengths, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.drafters import make
from draftproof.drafters.tree_shape import FREE, Shape, parse_shape
from draftproof.engine.draft_model import DraftModel
from draftproof.engine.lengths import relative_cost, tree_prices
from draftproof.engine.options import EngineOptions
from draftproof.kv.ledger import PageLedger
from draftproof.models.eagle_config import check_target
from draftproof.models.head_source import HeadSource, MedusaSource, resolve_head, resolve_medusa
from draftproof.models.load import Loader
from draftproof.models.source import ModelSource
from draftproof.planner.cost import CostCurve
from draftproof.protocols import Drafter, Target


@dataclass(frozen=True, slots=True)
class MadeHead:
    """A drafter over its head. cost: of one draft token, in plain decoding steps."""

    drafter: Drafter
    model: DraftModel
    cost: float


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of one target. weights: how they are kept, as the target's are. kv_bytes: of the pages of one of them."""

    loader: Loader
    source: ModelSource
    weights: str
    kv_bytes: int
    report: Callable[[str], None]
    curve: CostCurve | None = None  # this device's costs, where they were measured
    module: Any = None  # the target's own, once it is loaded on the torch backend: its heads run there, too

    def find(self, options: EngineOptions, vocabulary: Mapping[str, int] | None = None) -> HeadSource | MedusaSource:
        """Folder and shapes, checked against this target (and its tokens, where they are known yet)."""
        found: HeadSource | MedusaSource
        target = self.loader.config(self.source)
        if options.drafter == "medusa":
            found = resolve_medusa(options.draft_model)
        else:
            found = resolve_head(options.draft_model, self.source.name, target)
        check_target(found.config, target, vocabulary)
        return found

    def drafter(self, options: EngineOptions, target: Target, vocabulary: Mapping[str, int]) -> MadeHead:
        """The drafter that the options name, over its head on the target's backend."""
        found = self.find(options, vocabulary)
        head, folder = self._openvino(found, options) if self.module is None else self._torch(found, target)
        name, cost = str(options.drafter), relative_cost(head, target)
        more = {"vocab_size": target.vocab_size, "mapping": head.draft_ids}
        if isinstance(found, MedusaSource):
            cost /= head.num_heads
            drafter = make(name, target=head, **more, **self._tree(options, cost, target))
            return MadeHead(drafter, DraftModel(None, None, self.source, None, folder, head=found), cost)
        ledger = PageLedger(head.num_pages, head.page_size)
        drafter = make(name, target=head, ledger=ledger, **more, **self._tree(options, cost, target))
        return MadeHead(drafter, DraftModel(head, ledger, self.source, None, folder, head=found), cost)

    def _openvino(self, found: HeadSource | MedusaSource, options: EngineOptions) -> tuple[Any, Path]:
        """The head, compiled, and the folder of its graph."""
        folder = self.loader.head(self.source, found.folder, self.weights)
        self.report("compiling the draft head")
        if isinstance(found, MedusaSource):
            from draftproof.models.openvino_medusa import OpenVINOMedusa  # the other backend must not need it

            return OpenVINOMedusa(folder, found.config, threads=options.threads), folder
        from draftproof.models.openvino_head import OpenVINOHead  # likewise

        return OpenVINOHead(folder, found.config, kv_bytes=self.kv_bytes, threads=options.threads), folder

    def _torch(self, found: HeadSource | MedusaSource, target: Target) -> tuple[Any, Path]:
        """The head beside the target's module, with its numerics, so that drafts keep the promise of its states."""
        from draftproof.models.head_files import load_head, load_medusa  # seconds to import, as all that knows torch
        from draftproof.models.torch_head import TorchHead
        from draftproof.models.torch_medusa import TorchMedusa

        self.report("loading the draft head")
        if isinstance(found, MedusaSource):
            return TorchMedusa(load_medusa(found.folder), self.module, numerics=target.numerics), found.folder
        head = load_head(found.folder, self.loader.config(self.source))
        made = TorchHead(head, self.module, kv_bytes=self.kv_bytes, numerics=target.numerics)
        return made, found.folder

    def _tree(self, options: EngineOptions, cost: float, target: Target) -> dict[str, Shape]:
        if options.tree is None:
            return {}
        prices = (
            tree_prices(self.curve, cost, target.numerics, str(options.drafter)) if options.tree == "auto" else FREE
        )
        return {"tree": parse_shape(options.tree, prices)}
