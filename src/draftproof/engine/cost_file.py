"""A cost file -> a curve.

Does not know: who measured it, what it is for.
"""

from __future__ import annotations

import json
from pathlib import Path

from draftproof.errors import InputError
from draftproof.planner.cost import CostCurve


def read_cost(path: Path) -> CostCurve:
    """The curve of a file that `draftproof cost` wrote. Raises InputError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read as a cost file: {error}") from None
    return CostCurve.from_json(value)
