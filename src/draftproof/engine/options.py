"""What an engine is made of, checked before anything is loaded.

Does not know: how any of it is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.drafters import check_name
from draftproof.errors import InvalidParams, UnknownDrafter
from draftproof.models.load import BACKENDS
from draftproof.protocols import Drafter


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
    threads: int | None = None
    cache_dir: str | Path | None = None

    def __post_init__(self) -> None:
        checks = [
            ("backend", self.backend in BACKENDS, f"one of {', '.join(BACKENDS)}"),
            ("numerics", self.numerics in ("auto", "invariant", "fast"), "one of auto, invariant, fast"),
            ("gamma", self.gamma is None or self.gamma >= 0, "None or an integer >= 0"),
            ("max_sequences", 1 <= self.max_sequences <= 256, "in 1..256"),
            ("threads", self.threads is None or self.threads >= 1, "None or an integer >= 1"),
            ("kv_memory", self.kv_memory is None or self.kv_memory > 0, "None or a number of bytes > 0"),
        ]
        for name, holds, must in checks:
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {getattr(self, name)!r}")
        if self.drafter == "scripted":
            raise UnknownDrafter("drafter 'scripted' is made in Python: pass a ScriptedDrafter object")
        if isinstance(self.drafter, str):
            check_name(self.drafter)
