"""A training text: one prompt and the target's own completion.

Does not know: where texts come from, what is learned from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """One prompt and the target's own completion."""

    tokens: NDArray[np.int32]  # [S]
    prompt_len: int
    bucket: str = "chat"


def shortened(text: Text, most: int) -> Text:
    """At most `most` (>= 2) tokens of a text, half of its completion among them, or all that fit.

    What a drafter learns is the completion: its end is cut first, and then the prompt's begin.
    """
    total = len(text.tokens)
    if total <= most:
        return text
    kept = min((total - text.prompt_len + 1) // 2, most - 1)
    end = max(most, text.prompt_len + kept)
    return Text(text.tokens[end - most : end], text.prompt_len - (end - most), text.bucket)


def frequent(texts: Sequence[Text], num: int, vocab_size: int) -> NDArray[np.int64]:
    """The `num` tokens that are most frequent in the completions, ascending; int64[at most vocab_size]."""
    answers = np.concatenate([text.tokens[text.prompt_len :] for text in texts])
    counts = np.bincount(answers, minlength=vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[: min(num, vocab_size)])
