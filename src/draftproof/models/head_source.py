"""A draft head by the folder a user gives, or the one that ships with draftproof for the demo model.

Does not know: weights, targets beyond their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.errors import ModelNotFound
from draftproof.models.eagle_config import EagleConfig, read_config
from draftproof.models.source import DEMO

SHIPPED = Path(__file__).parent.parent / "heads"
_BY_TARGET = {DEMO: "smollm2-135m-instruct-eagle"}


@dataclass(frozen=True, slots=True)
class HeadSource:
    """Where a head is, and its shapes."""

    folder: Path
    config: EagleConfig


def resolve_head(asked: str | Path | None, target_name: str) -> HeadSource:
    """The head that was asked for, or the shipped one. Raises ModelNotFound or CorruptModel."""
    if asked is not None:
        folder = Path(asked).expanduser()
        if not folder.is_dir():
            raise ModelNotFound(f"no draft head {str(asked)!r}: give the folder that `draftproof train` wrote")
        return HeadSource(folder, read_config(folder))
    if target_name not in _BY_TARGET:
        raise ModelNotFound(
            "no draft head ships for this model: train one with `draftproof train eagle`, then give --draft-model"
        )
    folder = SHIPPED / _BY_TARGET[target_name]
    return HeadSource(folder, read_config(folder))
