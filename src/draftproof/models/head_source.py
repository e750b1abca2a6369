"""A draft head by the folder a user gives, or the one that ships with draftproof for the demo model.

Does not know: weights, targets beyond their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import ModelNotFound
from draftproof.models.eagle_config import CONFIG, EagleConfig, read_config
from draftproof.models.head_formats.eagle import is_own, open_head
from draftproof.models.medusa_config import MedusaConfig, read_medusa_config
from draftproof.models.source import DEMO

SHIPPED = Path(__file__).parent.parent / "heads"
_BY_TARGET = {DEMO: "smollm2-135m-instruct-eagle"}


@dataclass(frozen=True, slots=True)
class HeadSource:
    """Where a head is, and its shapes."""

    folder: Path
    config: EagleConfig


def resolve_head(asked: str | Path | None, target_name: str, target: Mapping[str, Any] | None = None) -> HeadSource:
    """The head that was asked for, or the shipped one.

    target: the values of the target's config.json, for a head in a format of others.
    Raises ModelNotFound or CorruptModel; for a head from elsewhere also as `open_head`.
    """
    if asked is not None:
        folder = Path(asked).expanduser()
        if not folder.is_dir():
            raise ModelNotFound(f"no draft head {str(asked)!r}: give the folder that `draftproof train` wrote")
        return HeadSource(folder, read_config(folder) if is_own(folder) else open_head(folder, target).config)
    if target_name not in _BY_TARGET:
        raise ModelNotFound(
            "no draft head ships for this model: train one with `draftproof train eagle`, then give it: "
            "--draft-model DIR, or --drafter eagle:DIR of `serve`"
        )
    folder = SHIPPED / _BY_TARGET[target_name]
    return HeadSource(folder, read_config(folder))


def find_head(kind: str, asked: str | Path | None, target_name: str) -> Path:
    """The folder of what a drafter of this kind would draft with, before it is looked into. Raises ModelNotFound."""
    if asked is None:
        return resolve_medusa(None).folder if kind == "medusa" else resolve_head(None, target_name).folder
    folder = Path(asked).expanduser()
    if not (folder / CONFIG).is_file():
        raise ModelNotFound(f"no draft head {str(asked)!r}: give the folder that `draftproof train` wrote")
    return folder


@dataclass(frozen=True, slots=True)
class MedusaSource:
    """Where Medusa heads are, and their shapes."""

    folder: Path
    config: MedusaConfig


def resolve_medusa(asked: str | Path | None) -> MedusaSource:
    """The heads that were asked for; none ship. Raises ModelNotFound or CorruptModel."""
    if asked is None:
        raise ModelNotFound(
            "no Medusa heads ship with draftproof: train them with `draftproof train medusa`, then give "
            "them: --draft-model DIR, or --drafter medusa:DIR of `serve`"
        )
    folder = Path(asked).expanduser()
    if not folder.is_dir():
        raise ModelNotFound(f"no Medusa heads {str(asked)!r}: give the folder that `draftproof train medusa` wrote")
    return MedusaSource(folder, read_medusa_config(folder))
