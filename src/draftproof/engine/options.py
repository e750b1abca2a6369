"""What an engine is made of, checked before anything is loaded.

Does not know: how any of it is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.drafters import DRAFTERS, check_name
from draftproof.drafters.tree_shape import FREE, parse_shape
from draftproof.errors import InvalidParams, UnknownDrafter
from draftproof.models.load import BACKENDS, WEIGHTS
from draftproof.protocols import Drafter

HEAD_DRAFTERS = tuple(entry.name for entry in DRAFTERS.values() if entry.needs_head)
MODEL_DRAFTERS = tuple(entry.name for entry in DRAFTERS.values() if entry.needs_model)
TREE_DRAFTERS = tuple(entry.name for entry in DRAFTERS.values() if "tree" in entry.options)
_SOME_TAKE = {"draft_weights": ("auto", MODEL_DRAFTERS), "tree": (None, TREE_DRAFTERS)}  # default, who takes it


def _within(value: object, low: int, high: int, *, optional: bool = False) -> bool:
    if value is None:
        return optional
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine is made of. None and "auto" mean the default that `LLM` documents."""

    model: str = "demo"
    drafter: str | Drafter = "none"
    draft_model: str | None = None
    exit_layer: int | None = None
    gamma: int | None = None
    weights: str = "auto"
    backend: str = "auto"
    numerics: str = "auto"
    kv_memory: int | None = None
    max_sequences: int = 32
    chunk_rows: int = 256
    threads: int | None = None
    cache_dir: str | Path | None = None
    cost_file: str | Path | None = None
    enable_prefix_caching: bool | None = None
    tree: str | None = None  # of eagle, medusa, cascade, as of `drafters.tree_shape.parse_shape`; None drafts chains
    draft_weights: str = "auto"  # of a drafter's second model; "auto": as the target's
    huge_pages: bool = True

    def __post_init__(self) -> None:
        checks = [
            ("backend", self.backend in BACKENDS, f"one of {', '.join(BACKENDS)}"),
            ("numerics", self.numerics in ("auto", "invariant", "fast"), "one of auto, invariant, fast"),
            ("draft_weights", self.draft_weights in WEIGHTS, f"one of {', '.join(WEIGHTS)}"),
            ("gamma", _within(self.gamma, 0, 1 << 20, optional=True), "None or an integer >= 0"),
            ("max_sequences", _within(self.max_sequences, 1, 256), "an integer in 1..256"),
            ("chunk_rows", _within(self.chunk_rows, 1, 8192), "an integer in 1..8192"),
            ("threads", _within(self.threads, 1, 4096, optional=True), "None or an integer in 1..4096"),
            ("kv_memory", _within(self.kv_memory, 1, 1 << 60, optional=True), "None or a number of bytes > 0"),
            ("huge_pages", isinstance(self.huge_pages, bool), "True or False"),
            ("enable_prefix_caching", self.enable_prefix_caching in (None, True, False), "None, True or False"),
        ]
        for name, holds, must in checks:
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {getattr(self, name)!r}")
        if not isinstance(self.drafter, str) and not callable(getattr(self.drafter, "propose", None)):
            raise UnknownDrafter(f"a drafter is a name or an object with `propose`, got {self.drafter!r}")
        if self.drafter == "scripted":
            raise UnknownDrafter("drafter 'scripted' is made in Python: pass a ScriptedDrafter object")
        if isinstance(self.drafter, str):
            check_name(self.drafter)
            self._check_second_model(self.drafter)
        elif self.tree is not None:
            raise InvalidParams("a drafter made in Python has its trees already: drop tree")
        elif self.draft_weights != "auto":
            raise InvalidParams("a drafter made in Python has its model already: drop draft_weights")

    def _check_second_model(self, name: str) -> None:
        """Who takes a draft model, who an exit layer; nothing that was given is ignored."""
        if self.draft_model is not None and name not in ("model", "fixed_tree", *HEAD_DRAFTERS):
            raise InvalidParams(f"drafter {name!r} takes no draft model: drop --draft-model, or use --drafter model")
        if self.exit_layer is not None and name not in ("early_exit", "fixed_tree"):
            raise InvalidParams(f"drafter {name!r} takes no exit layer: drop --exit-layer, or use --drafter early_exit")
        if self.draft_model is not None and self.exit_layer is not None:
            raise InvalidParams("--draft-model and --exit-layer exclude each other: the drafter has one model")
        if self.draft_weights != "auto" and name not in MODEL_DRAFTERS:
            raise InvalidParams(
                f"drafter {name!r} has no second model: drop --draft-weights, or use --drafter {_any(MODEL_DRAFTERS)}"
            )
        if self.tree is not None and name not in TREE_DRAFTERS:
            raise InvalidParams(f"drafter {name!r} takes no tree: drop --tree, or use --drafter {_any(TREE_DRAFTERS)}")
        if self.tree is not None:
            parse_shape(self.tree, FREE)
        if name == "model" and self.draft_model is None:
            raise InvalidParams("drafter 'model' needs a draft model: give --draft-model")

    @property
    def drafts_trees(self) -> bool:
        """True where the target needs scratch pages for branches."""
        return self.drafter == "fixed_tree" or self.tree is not None


def for_each(drafters: Sequence[str], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Options given once for several drafters -> those that each of them takes.

    Raises InvalidParams for one that no drafter takes.
    """
    each = [dict(given) for _ in drafters]
    for name, (usual, takers) in _SOME_TAKE.items():
        if given.get(name, usual) != usual and not set(drafters) & set(takers):
            shown = name.replace("_", "-")
            raise InvalidParams(f"no drafter here takes --{shown}: drop it, or use --drafter {_any(takers)}")
        for drafter, own in zip(drafters, each, strict=True):
            if drafter not in takers:
                own.pop(name, None)
    return each


def _any(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
