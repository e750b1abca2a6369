"""What a training run is asked for, checked before anything is loaded.

Does not know: how any of it is done.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import InputError

_MOST_MINUTES, _MOST_SEED = 100_000, 1 << 40  # torch's seeds are made of this one and have 63 bits
VOCAB = 8192  # tokens a new head can say
_RATE = 1e-3
_RATE_OF_MORE = 2e-4  # 5e-4 unlearned more of a trained head than a short run made good (docs/LOG.md)


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What a run is asked for. minutes: of texts and steps together, on this machine."""

    out: Path
    model: str = "demo"
    data: Path | None = None
    bucket_field: str | None = None
    init: Path | None = None
    texts: Path | None = None  # a folder with texts that another run wrote (its work/): no more are written
    minutes: float = 180.0
    draft_vocab: int | None = None  # of a new head; None: `VOCAB`
    layers: int | None = None  # of a draft model; None: a tenth of the target's
    max_new: int = 224
    seed: int = 0
    batch_tokens: int = 512
    learning_rate: float | None = None  # the highest; None: a new drafter's, or a lower one to go on from `init`
    weights: str = "auto"
    cache_dir: Path | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 0.1 <= self.minutes <= _MOST_MINUTES:
            raise InputError(f"--minutes must be in 0.1..{_MOST_MINUTES}, got {self.minutes}")
        if not 0 < self.rate <= 1:
            raise InputError(f"--learning-rate must be above 0 and at most 1, got {self.learning_rate}")
        if not 0 <= self.seed <= _MOST_SEED:
            raise InputError(f"--seed must be in 0..{_MOST_SEED}, got {self.seed}")
        if self.threads is not None and not 1 <= self.threads <= 4096:
            raise InputError(f"--threads must be in 1..4096, got {self.threads}")
        if self.draft_vocab is not None and self.draft_vocab < 16:
            raise InputError(f"--draft-vocab must be at least 16, got {self.draft_vocab}")
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """Options that would change nothing beside others are said."""
        if self.init is not None and self.draft_vocab is not None:
            raise InputError("--draft-vocab is of a new head: the one in --init has its tokens; leave one of them out")
        if self.init is not None and self.layers is not None:
            raise InputError("--layers is of a new draft model: the one in --init has its own; leave one of them out")
        if self.texts is not None and self.data is not None:
            raise InputError("--texts are there and --data is to be answered: give one of them")
        if self.bucket_field is not None and self.data is None:
            raise InputError("--bucket-field is a field of --data: give both")

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        usual = _RATE if self.init is None else _RATE_OF_MORE
        return usual if self.learning_rate is None else self.learning_rate

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        kept: dict[str, Any] = {
            name: value for name, value in asdict(self).items() if name not in ("out", "cache_dir", "threads")
        }
        kept["draft_vocab"] = self.draft_vocab or VOCAB
        return {name: str(value) if isinstance(value, Path) else value for name, value in kept.items()}
