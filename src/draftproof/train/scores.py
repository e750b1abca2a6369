"""What held-out texts say of a drafter, by bucket: JSON-ready.

Does not know: runs, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftproof.train.texts import Text
from draftproof.train.trainer import Trainer


def by_bucket(trainer: Trainer, texts: Sequence[Text]) -> dict[str, Any]:
    """bucket -> texts, acceptance and overlap by position, tokens per round."""
    found: dict[str, Any] = {}
    for bucket in dict.fromkeys(text.bucket for text in texts):
        score = trainer.score([text for text in texts if text.bucket == bucket])
        found[bucket] = {
            "texts": score.texts,
            "acceptance": [round(rate, 4) for rate in score.match],
            "overlap": [round(rate, 4) for rate in score.overlap],
            "tokens_per_round": round(score.tokens_per_round, 4),
        }
    return found


def mean(scores: dict[str, Any]) -> float:
    """Tokens per round over all buckets, each counting alike."""
    return float(np.mean([score["tokens_per_round"] for score in scores.values()]))


def shown(scores: dict[str, Any]) -> str:
    """Acceptance of the first draft, and tokens per round, of each bucket."""
    parts = [
        f"{bucket} {score['acceptance'][0]:.2f} ({score['tokens_per_round']:.2f})" for bucket, score in scores.items()
    ]
    return ", ".join(parts)
