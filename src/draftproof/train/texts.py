"""A training text: one prompt and the target's own completion.

Does not know: where texts come from, what is learned from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """One prompt and the target's own completion."""

    tokens: NDArray[np.int32]  # [S]
    prompt_len: int
    bucket: str = "chat"
