"""How many steps fit into the time that is left: a few are timed, with a head that is thrown away.

Does not know: texts' contents, losses, files.
"""

from __future__ import annotations

import time
from dataclasses import replace

from draftproof.train.trainer import Trainer

_TRIAL = 12  # steps whose time is taken
_LEAST = 8  # steps of a run


def steps_that_fit(run: Trainer, trial: Trainer, seconds: float) -> int:
    """trial: like `run`, of a head that is thrown away. seconds: for reading and steps.

    A run that reads has its first window open afterwards; the time of the others is taken to be like it.
    """
    reading = 0.0
    if run.library is not None:
        begin, sizes = time.monotonic(), run.library.sizes
        run.library.open(0)
        first = run.library.windows[0]
        reading = (time.monotonic() - begin) * sum(sizes) / sum(sizes[i] for i in first)
        trial.texts, trial.library = run.texts[: len(first)], run.library.first()
    trial.settings = replace(trial.settings, steps=_TRIAL)
    trial.run(2)
    begin = time.monotonic()
    trial.run()
    each = (time.monotonic() - begin) / (_TRIAL - 2)
    return max(_LEAST, int((seconds - reading) / each))
