"""A target's declared numerics, proved on this machine once and remembered.

Does not know: how the target was loaded, what it is for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import openvino

from draftproof.engine.machine import cpu_name, read_memo, write_memo
from draftproof.errors import NumericsError
from draftproof.models import selfcheck
from draftproof.protocols import Target


def proved(target: Target, key: str, memo: Path, asked: str, report: Callable[[str], None]) -> Target:
    """The target, which declares "invariant"; under `asked` "auto" it falls back to "fast", and says so.

    key: of the model and its weights; memo: the file of what was proved before. Raises NumericsError where "invariant"
    was asked for and does not hold.
    """
    threads = getattr(target, "num_threads", 0)
    key = "|".join([str(selfcheck.VERSION), key, cpu_name(), openvino.__version__, str(threads)])
    known = read_memo(memo)
    if known.get(key):
        return target
    report("checking that logits are bit-identical at any width")
    try:
        selfcheck.hold(target, selfcheck.quick(target))
    except NumericsError as error:
        if asked == "invariant":
            raise
        report(f"{error}; going on with fast numerics")
        target.numerics, target.min_rows = "fast", 1
        return target
    write_memo(memo, {**known, key: time.time()})
    return target
